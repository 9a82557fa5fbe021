# SPDX-License-Identifier: Apache-2.0
"""Checks what the demo has shown, against the run that nobody disturbed. Each check says what it has seen."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cast import STREAM, Cast
from course import Course, Pause
from numpy.typing import NDArray
from permeability import History, Row, measure
from PIL import Image
from plan import Plan
from recorded import RecordedStep, recorded_steps
from simulated import simulated_steps

from forebay import crc32c
from forebay.viz.movie import find_ffmpeg

#: The consumer sums the same numbers, but may do so in another order.
_ROUNDING = 1e-12
#: Side of the pictures in which movie and frames are compared, and how far they may differ, of 255.
_THUMBNAIL = (96, 72)
_MOVIE_DEVIATION_MAX = 4.0
_CONTRAST_MIN = 8.0
_OTHER_RANK_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class Check:
    """One claim, whether it holds, and what was seen."""

    claim: str
    holds: bool
    seen: str


class _RefutedError(Exception):
    """A claim does not hold; the text says what was seen instead."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _RefutedError(otherwise)


@dataclass(frozen=True)
class Undisturbed:
    """The undisturbed run: what the consumers should have seen of it. Checkpoints stay in their file."""

    rows: list[Row]
    velocity_crc32c: list[int]
    output: Path

    @classmethod
    def read(cls, output: Path) -> Undisturbed:
        rows, checksums = [], []
        for step in recorded_steps(output):
            rows.append(measure(step))
            checksums.append(crc32c(np.ascontiguousarray(step["velocity"]).data))
        return cls(rows, checksums, output)


