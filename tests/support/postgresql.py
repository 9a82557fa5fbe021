# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL for tests: started on a socket in a folder of its own, as a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["PostgreSQL", "programs"]

_SECONDS_MAX = "120"


def programs() -> Path | None:
    """Where Debian and Ubuntu keep initdb and pg_ctl; None if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class PostgreSQL:
    """A context manager: runs until its end, and leaves nothing."""

    def __init__(self) -> None:
        folder = programs()
        assert folder is not None
        self._programs = folder
        # PostgreSQL refuses to run as root; a socket's path has to be short.
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self._folder = Path(tempfile.mkdtemp(prefix="postgresql-"))

    @property
    def url(self) -> str:
        """Of the database that every server has."""
        return f"postgresql+psycopg://{self._user}@/postgres?host={self._folder}"

    def start(self) -> None:
        """Begins to serve."""
        # Nothing is read through the network, and the machine of a test does not lose power.
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}' -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "start", "-w", "-t", _SECONDS_MAX, "-D", str(self._data), "-l", log, "-o", options)

    def admit(self, hba: str, ident: str) -> None:
        """Lets in by these lines of pg_hba.conf, and nobody else, with these of pg_ident.conf."""
        (self._data / "pg_hba.conf").write_text(hba)
        (self._data / "pg_ident.conf").write_text(ident)
        self._run("pg_ctl", "reload", "-D", str(self._data))

    def stop(self) -> None:
        """Ends at once, whoever is connected."""
        self._run("pg_ctl", "stop", "-w", "-t", _SECONDS_MAX, "-m", "immediate", "-D", str(self._data))

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam(self._user)
            as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        # The server that pg_ctl starts keeps its output open.
        with (self._folder.parent / f"{self._folder.name}.out").open("w+") as output:
            done = subprocess.run(
                [str(self._programs / program), *arguments],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                **as_user,
            )
            output.seek(0)
            assert done.returncode == 0, f"{program}: {output.read()}"

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "--auth=trust", "--encoding=UTF8", "--no-sync", "-D", str(self._data))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder)
        (self._folder.parent / f"{self._folder.name}.out").unlink()
