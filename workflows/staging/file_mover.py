# SPDX-License-Identifier: Apache-2.0
"""Starts `forebay-mover`, the native program that copies files and trees, and listens to it.

Its request, its answers and its rules: docs/design/file-mover.md.
"""

from __future__ import annotations

import importlib.resources
import json
import os
import secrets
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from forebay.errors import StorageError, UnsupportedError, error_of_code

__all__ = ["MoverListener", "move", "mover_binary", "stage_secret", "tree_of_stage"]

_VARIABLE = "FOREBAY_STAGE_SECRET"
_SECRET_BYTES = 32
_END_SECONDS = 10.0
_DRAINED_BYTES = 65536

Json = dict[str, Any]


class MoverListener(Protocol):
    """What happens while the mover works."""

    def planned(self, items: int, size_bytes: int, missing_bytes: int) -> None:
        """It knows what there is to do, and begins when this returns. What this raises ends it."""

    def came_further(self, items_done: int, items_kept: int, bytes_done: int, item: str) -> None:
        """At most ten times a second. What this raises ends it."""

    def built(self) -> None:
        """Entries are whole, and get their names when this returns. What this raises ends it."""

    def verified(self, rows: list[Json]) -> None:
        """Rows of the receipt: `path`, `size_bytes`, `mtime_ns`, `crc32c`."""

    def noted(self, text: str) -> None:
        """Something for the user that is no failure."""


def mover_binary() -> Path:
    """The program: ``$FOREBAY_MOVER_BINARY``, else the one inside the installed package.

    Raises
    ------
    UnsupportedError
        There is none, or it may not be executed.
    """
    named = os.environ.get("FOREBAY_MOVER_BINARY")
    binary = Path(named) if named else Path(str(importlib.resources.files("forebay"))) / "bin" / "forebay-mover"
    if not binary.is_file() or not os.access(binary, os.X_OK):
        raise UnsupportedError(
            f"there is no program forebay-mover at {binary}; install forebay again, or build it with ./run build"
        )
    return binary


def stage_secret() -> str:
    """What the manager gave this stage, 64 hexadecimal digits; without a manager one that no later run has."""
    given = os.environ.get(_VARIABLE, "")
    return given if len(given) == 2 * _SECRET_BYTES else secrets.token_hex(_SECRET_BYTES)


def tree_of_stage() -> str:
    """Where the manager has mounted the reservation's files, if they lie on another server; "" else."""
    return os.environ.get("FOREBAY_STAGE_TREE", "")


def move(request: Mapping[str, str], listener: MoverListener) -> Json:
    """Does one stage of files; its ``done`` event.

    Raises
    ------
    ForebayError
        As the mover says. StorageError if it died.
    """
    fields = {"secret": stage_secret(), **request}
    text = b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in fields.items()) + b"\0"
    # In this process's group, so that whoever kills that kills it as well.
    with subprocess.Popen([mover_binary()], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            return _listen(process, text, listener)
        except BaseException:
            _end(process)
            raise


def _listen(process: subprocess.Popen[bytes], request: bytes, listener: MoverListener) -> Json:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request)
    process.stdin.flush()
    for line in process.stdout:
        event: Json = json.loads(line)
        match event.pop("event"):
            case "plan":
                listener.planned(event["items"], event["bytes"], event["missing_bytes"])
                process.stdin.write(b"g")
                process.stdin.flush()
            case "built":
                listener.built()
                process.stdin.write(b"g")
                process.stdin.flush()
            case "progress":
                listener.came_further(event["items_done"], event["items_kept"], event["bytes_done"], event["item"])
            case "files":
                listener.verified(event["files"])
            case "note":
                listener.noted(event["text"])
            case "done":
                return event
            case "failed":
                raise error_of_code(event["code"], event["what"], event["where"])
    status = process.wait()
    raise StorageError(
        f"forebay-mover died of signal {-status}; run the same command again"
        if status < 0
        else f"forebay-mover ended with status {status} and said nothing; run the same command again"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tells it to stop, which removes what is half done; then kills it."""
    if process.poll() is not None:
        return
    assert process.stdout is not None
    process.terminate()
    late = threading.Timer(_END_SECONDS, process.kill)
    late.start()
    try:
        # What it still says is of no interest, but it must not wait for a reader. Its input stays open: when that
        # ends, it ends without removing anything.
        while process.stdout.read(_DRAINED_BYTES):
            pass
    finally:
        late.cancel()
