# SPDX-License-Identifier: Apache-2.0
"""`forebay follow` as a user runs it."""

from __future__ import annotations

import subprocess
import sys

from tests.support.time_limits import seconds

__all__ = ["NOTE", "follow", "start"]

#: A command that appends its second argument, as a line, to the file that its first one names.
NOTE = ("--exec", sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + chr(10))")


def start(*arguments: str) -> subprocess.Popen[str]:
    """Starts ``forebay follow ARGUMENTS``, with pipes for what it prints."""
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", "follow", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def follow(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error, without the line that says that an ended run is read."""
    process = start(*arguments)
    output, errors = process.communicate(timeout=seconds(100))
    lines = errors.splitlines(keepends=True)
    return process.returncode, output, "".join(line for line in lines if "its writer has gone" not in line)
