# SPDX-License-Identifier: Apache-2.0
"""`forebay-mover` with a library in it that sees its changes to files, and can end it at one or let that fail."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.file_changes import Accident, library, logged_changes
from tests.support.watched_stager import Run

__all__ = ["SECRET", "WatchedMover", "mover_program", "run_mover"]

SECRET = "5e" * 32


def mover_program() -> Path:
    """The one of the build that ``$FOREBAY_BUILD_DIR`` names."""
    build = Path(os.environ.get("FOREBAY_BUILD_DIR") or "build/dev").resolve()
    return build / "core" / "mover" / "forebay-mover"


def run_mover(
    request: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    told: Callable[[dict[str, Any], subprocess.Popen[bytes]], bool] | None = None,
) -> tuple[int, list[dict[str, Any]]]:
    """Its exit status and its events; `told` gets each event as it comes, and says whether it has answered it."""
    fields = {"secret": SECRET, "name": "res", **request}
    text = b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in fields.items()) + b"\0"
    events = []
    with subprocess.Popen(
        [mover_program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text)
        process.stdin.flush()
        for line in process.stdout:
            event = json.loads(line)
            events.append(event)
            answered = told is not None and told(event, process)
            if event["event"] in ("plan", "built") and not answered:
                process.stdin.write(b"g")
                process.stdin.flush()
        status = process.wait()
    return status, events


class WatchedMover:
    """Runs one request again and again."""

    def __init__(self, request: Mapping[str, str], scratch: Path) -> None:
        self._request = request
        self._log = scratch / "mover-changes"

    def run(self, folder: Path, accident: Accident | None = None) -> Run:
        """Does it, with that accident if any; changes in the folder are seen."""
        lines = [
            str(folder.resolve(strict=True)),
            str(self._log),
            f"{accident.change.kind} {accident.change.path}" if accident else "",
            str(accident.change.occurrence if accident else 0),
            str(int(accident.moment) if accident else 0),
        ]
        environment = {"LD_PRELOAD": str(library()), "FOREBAY_WATCH_CHANGES": "\n".join(lines)}
        status, events = run_mover(self._request, environment)
        return Run(status, logged_changes(self._log), "\n".join(json.dumps(event) for event in events))
