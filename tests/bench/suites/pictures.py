# SPDX-License-Identifier: Apache-2.0
"""Pictures and slices of a running stream: what drawing adds, what a sinogram costs, and what the producer notices."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay.connectors import tomography
from forebay.viz.scenes.description import OutlineLayer, Quality, SceneDescription, SurfaceLayer
from forebay.viz.scenes.picture import ScenePicture
from forebay.viz.scenes.scene_file import load_scene
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import MIB, Workbench
from tests.support.plugin import plugin_library

__all__ = ["drawing", "live_frames", "producer_with_consumers", "sinograms"]

_CELLS = 128
_ANGLES, _FRAME_ROWS, _COLUMNS = 1024, 512, 1024
_BAND = 16  # rows of a sinogram's block
_WARMUP = 10


def drawing() -> Suite:
    """An iso-surface of a growing sphere, from a stream and from arrays in memory."""
    return Suite(
        name="drawing",
        cases=[Case("stream", _draw_stream), Case("memory", _draw_memory)],
        rows=[
            Row("frame of 128^3 iso-surface", "arrays in memory", "stream", "memory", "frame_seconds", 0.95),
            # Says what drawing costs on a machine that has other things to do, too.
            Row("its processor time", "arrays in memory", "stream", "memory", "frame_processor_seconds", guarded=False),
        ],
        repetitions=3,
        best_of=2,
    )


def live_frames() -> Suite:
    """The demo's scene of the demo's simulation, as a live view draws it: an answer within a tenth of a second."""
    return Suite(
        name="live-frame",
        cases=[
            Case("draft", functools.partial(_draw_cylinder, Quality.DRAFT)),
            Case("full", functools.partial(_draw_cylinder, Quality.FULL)),
        ],
        rows=[
            Row("draft frame of the packed cylinder", "100 ms", "draft", 0.1, "frame_seconds", 1.0),
            Row("draft frame of the packed cylinder", "full frame", "draft", "full", "frame_seconds"),
            Row("its processor time", "full frame", "draft", "full", "frame_processor_seconds", guarded=False),
        ],
        repetitions=3,
        best_of=1,
    )


def sinograms() -> Suite:
    """16 rows of all 1024 projections of a scan of 1 GiB."""
    return Suite(
        name="sinogram",
        cases=[Case("row blocks", _read_rows), Case("frames", _read_frames)],
        rows=[Row("16 rows of a 1 GiB scan", "a file per frame", "row blocks", "frames", "read_seconds", 10.0)],
        repetitions=3,
        best_of=1,
    )


def producer_with_consumers() -> Suite:
    """A producer on a core of its own, alone and while a picture, a slice and a mean are made of each step."""
    return Suite(
        name="producer",
        cases=[Case("alone", functools.partial(_produce, ())), Case("read", functools.partial(_produce, _CONSUMERS))],
        rows=[
            Row("producer's step of 16 MiB, three consumers", "none", "read", "alone", "step_seconds", 0.95),
            Row("its processor time", "none", "read", "alone", "step_processor_seconds", guarded=False),
        ],
        repetitions=3,
        best_of=1,
    )


@dataclass(frozen=True, slots=True)
class _MemoryVariable:
    array: NDArray[Any]
    dims: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]


@dataclass(frozen=True, slots=True)
class _MemoryStep(Mapping[str, _MemoryVariable]):
    """A step whose data never saw a stream."""

    number: int
    variables: dict[str, _MemoryVariable]
    address: str = "memory"
    attributes: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> _MemoryVariable:
        return self.variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)


def _spheres(count: int) -> list[NDArray[np.float32]]:
    place = np.linspace(-1, 1, _CELLS, dtype=np.float32)
    distance = np.sqrt(place[:, None, None] ** 2 + place[:, None] ** 2 + place**2)
    return [distance * np.float32(1 + number / count) for number in range(count)]


def _frame_seconds(steps: list[Any]) -> Figures:
    return _seconds_of(ScenePicture(SceneDescription((SurfaceLayer("T", 0.7), OutlineLayer()))), steps)


def _seconds_of(picture: ScenePicture, steps: list[Any]) -> Figures:
    seconds, processor = [], []
    for step in steps:
        began, began_processor = time.perf_counter(), time.process_time()
        picture.show(step)
        picture.render()
        seconds.append(time.perf_counter() - began)
        processor.append(time.process_time() - began_processor)
    return {
        "frame_seconds": statistics.median(seconds[2:]),
        "frame_processor_seconds": statistics.median(processor[2:]),
    }


def _draw_stream(bench: Workbench) -> Figures:
    fields = _spheres(bench.steps(12, 6))
    with bench.instance(4 * len(fields) * 16 * MIB) as instance:
        with forebay.open(instance.address(), mode="w") as writer:
            for values in fields:
                with writer.step() as step:
                    step["T"] = values
        with forebay.open(instance.address()) as stream:
            return _frame_seconds(list(stream))


def _draw_memory(bench: Workbench) -> Figures:
    fields = _spheres(bench.steps(12, 6))
    return _frame_seconds([_MemoryStep(number, {"T": _MemoryVariable(values)}) for number, values in enumerate(fields)])


def _draw_cylinder(quality: Quality, bench: Workbench) -> Figures:
    example = Path(__file__).resolve().parents[3] / "examples" / "01_packed_cylinder"
    program = Path(os.environ["FOREBAY_BUILD_DIR"], "examples", "01_packed_cylinder", "packed_cylinder")
    steps = bench.steps(12, 6)
    picture = ScenePicture(dataclasses.replace(load_scene(example / "scene.toml"), quality=quality))
    with bench.instance(512 * MIB) as instance:
        subprocess.run(
            [program, "--config", example / "adios2.xml", f"--steps={steps}", "--checkpoint-every=0"],
            env={
                **os.environ,
                **instance.environment,
                "FOREBAY_STREAM": instance.address(),
                "ADIOS2_PLUGIN_PATH": str(plugin_library().parent),
            },
            stdout=subprocess.DEVNULL,
            check=True,
        )
        with forebay.open(instance.address()) as stream:
            return _seconds_of(picture, [*stream, *stream])


def _frame(number: int) -> NDArray[np.uint16]:
    return np.full((_FRAME_ROWS, _COLUMNS), number, np.uint16)


def _checked(seconds: float, sinogram: NDArray[np.uint16], angles: int) -> Figures:
    if sinogram.shape != (angles, _BAND, _COLUMNS) or sinogram[-1, 0, 0] != angles - 1:
        raise RuntimeError(f"the sinogram is {sinogram.shape}, and ends with {sinogram[-1, 0, 0]}")
    return {"read_seconds": seconds}


def _read_rows(bench: Workbench) -> Figures:
    angles = bench.steps(_ANGLES, 256)
    with bench.instance(6 * angles * MIB) as instance:
        with tomography.ScanWriter(instance.address(), angles_per_step=16, rows_per_block=_BAND) as writer:
            for number in range(angles):
                writer.projection(_frame(number), 180 * number / angles)
        with forebay.open(instance.address()) as stream:
            sinogram = np.empty((angles, _BAND, _COLUMNS), np.uint16)
            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                for step in stream:
                    first = 16 * step.number
                    sinogram[first : first + 16] = step["projections"][:, 16 : 16 + _BAND]
                seconds.append(time.perf_counter() - began)
    return _checked(min(seconds), sinogram, angles)


def _read_frames(bench: Workbench) -> Figures:
    angles = bench.steps(_ANGLES, 256)
    with bench.scratch() as folder:
        for number in range(angles):
            _frame(number).tofile(folder / f"{number:04d}")
        sinogram = np.empty((angles, _BAND, _COLUMNS), np.uint16)
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            for number in range(angles):
                frame = np.fromfile(folder / f"{number:04d}", np.uint16).reshape(_FRAME_ROWS, _COLUMNS)
                sinogram[number] = frame[16 : 16 + _BAND]
            seconds.append(time.perf_counter() - began)
    return _checked(min(seconds), sinogram, angles)


_SCENE = """
size = [640, 480]
[[layer]]
kind = "slice"
variable = "T"
"""

_MEAN = """
import sys
from forebay.connectors import xarray
for dataset in xarray.follow(sys.argv[1], timeout=60):
    print(float(dataset["T"].mean()), flush=True)