class Verification:
    """The checks over one finished show."""

    def __init__(self, plan: Plan, cast: Cast, course: Course) -> None:
        self._plan, self._cast, self._course = plan, cast, course
        self._undisturbed = Undisturbed.read(cast.undisturbed_output)

    def run(self) -> Iterator[Check]:
        """Each check, as it is done."""
        checks: list[tuple[str, Callable[[], str]]] = [
            ("the undisturbed run has all steps", self._check_undisturbed),
            ("every step has its picture", self._check_frames),
            ("the movie shows each picture once, in order", self._check_movie),
            ("the permeability has settled", self._check_settled),
            ("the permeability is that of the undisturbed run", self._check_permeability),
            ("the simulation's figures are those of the undisturbed run to the last bit", self._check_simulation),
            (
                "plain ADIOS2 reads the checkpoints, equal to the undisturbed run to the last bit",
                self._check_checkpoints,
            ),
            ("the receipt describes what lies there", self._check_receipt),
            ("retention has dropped what all had passed", self._check_retention),
        ]
        if self._course.away is not None:
            checks.append(
                ("the simulation went on while a server was away", partial(self._check_gap, self._course.away))
            )
        elif self._course.cut is not None:
            went_on = "the simulation went on while the renderer's node was cut off"
            checks.append((went_on, partial(self._check_gap, self._course.cut)))
        else:
            checks += [
                (
                    "the other rank failed at once, followers were told, steps were withdrawn",
                    self._check_rank_kill,
                ),
                ("the late consumer replayed what was kept, equal to the undisturbed run", self._check_latecomer),
                ("the server came back, and all went on", self._check_server_kill),
            ]
        for claim, check in checks:
            try:
                yield Check(claim, True, check())
            except _RefutedError as error:
                yield Check(claim, False, str(error))
            except (OSError, ValueError, KeyError, RuntimeError) as error:
                yield Check(claim, False, f"{type(error).__name__}: {error}")

    def _check_undisturbed(self) -> str:
        numbers = [row.step for row in self._undisturbed.rows]
        _require(numbers == list(range(self._plan.steps)), f"it has {numbers}")
        return f"{len(numbers)} steps"

    def _frames(self) -> list[Path]:
        return [self._cast.out / "frames" / f"{step:06d}.png" for step in range(self._plan.steps)]

    def _check_frames(self) -> str:
        present = sorted((self._cast.out / "frames").iterdir())
        missing = set(self._frames()).symmetric_difference(present)
        _require(not missing, f"missing or too many: {sorted(path.name for path in missing)}")
        width, height = map(int, self._plan.grid.frame_size.split("x"))
        for path in present:
            with Image.open(path) as image:
                _require(image.size == (width, height), f"{path.name} is {image.size}")
                contrast = float(np.asarray(image.convert("L")).std())
            _require(contrast > _CONTRAST_MIN, f"{path.name} shows nothing (contrast {contrast:.1f})")
        kill = self._course.rank_kill
        if kill is None:
            return f"{len(present)} of {width}x{height}"
        older = [path.name for path in present[kill.checkpoint + 1 :] if path.stat().st_mtime < kill.killed_at]
        _require(not older, f"pictures of withdrawn steps were not made again: {older}")
        return f"{len(present)} of {width}x{height}"

    def _check_movie(self) -> str:
        width, height = _THUMBNAIL
        decoded = subprocess.run(
            [
                find_ffmpeg(), "-v", "error", "-i", str(self._cast.out / "movie.mp4"), "-fps_mode", "passthrough",
                "-vf", f"scale={width}:{height}:flags=area", "-f", "rawvideo", "-pix_fmt", "gray", "-",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )  # fmt: skip
        _require(decoded.returncode == 0, f"it does not decode: {decoded.stderr.decode(errors='replace')}")
        frames = np.frombuffer(decoded.stdout, np.uint8).reshape(-1, height, width)
        _require(len(frames) == self._plan.steps, f"it decodes to {len(frames)} frames")
        deviations = [
            float(np.abs(frame.astype(np.int16) - _thumbnail(path)).mean())
            for frame, path in zip(frames, self._frames(), strict=True)
        ]
        worst = max(deviations)
        _require(
            worst < _MOVIE_DEVIATION_MAX, f"frame {deviations.index(worst)} differs from its picture by {worst:.1f}"
        )
        return f"{len(frames)} frames, at most {worst:.1f} of 255 from their pictures"

    def _history(self) -> History:
        _require((self._cast.out / "permeability.png").stat().st_size > 0, "the plot is empty")
        return History(self._cast.out / "permeability.json")

    def _check_settled(self) -> str:
        history = self._history()
        _require(history.settled_at is not None, f"it still moves at step {history.rows[-1].step}")
        return f"at step {history.settled_at}: {history.rows[-1].permeability:.6f} cells²"

    def _check_permeability(self) -> str:
        rows, wanted = self._history().rows, self._undisturbed.rows
        _require(
            [row.step for row in rows] == [row.step for row in wanted], f"{len(rows)} rows instead of {len(wanted)}"
        )
        if rows == wanted:
            return f"{len(rows)} rows, to the last bit"
        worst = max(_deviation(row, other) for row, other in zip(rows, wanted, strict=True))
        _require(worst <= _ROUNDING, f"they differ by {worst:.2g}")
        return f"{len(rows)} rows, within {worst:.1g}"

    def _check_simulation(self) -> str:
        assert self._cast.undisturbed is not None
        logs = [ranks[0].log for ranks in self._cast.simulations]
        wanted = {step.number: step.figures for step in simulated_steps([self._cast.undisturbed.log])}
        told = simulated_steps(logs)
        different = sorted({step.number for step in told if step.figures != wanted.get(step.number)})
        _require(not different, f"steps {different} differ")
        missing = set(wanted) - {step.number for step in told}
        _require(not missing, f"steps {sorted(missing)} were never told")
        return f"{len(wanted)} steps, {len(told) - len(wanted)} of them told twice"

    def _check_checkpoints(self) -> str:
        outputs = sorted(path.name for path in self._cast.checkpoints.glob("*.bp"))
        wanted = [f"flow.{step:06d}.bp" for step in self._plan.checkpoints]
        _require(outputs == wanted, f"there are {outputs}")
        values = 0
        for step in recorded_steps(self._undisturbed.output):
            if step.number not in self._plan.checkpoints:
                continue
            path = self._cast.checkpoints / f"flow.{step.number:06d}.bp"
            staged = list(recorded_steps(path))
            _require(len(staged) == 1, f"{path.name} has {len(staged)} steps")
            values += _compare(path.name, staged[0], step)
        return f"{len(outputs)} files, {values} values"

    def _check_receipt(self) -> str:
        final = self._course.final
        assert final is not None
        folder = self._cast.checkpoints
        entries: list[dict[str, Any]] = json.loads((folder / "receipt.json").read_text())["steps"]
        _require(
            [entry["step"] for entry in entries] == self._plan.checkpoints,
            f"it names steps {[entry['step'] for entry in entries]}",
        )
        described: set[Path] = set()
        for entry in entries:
            _require(
                entry["stream"] == STREAM and entry["uuid"] == final.uuid and entry["complete"],
                f"step {entry['step']} is of another stream or not complete",
            )
            for file in entry["files"]:
                path = folder / file["path"]
                described.add(path)
                data = path.read_bytes()
                _require(
                    len(data) == file["size_bytes"] and f"{crc32c(data):08x}" == file["crc32c"],
                    f"{file['path']} is not what it says",
                )
        present = {path for path in folder.rglob("*") if path.is_file()} - {folder / "receipt.json"}
        _require(present == described, f"not in it: {sorted(map(str, present - described))}")
        return f"{len(entries)} steps, {len(described)} files, sizes and checksums right"

    def _check_gap(self, gap: Pause) -> str:
        _require(gap.steps > 0, "no step was committed meanwhile")
        _require(len(self._cast.simulations) == 1, "the simulation was restarted for it")
        return f"from step {gap.at_step} on, for {gap.steps} steps; then every step was read"

    def _check_rank_kill(self) -> str:
        kill = self._course.rank_kill
        assert kill is not None
        _require(kill.other_rank_status > 0, f"the other rank ended with status {kill.other_rank_status}")
        _require(
            kill.other_rank_ended_s < _OTHER_RANK_SECONDS_MAX,
            f"the other rank ended after {kill.other_rank_ended_s:.1f} s",
        )
        _require(kill.withdrawn > 0, "no step was withdrawn")
        _require(
            self._course.rewound_to[:1] == [kill.checkpoint + 1], f"followers were rewound to {self._course.rewound_to}"
        )
        log = (self._cast.out / "log" / "permeability.log").read_text()
        _require("interrupted" in log, "the permeability consumer was not told")
        return f"{kill.other_rank_ended_s:.2f} s, {kill.followers_told_s:.2f} s, {kill.withdrawn} steps"

    def _check_latecomer(self) -> str:
        replay = json.loads((self._cast.work / "replay.json").read_text())
        steps = replay["steps"]
        numbers = [step["step"] for step in steps]
        _require(numbers == list(range(numbers[0], self._plan.steps)), f"it got {numbers}")
        oldest, committed = replay["oldest"], replay["committed"]
        _require(oldest is not None, "no step was kept when it joined")
        _require(oldest == numbers[0] < committed, f"it began with {numbers[0]}; {oldest} to {committed} were kept")
        wrong = [
            step["step"] for step in steps if step["velocity_crc32c"] != self._undisturbed.velocity_crc32c[step["step"]]
        ]
        _require(not wrong, f"the velocity of steps {wrong} differs")
        pause = self._course.pause
        assert pause is not None
        _require(pause.steps > 0, "the simulation stood still while rendering did")
        return f"joined at step {committed}, replayed from {oldest}; rendering stood still for {pause.steps} steps"

    def _check_server_kill(self) -> str:
        kill = self._course.server_kill
        assert kill is not None
        _require(kill.new_pid != kill.pid, "it is the same process")
        _require(len(self._cast.simulations) == 2, "the simulation was restarted for it")
        return f"the next step {kill.first_step_s:.1f} s after the kill; nobody else was restarted"

    def _check_retention(self) -> str:
        final = self._course.final
        assert final is not None
        lagging = [f"{consumer.name} -{consumer.lag_steps}" for consumer in final.consumers if consumer.lag_steps]
        _require(not lagging, f"consumers have not passed all: {lagging}")
        _require(final.staged == self._plan.checkpoints[-1], f"staged up to {final.staged}")
        _require(final.steps < self._plan.steps, f"all {final.steps} steps are still kept")
        # How many were kept at once is no matter of right or wrong: as many as the slowest had still before it.
        return f"{final.steps} steps are kept at the end, at most {self._course.kept_steps_max} were"


def _thumbnail(path: Path) -> NDArray[np.int16]:
    with Image.open(path) as image:
        return np.asarray(image.convert("L").resize(_THUMBNAIL, Image.Resampling.BOX), np.int16)


def _deviation(row: Row, other: Row) -> float:
    """Largest relative difference of two rows' figures."""
    pairs = [
        (row.iteration, other.iteration),
        (row.superficial_velocity, other.superficial_velocity),
        (row.pressure_drop, other.pressure_drop),
        (row.permeability, other.permeability),
    ]
    return max(
        0.0 if a == b else abs(a - b) / max(abs(a), abs(b)) if math.isfinite(a - b) else math.inf for a, b in pairs
    )


def _compare(name: str, staged: RecordedStep, wanted: RecordedStep) -> int:
    """The number of values that were compared and are equal."""
    _require(staged.arrays.keys() == wanted.arrays.keys(), f"{name} has the variables {sorted(staged.arrays)}")
    for variable, array in wanted.arrays.items():
        other = staged[variable]
        _require(
            other.dtype == array.dtype and other.shape == array.shape and other.tobytes() == array.tobytes(),
            f"{variable} of {name} differs",
        )
    return sum(array.size for array in wanted.arrays.values())
