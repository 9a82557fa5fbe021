# SPDX-License-Identifier: Apache-2.0
"""Directives of job scripts: what they mean, and what is refused instead of misread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import InvalidArgumentError
from forebay.workflows.directives.directive_lines import directive_lines, parse_slurm_size
from forebay.workflows.directives.directive_parsing import find_mistakes, parse_directives, parse_list
from forebay.workflows.directives.directives import (
    CreatePersistent,
    Directives,
    FileStage,
    MatchedStage,
    StreamStage,
)
from forebay.workflows.slurm import calls, users
from forebay.workflows.slurm.symbols import expand_symbols

GIB = 1 << 30


def script(*lines: str) -> bytes:
    return "\n".join(["#!/bin/bash", *lines, "echo", "# DW jobdw capacity=9GiB"]).encode() + b"\0"


def test_lines_are_taken_as_datawarp_takes_them() -> None:
    found = parse_directives(
        script(
            "#SBATCH -n 2",
            "",
            "#DW jobdw  capacity=1GiB \\",
            "   access_mode=striped type=scratch",
            "#DW jobdw capacity=3GiB type=scratch",
            "#DW stage_in type=directory source=/pfs/in/ destination=${DW_JOB_STRIPED}/in/",
            "#DW stage_out source=$DW_JOB_STRIPED/a=b destination=/pfs/out",
            "#FB stage_out stream=flow every=10 destination=/pfs/steps",
            "#FB stage_out source=$DW_JOB_STRIPED/run match=chk????? every=10 destination=/pfs/chk",
        )
    )
    assert found.capacity_bytes == 4 * GIB
    assert found.files == (
        FileStage("in", "/pfs/in", inward=True, kind="directory"),
        FileStage("a=b", "/pfs/out", inward=False, kind="file"),
    )
    assert found.streams == (StreamStage("flow", "/pfs/steps", 10, "", "bp5"),)
    assert found.matched == (MatchedStage("run", "/pfs/chk", "chk?????", 10, None, "", "rename"),)
    assert Directives.from_json(found.as_json()) == found


def test_a_script_without_directives_asks_for_nothing() -> None:
    assert parse_directives(script()) == Directives()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("#DW jobdw capacity=1.5GiB", "line 2 of the script: capacity=1.5GiB is no size"),
        ("#DW jobdw", "capacity= is missing"),
        ("#DW jobdw capacity=0", "holds nothing"),
        ("#DW jobdw capacity=1GiB type=cache", "this is type=cache, the transparent cache"),
        ("#DW jobdw type=cache access_mode=ldbalance pfs=/pfs", "this is type=cache, the transparent cache"),
        ("#DW jobdw capacity=1GiB type=swap", "type=swap is not known"),
        ("#DW jobdw capacity=1GiB access_mode=ldbalance", "access_mode=ldbalance belongs to type=cache"),
        ("#DW jobdw capacity=1GiB access_mode=mirrored", "known are striped and private"),
        ("#DW jobdw capacity=1GiB optimization_strategy=best", "known are bandwidth, interference, wear"),
        ("#DW jobdw capacity=1GiB write_window_length=long", "known are whole numbers"),
        ("#DW jobdw capacity=1GiB capacity=2GiB", "twice"),
        ("#DW jobdw capacity=1GiB striped", '"striped" is no key=value'),
        ("#DW jobdw capacity=1GiB colour=red", "colour= is not known"),
        ("#DW swap 2GiB", "no block devices"),
        ("#DW persistentdw name=1x", "a name has a letter"),
        ("#DW stage_in source=/pfs/a destination=$DW_JOB_STRIPED/a", "has no `#DW jobdw"),
        ("#DW stage_in source=pfs/a destination=$DW_JOB_STRIPED/a", "no absolute path"),
        ("#DW stage_in source=/pfs/a destination=$DW_JOB_STRIPED/../a", "leaves the scratch"),
        ("#DW stage_in source=/pfs/a destination=$DW_JOB_STRIPEDX/a", "does not begin with"),
        ("#DW stage_out source=$DW_JOB_STRIPED/a destination=$DW_JOB_STRIPED/b", "no absolute path"),
        ("#FB stage_out stream=flow every=0 destination=/a", "every=0"),
        ("#FB stage_out stream=flow steps=all destination=/a", "'all' is not a step number or range"),
        ("#FB stage_out stream=flow steps=0,10-20 destination=/a", "'10-20' is not a step number or range"),
        ("#FB stage_out stream=files destination=/a", "no stream is called so"),
        ("#FB stage_out stream=flow destination=/a/" + "x" * 256, "has more than 255 bytes"),
        ("#DW stage_out type=file source=$DW_JOB_STRIPED destination=/a", "is a folder; write type=directory"),
        ("#FB stage_in stream=flow destination=/a", "not known"),
        ("#FB stage_out source=$DW_JOB_STRIPED/run destination=/a", "match= is missing"),
        ("#FB stage_out source=$DW_JOB_STRIPED match=a/b destination=/a", "no pattern of names"),
        ("#FB stage_out source=$DW_JOB_STRIPED match=* every=0 destination=/a", "every=0"),
        ("#FB stage_out source=$DW_JOB_STRIPED match=* every=2 multiple_of=2 destination=/a", "give one of them"),
        ("#FB stage_out source=$DW_JOB_STRIPED match=* complete=maybe destination=/a", "is no rule"),
        ("#FB stage_out source=/pfs match=* destination=/a", "does not begin with $DW_JOB_STRIPED"),
        ("#FB stage_out source=$DW_PERSISTENT_STRIPED_x match=* destination=/a", "persistentdw name=x"),
        ("#BB create_persistent name=x capacity=1.5GiB", "is no size"),
        ("#DW create_persistent name=x capacity=1GiB", "must be a #BB line"),
        ("#BB destroy_persistent name=x slowly", "no key=value"),
        ("#DW stage_in source=/a destination=$DW_PERSISTENT_STRIPED_x/a", "persistentdw name=x"),
        ("#FB stage_out stream=x/flow destination=/a", "persistentdw name=x"),
        ("#DW stage_in source=/a destination=$DW_JOB_PRIVATE/a", "copy to and from it in the script"),
        ("#DW stage_in source=$HOME/a destination=$DW_JOB_STRIPED/a", "$HOME is not replaced in directives"),
        ("#DW stage_in source=/a destination=$DW_JOB_STRIPED/$USER/a", "$USER is not replaced in directives; write %u"),
        (
            "#DW stage_out source=$DW_JOB_STRIPED/a destination=/pfs/$USER/a",
            "$USER is not replaced in directives; write %u",
        ),
        ("#DW stage_out source=$DW_JOB_STRIPED/a destination=/p/${SLURM_JOB_ID}", "write %j"),
        ("#FB stage_out stream=flow destination=/pfs/$USER", "$USER is not replaced in directives; write %u"),
        ("#DW jobdw capacity=1GiB " + "x" * 5000, "longer than"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(line: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        parse_directives(script(line))
    assert reason in str(refusal.value)


JOBDW = "#DW jobdw capacity=1GiB"
OUT = "#DW stage_out source=$DW_JOB_STRIPED/"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (JOBDW + " pool=fast", JOBDW + " pool=large", "all that a job has lies in one pool"),
        (OUT + "a destination=/pfs/x", OUT + "b destination=/pfs/x", "stages a and b out to one file, /pfs/x"),
        (OUT + "a destination=/pfs/x/", OUT + "q/a destination=/pfs/x", ""),
        (OUT + "a destination=/pfs/x/", OUT + "q/a destination=/pfs/x/", "stages a and q/a out to one file"),
        (OUT + "a destination=/pfs/x/", OUT + "b destination=/pfs/x/", ""),
        (OUT + "a destination=/pfs/x", OUT + "a destination=/pfs/x", ""),
        (
            "#DW stage_in source=/pfs/a destination=$DW_JOB_STRIPED/x",
            "#DW stage_in source=/pfs/b destination=$DW_JOB_STRIPED/x",
            "stages /pfs/a and /pfs/b in to one file",
        ),
        ("#FB stage_out stream=a destination=/x", "#FB stage_out stream=b destination=/x/", "of its own"),
        ("#FB stage_out stream=a destination=/x", "#FB stage_out stream=b destination=/y", ""),
    ],
)
def test_two_lines_do_not_share_what_only_one_can_have(first: str, second: str, reason: str) -> None:
    text = script(JOBDW, first, second)
    if not reason:
        assert not find_mistakes(text)
        return
    with pytest.raises(InvalidArgumentError, match=reason):
        parse_directives(text)


def test_a_slash_at_the_end_of_a_files_destination_names_a_folder() -> None:
    found = parse_directives(
        script(
            JOBDW,
            OUT + "a destination=/pfs/out/",
            OUT + "d type=directory destination=/pfs/tree/",
            "#DW stage_in source=/pfs/b destination=$DW_JOB_STRIPED/in/",
            "#DW stage_in source=/pfs/c destination=$DW_JOB_STRIPED/",
        )
    )
    assert [stage.outside for stage in found.files if not stage.inward] == ["/pfs/out/", "/pfs/tree"]
    assert [stage.inside for stage in found.files if stage.inward] == ["in/", ""]


@pytest.mark.parametrize("kind", ["#DW stage_out source=$DW_JOB_STRIPED/a", "#FB stage_out stream=flow"])
@pytest.mark.parametrize("path", ["/pfs/%q/x", "/pfs/100%", "/pfs/%%%", "/pfs/%J"])
def test_a_symbol_that_nobody_replaces_is_refused_at_submission_alone(kind: str, path: str) -> None:
    text = script(JOBDW, f"{kind} destination={path}")
    with pytest.raises(InvalidArgumentError, match="is no symbol: write %% for a percent sign"):
        parse_directives(text, as_submitted=True)
    assert len(find_mistakes(text)) == 1
    parse_directives(text)  # what Slurm has made of the line may have a percent sign
    for right in ("/pfs/100%%", "/pfs/%A_%a/%j-%u%%%x", "%d/x"):
        parse_directives(script(JOBDW, f"{kind} destination={right}"), as_submitted=True)


@pytest.mark.parametrize(
    ("lines", "is_right"),
    [((), False), (("a",), True), (("a", "b"), False)],
    ids=["of no reservation", "of the only one", "of one of two"],
)
def test_a_stream_without_a_reservations_name_lies_in_one(lines: tuple[str, ...], is_right: bool) -> None:
    text = script(*(f"#DW persistentdw name={name}" for name in lines), "#FB stage_out stream=flow destination=/a")
    if is_right:
        assert parse_directives(text).persistents == lines
        return
    with pytest.raises(InvalidArgumentError, match=r"no `#DW jobdw capacity=…` line.*RESERVATION/flow"):
        parse_directives(text)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("7", 7), ("1K", 1024), ("10GiB", 10 * GIB), ("2GB", 2_000_000_000), ("1T", 1 << 40)]
)
def test_sizes_are_those_of_slurm(text: str, size: int) -> None:
    assert parse_slurm_size(text) == size


@given(st.binary(max_size=400))
def test_any_bytes_are_directives_or_refused(content: bytes) -> None:
    for text in (content, b"#!/bin/sh\n#DW " + content, b"#FB stage_out " + content):
        try:
            parse_directives(text)
        except InvalidArgumentError:
            continue


def test_persistent_reservations_are_made_used_and_destroyed() -> None:
    found = parse_directives(
        script(
            "#BB create_persistent name=new capacity=1GiB access=striped",
            "#BB destroy_persistent name=old hurry",
            "#DW persistentdw name=used",
            "#DW jobdw capacity=1GiB access_mode=private",
            "#DW stage_in type=directory source=/pfs/in destination=$DW_PERSISTENT_STRIPED_used/",
            "#EXCLUDED DW swap 2GiB",
        )
    )
    assert found.creates == (CreatePersistent("new", GIB),)
    assert (found.destroys, found.persistents, found.private) == (("old",), ("used",), True)
    assert found.files == (FileStage("", "/pfs/in", inward=True, kind="directory", persistent="used"),)
    assert Directives.from_json(found.as_json()) == found


def test_a_list_names_both_sides_of_each_file() -> None:
    (stage,) = parse_directives(script("#DW jobdw capacity=1GiB", "#DW stage_in type=list source=/pfs/list")).files
    assert parse_list(stage, b"/pfs/a $DW_JOB_STRIPED/x/a\n\n/pfs/b  ${DW_JOB_STRIPED}/b\n") == [
        FileStage("x/a", "/pfs/a", inward=True, kind="file"),
        FileStage("b", "/pfs/b", inward=True, kind="file"),
    ]
    with pytest.raises(InvalidArgumentError, match="stages /pfs/a and /pfs/b in to one file, a"):
        parse_list(stage, b"/pfs/a $DW_JOB_STRIPED/a\n/pfs/b $DW_JOB_STRIPED/a\n")
    with pytest.raises(InvalidArgumentError, match="line 2 of the list: it must have two paths"):
        parse_list(stage, b"/pfs/a $DW_JOB_STRIPED/a\n/pfs/b\n")


def test_all_mistakes_of_a_script_are_found() -> None:
    found = find_mistakes(script("#DW jobdw capacity=1.5GiB", "#DW swap 2GiB", "#BB colour name=x"))
    assert [str(mistake).split(" of")[0] for mistake in found] == ["line 2", "line 3", "line 4"]


def test_symbols_are_those_of_slurm() -> None:
    fields = {"ArrayJobId": "7", "ArrayTaskId": "3", "WorkDir": "/w", "JobName": "n"}
    assert expand_symbols("/a/%A_%a/%j-%u%%%x%d", "9", "me", fields) == "/a/7_3/9-me%n/w"
    with pytest.raises(InvalidArgumentError, match="%q in /a/%q: it is not known"):
        expand_symbols("/a/%q", "9", "me", fields)
    with pytest.raises(InvalidArgumentError, match="Slurm does not say"):
        expand_symbols("/a/%x", "9", "me", {})


@pytest.mark.parametrize(
    "option", ["pfs=/pfs", "modified_threshold=1", "read_ahead=8", "sync_on_close=yes", "sync_to_pfs=no"]
)
def test_an_option_of_the_cache_is_refused_as_what_it_is(option: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"{option.partition('=')[0]}= belongs to type=cache, the transparent"
    ):
        parse_directives(script(f"#DW jobdw capacity=1GiB type=scratch {option}"))


def test_options_about_datawarps_servers_change_nothing() -> None:
    options = "optimization_strategy=interference max_mds=yes write_window_length=86400 write_window_multiplier=10"
    found = parse_directives(script(f"#DW jobdw capacity=1GiB access_mode=striped type=scratch {options}"))
    assert found == parse_directives(script("#DW jobdw capacity=1GiB access_mode=striped type=scratch"))


LATE = b"""#!/bin/bash
#DW jobdw capacity=1GiB \\
   type=scratch

