# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay.workflows.files.juicefs.keeper CONFIGURATION``: keeps room in the parts.

juicefs keeps blocks that were overwritten until it compacts, and knows nothing of blocks that a killed client has sent
and no file has. So at a low mark, and after a fence, `juicefs gc` runs until it removes nothing more.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import ForebayError
from forebay.workflows.files.juicefs.block_client import free_bytes_at
from forebay.workflows.files.juicefs.engine_commands import LoopbackNet, gc_command, run_engine

__all__ = ["WANTED_NAME", "Keeper", "gave_something_up"]

#: A file beside the configuration with this name asks for a run.
WANTED_NAME = "keeper.wanted"
#: A block may be that long on its way before its write is in Redis: juicefs tries ten times, a minute each.
_ON_ITS_WAY_SECONDS_MAX = 1200
#: 'Compacted 1 chunks', 'Deleted 8 pending slices', '2 pending delete', '1 leaked', '1 delslices', '1 delfiles'.
_COUNTS = re.compile(r"(?:Compacted|Deleted) ([0-9]+) |\b([0-9]+) (?:pending delete|leaked|delslices|delfiles) \(")
_PAUSE_SECONDS = 1.0
_ANSWER_SECONDS_MAX = 10.0
_RUN_SECONDS_MAX = 600.0
_RUNS_MAX = 20
#: After runs that found nothing, though there is little room: files take it.
_PAUSE_SECONDS_MAX = 15.0


@dataclass(frozen=True, slots=True)
class Keeper:
    """Of one reservation, at its home."""

    program: Path
    net: LoopbackNet
    parts: int
    user: str
    password: str
    blocks_password: str
    low_bytes: int
    wanted: Path

    def is_low(self) -> bool:
        """A part has little room; one that does not answer does not count."""
        deadline = time.monotonic() + _ANSWER_SECONDS_MAX
        free = [self._free(part, deadline) for part in range(self.parts)]
        return any(room is not None and room < self.low_bytes for room in free)

    def collect(self) -> bool:
        """Runs `gc` until it gives nothing back; whether the first run did."""
        for run in range(_RUNS_MAX):
            before = self._free_of_all()
            said = run_engine(
                gc_command(self.program, self.net, self.user),
                {"META_PASSWORD": self.password, "JFS_GC_SKIPPEDTIME": str(_ON_ITS_WAY_SECONDS_MAX)},
                time.monotonic() + _RUN_SECONDS_MAX,
            )
            if not gave_something_up(said) and self._free_of_all() <= before:
                return run > 0
        return True

    def _free_of_all(self) -> int:
        deadline = time.monotonic() + _ANSWER_SECONDS_MAX
        return sum(self._free(part, deadline) or 0 for part in range(self.parts))

    def _free(self, part: int, deadline: float) -> int | None:
        return free_bytes_at((self.net.part(part), self.net.port), self.blocks_password, deadline)


def gave_something_up(said: str) -> bool:
    """By the words of `juicefs gc`: it has compacted or removed something, or leaves it for the next run."""
    return any(int(first or second) for first, second in _COUNTS.findall(said))


def main() -> int:
    """Runs until it is killed."""
    os.umask(0o077)
    configuration = Path(sys.argv[1])
    settings = json.loads(configuration.read_text(encoding="utf-8"))
    keeper = Keeper(
        Path(settings["program"]),
        LoopbackNet(settings["net"], settings["port"]),
        settings["parts"],
        settings["user"],
        settings["password"],
        settings["blocks_password"],
        settings["low_bytes"],
        configuration.with_name(WANTED_NAME),
    )
    again = float("-inf")
    pause = _PAUSE_SECONDS
    while True:
        time.sleep(_PAUSE_SECONDS)
        now = time.monotonic()
        try:
            asked = keeper.wanted.exists()
            if asked or (now >= again and keeper.is_low()):
                keeper.wanted.unlink(missing_ok=True)
                pause = _PAUSE_SECONDS if keeper.collect() else min(2 * pause, _PAUSE_SECONDS_MAX)
                again = time.monotonic() + pause
        except ForebayError as error:
            print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
