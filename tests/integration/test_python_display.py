# SPDX-License-Identifier: Apache-2.0
"""What streams, steps and variables show of themselves, in one line and in notebooks."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import forebay
from tests.support.staging_server import StagingServer

HOSTILE = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """The tags of a document, which have to be closed in order."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.fixture
def flow(reservation: str) -> str:
    """An ended stream of three steps."""
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w", retention="last:3") as stream:
        stream.attributes["title"] = "a <b>bold</b> title"
        for number in range(4):
            with stream.step() as step:
                step.write("T", np.arange(12.0).reshape(3, 4)[:2], shape=(3, 4), dims=("y", "x"))
                step.write("T", np.full((1, 4), -2.0), shape=(3, 4), start=(2, 0))
                step["n"] = number
                step[HOSTILE] = "x" * 500
    return address


def test_stream_shows_its_state(flow: str) -> None:
    stream = forebay.open(flow)
    size = forebay.format_size(stream.info.size_bytes)
    assert repr(stream) == f"<Stream {flow}, mode 'r': ended, 3 steps kept, 1 to 3, {size}>"
    html = stream._repr_html_()
    assert Tags(html).seen == {"div", "b", "code", "table", "thead", "tbody", "tr", "th", "td"}
    for text in ("ended", "3 steps kept, 1 to 3", "last:3", "committed 3", "newest step 3", "float64", "(3, 4)"):
        assert text in html
    stream.close()
    assert repr(stream).startswith(f"<Stream {flow}, mode 'r', closed: ended, 3 steps")
    Tags(stream._repr_html_())


def test_empty_and_removed_streams_show_so(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream:
        assert repr(stream) == f"<WritableStream {address}, mode 'w': live, no steps>"
        Tags(stream._repr_html_())
    reading = forebay.open(address)
    with forebay.Admin() as admin:
        admin.remove_stream(address)
        assert re.search("no (such )?stream", repr(reading))
        Tags(reading._repr_html_())
        forebay.open(address, mode="w").close()
        assert "created again" in repr(reading)


def test_handle_shows_itself_without_a_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    with StagingServer(tmp_path_factory.mktemp("instance") / "root") as server:
        with forebay.Admin(server.root) as admin:
            admin.create("r", "64MiB")
        with forebay.open("r/flow", mode="w", instance=server.root) as writing, writing.step() as step:
            step["n"] = 1
        stream = forebay.open("r/flow", instance=server.root)
        held = stream[0]
    assert re.match(r"<Stream r/flow, mode 'r': .*server", repr(stream))
    Tags(stream._repr_html_())
    assert repr(held).startswith("<Step r/flow@0, epoch 1, committed ")


def test_step_shows_time_size_and_variables(flow: str) -> None:
    step = forebay.open(flow)[3]
    size = forebay.format_size(step.size_bytes)
    assert re.fullmatch(
        rf"<Step {flow}@3, epoch 1, committed \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d, {size}: T, n, "
        rf"{re.escape(HOSTILE)}>",
        repr(step),
    )
    assert repr(step.keys()) == f"VariableNames(['T', 'n', '{HOSTILE}'])"
    assert set(step.keys()) == {"T", "n", HOSTILE}
    html = step._repr_html_()
    assert "script" not in Tags(html).seen
    for text in ("y, x", "-2", "float64", "attributes: 2"):
        assert text in html
    step.release()
    assert repr(step) == f"<Step {flow}@3, epoch 1, released>"
    Tags(step._repr_html_())


def test_variable_shows_what_it_is(flow: str) -> None:
    step = forebay.open(flow)[3]
    assert repr(step["T"]) == (
        f"<Variable 'T' of {flow}@3: global_array of float64, shape (3, 4) (y, x), 2 blocks, from -2 to 7>"
    )
    assert repr(step["n"]) == f"<Variable 'n' of {flow}@3: global_value of int64, 3>"
    text = step[HOSTILE]
    assert len(repr(text)) < 250
    for variable in (step["T"], step["n"], text):
        assert "script" not in Tags(variable._repr_html_()).seen
    assert "blocks: 2" in step["T"]._repr_html_()
    variable = step["T"]
    step.release()
    assert "released" in repr(variable)
    Tags(variable._repr_html_())


def test_names_and_values_of_others_move_no_cursor_and_turn_no_text(reservation: str) -> None:
    name = "T\x1b[31m\u202e"
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            step[name] = np.ones(3)
            step.attributes[name] = name
        latest = stream.latest
        shown = [text for it in (stream, latest, latest[name]) for text in (repr(it), it._repr_html_())]
        with pytest.raises(forebay.VariableNotFoundError) as raised:
            latest["U"]
    for text in (*shown, str(raised.value)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "T\\x1b[31m\\u202e" in shown[2]


def test_many_variables_are_counted_not_listed(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            for number in range(300):
                step[f"v{number}"] = number
        shown = stream.latest
        assert repr(shown).endswith("v0, v1, v2, v3, v4, v5, v6, v7 and 292 more>")
        assert "and 200 more" in shown._repr_html_()
        assert len(shown._repr_html_()) < 40_000