"""

#: What runs beside the producer: commands of Python, in which ADDRESS and FOLDER are replaced.
_CONSUMERS = (
    ("-m", "forebay", "view", "ADDRESS", "--scene", "FOLDER/scene.toml", "--out", "FOLDER/now.jpg", "--follow"),
    ("-m", "forebay", "reconstruct", "ADDRESS", "--out", "FOLDER/slices", "--rows", "0:1"),
    ("FOLDER/mean.py", "ADDRESS"),
)


def _produce(consumers: tuple[tuple[str, ...], ...], bench: Workbench) -> Figures:
    steps = bench.steps(60, 30) + _WARMUP
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RuntimeError("the producer needs a core of its own: this machine has one")
    field = np.random.default_rng(1).random((64, 128, 256))  # 16 MiB
    frames = np.full((10, 16, 256), 500, np.uint16)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(bench.scratch())
        instance = stack.enter_context(bench.instance(64 * 16 * MIB))
        (folder / "scene.toml").write_text(_SCENE)
        (folder / "mean.py").write_text(_MEAN)
        stream = stack.enter_context(forebay.open(instance.address(), mode="w", retention="last:8"))

        def write(number: int) -> None:
            with stream.step() as step:
                step["T"] = field
                step["projections"] = frames
                step["theta"] = np.linspace(18 * number, 18 * (number + 1), 10, endpoint=False) % 180
                step["dark"], step["white"] = np.zeros((1, 16, 256)), np.full((1, 16, 256), 1000.0)

        write(0)
        programs = [
            stack.enter_context(_Consumer(command, instance.address(), folder, cores[1:])) for command in consumers
        ]
        _wait_until_they_read(programs, write)
        stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, cores[:1])
        seconds, processor = [], []
        for number in range(steps):
            field += 1.0  # what a producer does between two steps
            began, began_processor = time.perf_counter(), time.process_time()
            write(number)
            seconds.append(time.perf_counter() - began)
            processor.append(time.process_time() - began_processor)
        if any(program.status not in (None, 0) for program in programs):
            raise RuntimeError(f"a consumer failed: {[program.words() for program in programs]}")
    return {
        "step_seconds": statistics.median(seconds[_WARMUP:]),
        "step_processor_seconds": statistics.median(processor[_WARMUP:]),
    }


class _Consumer(contextlib.AbstractContextManager["_Consumer"]):
    """A process on the cores that the producer does not use."""

    def __init__(self, command: tuple[str, ...], address: str, folder: Path, cores: list[int]) -> None:
        words = [word.replace("ADDRESS", address).replace("FOLDER", str(folder)) for word in command]
        self._log = folder / f"{abs(hash(command))}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                ["taskset", "-c", ",".join(map(str, cores)), sys.executable, *words], stdout=log, stderr=log
            )
        self._seen = folder / "now.jpg" if "view" in command else self._log

    @property
    def status(self) -> int | None:
        """Exit status; None while it runs."""
        return self._process.poll()

    @property
    def reads(self) -> bool:
        """True once it has made something of a step."""
        return self._seen.exists() and self._seen.stat().st_size > 0

    def words(self) -> str:
        """The end of what it printed."""
        return self._log.read_text()[-500:]

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _wait_until_they_read(programs: list[_Consumer], write: Any) -> None:
    deadline = time.monotonic() + 60
    number = 0
    while not all(program.reads for program in programs):
        if any(program.status is not None for program in programs) or time.monotonic() > deadline:
            raise RuntimeError(f"a consumer does not read: {[program.words() for program in programs]}")
        number += 1
        write(number)
        time.sleep(0.05)
