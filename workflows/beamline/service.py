# SPDX-License-Identifier: Apache-2.0
"""The chain acquire, normalise, reconstruct, render, archive, as one service: what a TOML file says, part by part.

The parts that follow the scan run while it is acquired, each a process of its own. A part that fails does not stop the
acquisition: frames come first.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forebay
from forebay.errors import InvalidArgumentError
from forebay.files.by_descriptor import found_inner
from forebay.workflows.beamline.chain import acquire
from forebay.workflows.beamline.scan_log import ScanLog
from forebay.workflows.beamline.scan_streams import ScanSettings

__all__ = ["ChainSettings", "Outcome", "run_chain"]

_SECTIONS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "scan": {"reservation": str, "prefix": str, "experiment": str, "sample": str, "frames_per_step": int},
    "detector": {"replay": str, "period": (int, float)},
    "reconstruct": {"rows": str, "center": (int, float)},
    "output": {"folder": str, "format": str},
}
_FORMATS = ("hdf5", "nxtomo")
_CHAIN = "forebay.workflows.beamline.chain"


@dataclass(frozen=True, slots=True)
class ChainSettings:
    """What a configuration says; relative paths are of its folder."""

    reservation: str
    replay: Path
    folder: Path
    prefix: str = "scan"
    experiment: str = ""
    sample: str = ""
    frames_per_step: int = 10
    period: float = 0.0
    rows: str = ""
    center: float | None = None
    format: str = "hdf5"

    @classmethod
    def read(cls, path: Path) -> ChainSettings:
        """InvalidArgumentError names what is wrong in the file."""
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidArgumentError(f"cannot be read: {error.strerror}", str(path)) from None
        except ValueError as error:
            raise InvalidArgumentError(f"is no TOML: {error}", str(path)) from None
        found: dict[str, Any] = {}
        for section, values in tables.items():
            known = _SECTIONS.get(section)
            if known is None or not isinstance(values, dict):
                raise InvalidArgumentError(
                    f"there is no section {section!r}; known are {', '.join(_SECTIONS)}", str(path)
                )
            for name, value in values.items():
                if name not in known:
                    raise InvalidArgumentError(
                        f"[{section}] has no setting {name!r}; known are {', '.join(known)}", str(path)
                    )
                if not isinstance(value, known[name]) or isinstance(value, bool):
                    raise InvalidArgumentError(f"[{section}] {name} = {value!r} has the wrong type", str(path))
                found[name] = value
        for name, section in (("reservation", "scan"), ("replay", "detector"), ("folder", "output")):
            if name not in found:
                raise InvalidArgumentError(f"[{section}] {name} is missing", str(path))
        if found.get("format", "hdf5") not in _FORMATS:
            raise InvalidArgumentError(
                f"[output] format is {' or '.join(_FORMATS)}, not {found['format']!r}", str(path)
            )
        folder = path.parent
        return cls(**found | {"replay": folder / found["replay"], "folder": folder / found["folder"]})


@dataclass
class Outcome:
    """What came of a chain."""

    scan: str
    frames: int = 0
    results: Path = field(default_factory=Path)
    #: Parts that failed, with the end of what they said.
    failures: dict[str, str] = field(default_factory=dict)


def run_chain(
    settings: ChainSettings, environment: dict[str, str], say: Callable[[str], object] = lambda _: None
) -> Outcome:
    """Runs the chain on one scan, to its end.

    Parameters
    ----------
    environment : dict
        What the parts run with; it names the instance.
    say : callable
        Told each part as it ends.
    """
    name = _next_name(settings)
    scan, normalised = f"{settings.reservation}/{name}", f"{settings.reservation}/{name}.normalised"
    results = settings.folder / name
    slices = results / "slices"
    for folder in (results, slices):
        with found_inner(folder, makes=True):
            pass  # another user's link to other results is refused
    outcome = Outcome(name, results=results)
    rows = ["--rows", settings.rows] if settings.rows else []
    center = [] if settings.center is None else ["--center", str(settings.center)]
    reconstruct = [*_python("forebay"), "reconstruct", normalised, "--out", str(slices), *rows, *center]
    following = [
        _Part("normalise", [*_python(_CHAIN), "normalise", scan, normalised], environment, results),
        _Part("reconstruct", reconstruct, environment, results),
    ]
    try:
        outcome.frames = acquire(
            str(settings.replay),
            scan,
            period=settings.period,
            settings=ScanSettings(frames_per_step=settings.frames_per_step),
            experiment=settings.experiment,
            sample=settings.sample,
        )
        say(f"acquire: {outcome.frames} frames in {scan}")
        for part in following:
            part.wait(outcome, say)
    finally:
        for part in following:
            part.end()
    if "reconstruct" not in outcome.failures:
        picture = [*_python(_CHAIN), "render", str(slices), str(results / "slices.png")]
        _Part("render", picture, environment, results).wait(outcome, say)
    # The frames are safe whatever became of the pictures.
    if settings.format == "nxtomo":
        archive = [*_python("forebay"), "beamline", "export", scan, str(results / "archive")]
    else:
        archive = [*_python("forebay"), "stage-out", scan, str(results / "archive"), "--format", "hdf5"]
    _Part("archive", archive, environment, results).wait(outcome, say)
    return outcome


def _next_name(settings: ChainSettings) -> str:
    with forebay.Admin() as admin:
        taken = {info.name for info in admin.streams(settings.reservation)}
    taken |= {record.scan for record in ScanLog.records(settings.reservation)}
    number = 1
    while f"{settings.prefix}-{number:04d}" in taken:
        number += 1
    return f"{settings.prefix}-{number:04d}"


def _python(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", module]


class _Part:
    """A process of the chain, and what it says, in ``NAME.log``."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], results: Path) -> None:
        self._name = name
        log = results / f"{name}.log"
        # Others may write in this folder, too: what they have put there is not written into.
        log.unlink(missing_ok=True)
        self._log = log.open("x+b")
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )

    def wait(self, outcome: Outcome, say: Callable[[str], object]) -> None:
        """Until it has ended; says how."""
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        self._log.close()
        last = lines[-1] if lines else ""
        if status:
            outcome.failures[self._name] = last or f"ended with status {status}"
        say(f"{self._name}: {last or 'done'}" if status == 0 else f"{self._name} failed with status {status}: {last}")

    def end(self) -> None:
        """Ends it, if it runs. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._log.close()
