# SPDX-License-Identifier: Apache-2.0
"""What others have named does not steer the terminal of whoever lists it."""

from __future__ import annotations

import json
import logging

import pytest
from rich.text import Text

from forebay.cli.failures import fail_with
from forebay.cli.output import console, error_console, print_fields, print_json, print_line, print_table
from forebay.errors import NotFoundError
from forebay.visible_text import visible, visible_json
from forebay.workflows.manager.__main__ import _LogFormatter

EVIL = "a\x1b[2J\x1b]0;root\x07\r\x9b31m\u202egnp.exe\u2066\u200f\u2028\x7f\udcff\ud800"
HIDDEN = "\x1b\x07\r\x9b\u202e\u2066\u200f\u2028\x7f\udcff\ud800"
SHOWN = r"a\x1b[2J\x1b]0;root\x07\x0d\x9b31m\u202egnp.exe\u2066\u200f\u2028\x7f\xff\ud800"


def test_hidden_characters_are_escaped_and_others_stay() -> None:
    assert visible(EVIL) == SHOWN
    assert visible("nëme with spaces, 日本語 \\ and 🙂") == "nëme with spaces, 日本語 \\ and 🙂"
    assert visible("one\ntwo\t", keep="\n") == "one\ntwo\\x09"
    # Programs read what it was.
    text = visible_json({EVIL: [EVIL, "日本"]}, indent=1)
    assert json.loads(text) == {EVIL: [EVIL, "日本"]}
    assert "日本" in text
    assert not set(HIDDEN) & set(text)


def test_every_way_to_print_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", ">SIZE"), [(EVIL, EVIL)], empty="")
    print_table(("NAME",), [], empty=EVIL)
    print_fields([(EVIL, EVIL)])
    print_line(EVIL)
    print_json({EVIL: EVIL})
    console().print(Text(EVIL), soft_wrap=True)
    console().print(EVIL, markup=False, soft_wrap=True)
    console().print(Text.assemble(("severity", "bold"), EVIL))
    error_console().print(Text(EVIL))
    fail_with(NotFoundError(EVIL, EVIL), as_json=False)
    fail_with(NotFoundError(EVIL, EVIL), as_json=True)
    fail_with(ValueError(EVIL), as_json=False)
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert r"\u202egnp" in text
        assert not set(HIDDEN) & set(text)
    assert told.out.count(r"\u202egnp") == 13
    assert told.err.count(r"\u202egnp") == 4


def test_the_managers_log_shows_what_users_chose_escaped() -> None:
    record = logging.LogRecord("forebay", logging.INFO, __file__, 1, "stage wrote: %s\nnext", (EVIL,), None)
    assert _LogFormatter("%(message)s").format(record) == f"stage wrote: {SHOWN}\nnext"
