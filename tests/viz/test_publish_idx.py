# SPDX-License-Identifier: Apache-2.0
"""Published IDX datasets are what OpenVisus reads, bit by bit; a coarse read moves 1/512 of a field's bytes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from tests.support.time_limits import seconds
from tests.viz.conftest import SHAPE, field, write_flow
from tests.viz.test_publish import publish, told

OpenVisus = pytest.importorskip("OpenVisus", reason="it is not installed: pip install OpenVisusNoGui")

# OpenVisus in a process of its own: what it read of files is what the process read meanwhile.
COUNTED_READ = """
import json, sys
import OpenVisus

def read_bytes():
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("rchar"))

dataset = OpenVisus.LoadDataset(sys.argv[1])
own = -(read_bytes() - read_bytes())  # of looking
before = read_bytes()
values = dataset.read(field="T", time=int(sys.argv[2]), quality=int(sys.argv[3]))
print(json.dumps({"read": read_bytes() - before - own, "shape": values.shape, "sum": float(values.sum(dtype="f8"))}))
"""


def read(index: Path, name: str, number: int, **options: Any) -> Any:
    return OpenVisus.LoadDataset(str(index)).read(field=name, time=number, **options)


def counted_read(index: Path, number: int, quality: int) -> dict[str, Any]:
    command = [sys.executable, "-c", COUNTED_READ, str(index), str(number), str(quality)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(110), check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_openvisus_reads_each_step(flow: str, tmp_path: Path) -> None:
    done = publish(flow, tmp_path, "--for", "idx", "--json")
    assert told(done) == {"published": 4, "steps": [0, 1, 2, 3], "index": str(tmp_path / "flow.idx")}
    assert "spectrum is not published: its shape is (4,)" in done.stderr
    dataset = OpenVisus.LoadDataset(str(tmp_path / "flow.idx"))
    assert dataset.getFields() == ["T", "velocity"]
    assert [int(time) for time in dataset.getTimesteps()] == [0, 1, 2, 3]
    bounds = dataset.idxfile.bounds.toAxisAlignedBox()
    assert [bounds.p1[axis] for axis in range(3)] == [1.0, 2.0, 3.0]
    assert [bounds.p2[axis] for axis in range(3)] == [1.0 + 5, 2.0 + 4, 3.0 + 3]
    for number in range(4):
        np.testing.assert_array_equal(dataset.read(field="T", time=number), field(number))
        velocity = dataset.read(field="velocity", time=number)
        assert velocity.shape == (*SHAPE, 3)
        np.testing.assert_array_equal(velocity[..., 2], 3 * field(number))


@pytest.mark.parametrize("size", [64, 128])
def test_a_coarse_read_moves_a_512th_of_the_bytes(reservation: str, tmp_path: Path, size: int) -> None:
    values = np.random.default_rng(size).random((size, size, size), dtype=np.float32)
    with forebay.open(f"{reservation}/cube", "w") as stream, stream.step() as step:
        step["T"], step["other"] = values, np.zeros_like(values)
    told(publish(f"{reservation}/cube", tmp_path, "--for", "idx", "--json"))
    index = tmp_path / "cube.idx"
    coarse = counted_read(index, 0, -9)
    assert coarse["shape"] == [size // 8] * 3
    assert coarse["sum"] == float(values[::8, ::8, ::8].sum(dtype="f8"))
    # Beside the elements, the list of a file's blocks: 40 bytes for each of 64 blocks and each field, and for the file.
    assert coarse["read"] == values.nbytes // 512 + 2 * 64 * 40 + 40
    whole = counted_read(index, 0, 0)
    assert whole["read"] >= values.nbytes
    np.testing.assert_array_equal(read(index, "T", 0), values)


@pytest.mark.parametrize("shape", [(5, 17, 33), (40, 50), (3, 2)])
def test_extents_need_not_be_powers_of_two(reservation: str, tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(0, 1000, shape).astype(np.int16)
    with forebay.open(f"{reservation}/odd", "w") as stream, stream.step() as step:
        step["T"] = values
    told(publish(f"{reservation}/odd", tmp_path, "--for", "idx", "--json"))
    found = read(tmp_path / "odd.idx", "T", 0)
    np.testing.assert_array_equal(found, values.reshape(found.shape))


def test_gaps_between_steps_and_what_comes_later(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    for numbers in ((0, 10), (20,)):
        with forebay.open(address, "a") as stream:
            for number in numbers:
                with stream.step(number) as step:
                    step["T"] = field(number)
        told(publish(address, tmp_path, "--for", "idx", "--json"))
    dataset = OpenVisus.LoadDataset(str(tmp_path / "flow.idx"))
    assert [int(time) for time in dataset.getTimesteps()] == [0, 10, 20]
    np.testing.assert_array_equal(dataset.read(field="T", time=10), field(10))


# crash-matrix: forebay publish --for idx | the producer is rewound by a restart, or publishing dies before the index | the index names whole steps; what it does not name goes
def test_withdrawn_and_left_over_steps_are_taken_out(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    write_flow(address, 0, 4)
    publish(address, tmp_path, "--for", "idx")
    write_flow(address, 2, 3, mode="a", append_after=1)
    (tmp_path / "flow" / ".t000007.0123abcd.part").mkdir()
    (tmp_path / "flow" / "t000007").mkdir()
    assert told(publish(address, tmp_path, "--for", "idx", "--json"))["steps"] == [0, 1, 2]
    assert sorted(path.name for path in (tmp_path / "flow").iterdir()) == ["t000000", "t000001", "t000002"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flow", "flow.idx"]
    np.testing.assert_array_equal(read(tmp_path / "flow.idx", "T", 2), field(2))


def test_a_step_is_written_where_nobody_else_can_exchange_names(
    flow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, int]] = []
    load = OpenVisus.LoadDataset

    def noted(index: str) -> object:
        folder = os.path.dirname(index)
        written.append((folder, stat.S_IMODE(os.stat(folder).st_mode)))
        return load(index)

    from forebay.viz.publishing.idx import IdxPublication

    monkeypatch.setattr(OpenVisus, "LoadDataset", noted)
    with forebay.open(flow) as stream:
        IdxPublication(tmp_path, "flow").publish(stream[0])
    ((folder, mode),) = written
    assert (folder.startswith("/proc/self/fd/"), mode) == (True, 0o700)
    np.testing.assert_array_equal(read(tmp_path / "flow.idx", "T", 0), field(0))


def test_what_idx_has_no_place_for_is_refused(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        for size in (8, 9):
            with stream.step() as step:
                step["T"] = np.zeros((4, 4, size))
                step["a + b"] = np.zeros((4, 4, size))
    done = publish(address, tmp_path, "--for", "idx")
    assert done.returncode == 1
    assert "a + b is not published: an IDX file has no place for a name with such characters" in done.stderr
    assert "those of step 1 are not those of step 0" in done.stderr.replace("\n", " ")
    assert [int(time) for time in OpenVisus.LoadDataset(str(tmp_path / "flow.idx")).getTimesteps()] == [0]
    with forebay.open(f"{reservation}/line", "w") as stream, stream.step() as step:
        step["T"] = np.zeros((1, 1, 9))
    assert "two cells along each dimension" in publish(f"{reservation}/line", tmp_path, "--for", "idx").stderr
    (tmp_path / "flow.idx").write_text("no index")
    assert "was not written by forebay publish" in publish(address, tmp_path, "--for", "idx").stderr
    done = publish(address, tmp_path, "--for", "idx", "--format", "xdmf")
    assert "--format xdmf goes with --for paraview" in done.stderr


def test_a_full_file_system_is_an_error(flow: str, tmp_path: Path) -> None:
    program = f"""
import resource, signal
import forebay
from pathlib import Path
from forebay.errors import StorageError
from forebay.viz.publishing.idx import IdxPublication
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with forebay.open({flow!r}) as stream:
    publication = IdxPublication(Path({str(tmp_path)!r}), "flow")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
    try:
        publication.publish(stream[0])
    except StorageError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds(110), check=False
    )
    assert "is the file system full?" in done.stdout, done.stderr
    assert not (tmp_path / "flow.idx").exists()
