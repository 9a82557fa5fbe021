# SPDX-License-Identifier: Apache-2.0
"""What a test hears of the processes that it talks to."""

from __future__ import annotations

from tests.support.processes import PythonProcess


def test_the_rest_begins_behind_the_last_line_that_was_read() -> None:
    with PythonProcess("import os; os.write(1, b'first\\nsecond\\n')") as process:
        assert process.line() == "first"
        assert process.finish() == (0, "second\n", "")