module load x
#DW stage_out source=$DW_JOB_STRIPED/a destination=/pfs/a
cat > next.sh <<'END'
#DW jobdw capacity=2GiB
END
 #DW persistentdw name=x
#DWARF
"""


def test_directives_behind_the_first_command_are_told() -> None:
    found = parse_directives(LATE)
    assert (found.capacity_bytes, found.files, found.ignored) == (GIB, (), (6, 10))
    assert found.note.startswith("lines 6, 10 of the script are ignored by Slurm")
    assert Directives.from_json(found.as_json()) == found
    mistakes = [str(mistake) for mistake in find_mistakes(LATE)]
    assert [mistake.split(" of")[0] for mistake in mistakes] == ["line 6", "line 10"]
    assert "move such lines above it" in mistakes[0]
    (blank,) = find_mistakes(b"#!/bin/sh\n #DW jobdw capacity=1GiB\ntrue\n")
    assert "line 2 of the script: ignored by Slurm" in str(blank)


def test_a_script_of_nothing_but_directives_is_refused_at_the_limit_that_the_error_names() -> None:
    """Each line costs the same; 1.5 MB of them kept the manager busy for 19 seconds."""
    line = b"#DW stage_in type=file source=/pfs/a destination=$DW_JOB_STRIPED/a\n"
    most = b"#DW jobdw capacity=1GiB\n" + line * 999
    assert len(parse_directives(most).files) == 999
    with pytest.raises(InvalidArgumentError, match="line 1001 of the script: more than 1000 directives"):
        parse_directives(most + line * 30_000)
    assert len([*_until_refused(most + line * 30_000)]) == 1000
    assert "more than 1000 directives" in find_mistakes(most + line * 2)[0].what


def _until_refused(script: bytes) -> Iterator[object]:
    with contextlib.suppress(InvalidArgumentError):
        yield from directive_lines(script)


@pytest.mark.parametrize("begin", [b"#DWx\\\n", b"#DW jobdw \\\n", b"#BBB\\\n"])
def test_a_line_that_is_continued_for_ever_is_refused(begin: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="line 1 of the script is longer than 4096 characters"):
        [*directive_lines(begin + b"x\\\n" * 100_000)]


@pytest.mark.parametrize(
    "line",
    [
        "#dw jobdw capacity=1GiB",
        "# DW stage_out type=file",
        "#Fb stage_out stream=flow",
        "#bb create_persistent name=x",
    ],
)
def test_what_slurm_takes_for_a_comment_is_no_directive_and_is_told(line: str) -> None:
    (mistake,) = find_mistakes(f"#!/bin/sh\n{line}\ntrue\n".encode())
    assert "line 2 of the script: a comment to Slurm" in str(mistake)


@pytest.mark.parametrize(
    "line", ["##DW jobdw capacity=1GiB", "# The #DW lines below", "# dw is fast", "# DW: jobdw follows", "#DWELL"]
)
def test_other_comments_are_left_alone(line: str) -> None:
    directive = "#DW jobdw type=scratch access_mode=striped capacity=1GiB"
    assert find_mistakes(f"#!/bin/sh\n{line}\n{directive}\n".encode()) == []


def test_of_lines_that_slurm_ignores_a_thousand_are_told() -> None:
    script = b"#!/bin/sh\ntrue\n" + b"#DW jobdw capacity=1GiB\n" * 5000
    assert parse_directives(script).ignored == tuple(range(3, 1003))
    assert len(find_mistakes(script)) == 1000


def test_a_script_is_parsed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed_in: list[int] = []

    def parse(_script: bytes, *, as_submitted: bool) -> Directives:
        parsed_in.append(threading.get_ident())
        return Directives()

    monkeypatch.setattr(calls, "parse_directives", parse)
    assert asyncio.run(calls._parsed(calls._Call({}, frozenset(), b""))) == Directives()
    assert parsed_in != [threading.get_ident()]


@pytest.mark.parametrize(
    ("where", "seconds", "refusal"), [(">&2", 0.5, "cannot be read within"), ("", 30.0, "larger than 1 MiB")]
)
def test_a_list_that_has_no_end_costs_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, seconds: float, refusal: str
) -> None:
    """Its user writes into the pipes of the process that reads it."""
    (tmp_path / "head").write_text(f"#!/bin/sh\nexec cat /dev/zero {where}\n")
    (tmp_path / "head").chmod(0o755)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr(users, "_READ_SECONDS_MAX", seconds)
    monkeypatch.setattr("os.defpath", f"{tmp_path}:{os.defpath}")
    with pytest.raises(InvalidArgumentError, match=refusal):
        asyncio.run(users.read_as_user("/list", os.geteuid(), os.getegid()))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10
