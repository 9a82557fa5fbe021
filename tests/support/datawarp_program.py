# SPDX-License-Identifier: Apache-2.0
"""A C program that calls libdatawarp, compiled by the test that uses it, as a user of the machine."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.support.instance import CommandLineInstance
from tests.support.time_limits import seconds

__all__ = ["ACTIVATE", "AT_JOB_END", "IMMEDIATE", "REVOKE", "DatawarpProgram", "datawarp_library"]

IMMEDIATE, AT_JOB_END, REVOKE, ACTIVATE = "1", "2", "3", "4"

_SECONDS_MAX = seconds(60)
_SOURCES = Path(__file__).parents[2]


def datawarp_library() -> Path:
    """The folder with the library, of the build that ``$FOREBAY_BUILD_DIR`` names."""
    return Path(os.environ.get("FOREBAY_BUILD_DIR") or "build/dev").resolve() / "lib"


class DatawarpProgram:
    """The program, in a folder of its own that all users may enter."""

    def __init__(self, folder: Path, instance: CommandLineInstance, uid: int, gid: int) -> None:
        self._instance = instance
        self._uid, self._gid = uid, gid
        # Not with the folder's own name: what pytest keeps is closed to others.
        self.path = Path(tempfile.mkdtemp(prefix="datawarp-", dir=folder)) / "datawarp_calls"
        self.path.parent.chmod(0o755)
        library = datawarp_library()
        source = _SOURCES / "tests/support/datawarp_calls.c"
        flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{_SOURCES}/workflows/datawarp"]
        ends = [
            "-o",
            str(self.path),
            str(source),
            f"-L{library}",
            "-ldatawarp",
            f"-Wl,-rpath,{library}",
            "-pthread",
        ]
        subprocess.run(["cc", *flags, *ends], check=True, timeout=_SECONDS_MAX)

    def start(self, *arguments: str | Path, uid: int | None = None, **variables: str) -> subprocess.Popen[str]:
        """Begins a call."""
        owner: dict[str, Any] = {}
        if os.geteuid() == 0:
            number = self._uid if uid is None else uid
            owner = {"user": number, "group": self._gid if uid is None else uid, "extra_groups": []}
        environment = {"FOREBAY_ROOT": str(self._instance.root), **variables}
        return subprocess.Popen(
            [self.path, *map(str, arguments)],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            **owner,
        )

    def say(self, *arguments: str | Path, uid: int | None = None, **variables: str) -> str:
        """What a call prints, the last word of which is its result."""
        with self.start(*arguments, uid=uid, **variables) as process:
            try:
                said, _ = process.communicate(timeout=_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, process.returncode
        return said.strip()

    def call(self, *arguments: str | Path, uid: int | None = None, **variables: str) -> None:
        """A call that must succeed."""
        said = self.say(*arguments, uid=uid, **variables)
        assert said.split()[-1] == "0", said

    def error(self, *arguments: str | Path, uid: int | None = None, **variables: str) -> str:
        """The name of the error that a call returns."""
        number = int(self.say(*arguments, uid=uid, **variables).split()[-1])
        assert number < 0, number
        return errno.errorcode[-number]

    def counts(self, kind: str, path: str | Path) -> tuple[int, ...]:
        """Complete, pending, deferred, failed."""
        said = self.say(f"query_{kind}", path).split()
        assert said[-1] == "0", said
        return tuple(map(int, said[:-1]))
