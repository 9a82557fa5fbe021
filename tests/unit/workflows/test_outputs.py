# SPDX-License-Identifier: Apache-2.0
"""The formats of stage-out: what is written reads back as it was, by their own check and by plain ADIOS2 and h5py."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, cast

import adios2
import h5py
import numpy as np
import pytest

from forebay.datatypes import ShapeKind
from forebay.errors import CorruptError, UnsupportedError
from forebay.step import Step
from forebay.workflows.staging.formats import FORMAT_NAMES, output_format
from forebay.workflows.staging.outputs import block_checksums, unchecked_variables
from tests.unit.workflows.in_memory_step import InMemoryStep, InMemoryVariable, text

ELEMENT_TYPES = ("S1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "g", "c8", "c16")
SEED = 20251121


def random_array(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng([SEED, len(dtype), *shape])
    if dtype == "S1":
        return generator.integers(1, 127, shape, np.uint8).view("S1")
    if dtype == "g":
        return (generator.random(shape) + 1).astype(np.longdouble) / 3
    if dtype.startswith("c"):
        return (generator.random(shape) + 1j * generator.random(shape)).astype(dtype)
    return (generator.random(shape) * 100).astype(dtype)


def global_array(name: str, dtype: str) -> InMemoryVariable:
    """Three uneven blocks, one of them empty, and a part of the shape without any."""
    parts = [
        ((0, 0), random_array(dtype, (3, 4))),
        ((3, 1), random_array(dtype, (2, 3))),
        ((5, 0), random_array(dtype, (0, 4))),
    ]
    return InMemoryVariable(name, ShapeKind.GLOBAL_ARRAY, (6, 4), parts)


def rich_step() -> InMemoryStep:
    variables = [global_array(f"global_{dtype}", dtype) for dtype in ELEMENT_TYPES]
    for dtype in ELEMENT_TYPES:
        variables.append(
            InMemoryVariable(
                f"value_{dtype}", ShapeKind.GLOBAL_VALUE, (), [((), random_array(dtype, (1,)).reshape(()))]
            )
        )
    rows = [random_array("f8", (count, 3)) for count in (2, 1, 3)]
    variables += [
        InMemoryVariable(
            "joined", ShapeKind.JOINED_ARRAY, (6, 3), [((0, 0), rows[0]), ((2, 0), rows[1]), ((3, 0), rows[2])]
        ),
        InMemoryVariable("local", ShapeKind.LOCAL_ARRAY, (), [((), random_array("f4", (n, 2))) for n in (1, 0, 4)]),
        InMemoryVariable("per_rank", ShapeKind.LOCAL_VALUE, (3,), [((), np.array(n, "i8")) for n in (7, 8, 9)]),
        InMemoryVariable("title", ShapeKind.GLOBAL_VALUE, (), [((), text("Strömung λ=3"))]),
        InMemoryVariable("hosts", ShapeKind.LOCAL_VALUE, (2,), [((), text("a")), ((), text("bé"))]),
        InMemoryVariable("mesh/nodes", ShapeKind.GLOBAL_ARRAY, (4,), [((0,), np.arange(4.0))]),
    ]
    attributes: dict[str, Any] = {
        "mesh/nodes/unit": "m",
        "description": "packed bed",
        "names": ("x", "y", "zé"),
        "one_name": ("only",),
        "empty_text": "",
    }
    for dtype in ELEMENT_TYPES:
        attributes[f"array_{dtype}"] = random_array(dtype, (3,))
        attributes[f"one_{dtype}"] = random_array(dtype, (1,))
        attributes[f"single_{dtype}"] = random_array(dtype, (1,))[0]
    return InMemoryStep(variables, attributes)


def write(format_name: str, step: InMemoryStep, path: Path) -> dict[str, list[int]]:
    output = output_format(format_name)
    checksums = block_checksums(cast(Step, step), list(step))
    output.write(cast(Step, step), list(step), path, lambda _: None)
    return checksums


def compare(format_name: str, step: InMemoryStep, checksums: dict[str, list[int]], path: Path) -> None:
    output_format(format_name).compare(cast(Step, step), checksums, path, lambda _: None)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_every_type_and_kind_reads_back_as_written(format_name: str, tmp_path: Path) -> None:
    step = rich_step()
    checksums = write(format_name, step, tmp_path / "out")
    compare(format_name, step, checksums, tmp_path / "out")


@pytest.mark.parametrize(
    ("format_name", "name"),
    [
        (format_name, name)
        for format_name in FORMAT_NAMES
        for name in ("global_f8", "global_i1", "joined", "local", "title", "per_rank", "hosts")
        # BP5 keeps these texts as an attribute, which is compared by value.
        if (format_name, name) != ("bp5", "hosts")
    ],
)
def test_another_checksum_is_found(format_name: str, name: str, tmp_path: Path) -> None:
    step = rich_step()
    checksums = write(format_name, step, tmp_path / "out")
    checksums[name][0] ^= 1
    if format_name == "hdf5" and name in ("global_f8", "global_i1", "joined", "per_rank"):
        step = rich_step()
        step[name].block(0)[...] = 0  # the stream's own bytes are the second opinion
    with pytest.raises(CorruptError, match=name):
        compare(format_name, step, checksums, tmp_path / "out")


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_a_flipped_byte_is_found(format_name: str, tmp_path: Path) -> None:
    array = np.arange(1 << 16, dtype="u4")
    step = InMemoryStep([InMemoryVariable("x", ShapeKind.GLOBAL_ARRAY, array.shape, [((0,), array)])])
    path = tmp_path / "out"
    checksums = write(format_name, step, path)
    data = path / "data.0" if path.is_dir() else path
    content = bytearray(data.read_bytes())
    place = content.index(np.arange(1000, 1010, dtype="u4").tobytes())
    content[place] ^= 0x10
    data.write_bytes(content)
    with pytest.raises(CorruptError, match="'x'"):
        compare(format_name, step, checksums, path)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("description", "another"),
        ("array_i4", np.zeros(3, "i4")),
        ("array_i4", np.zeros(2, "i4")),
        ("single_f8", np.float64(0)),
    ],
)
def test_another_attribute_is_found(format_name: str, attribute: str, value: Any, tmp_path: Path) -> None:
    step = rich_step()
    checksums = write(format_name, step, tmp_path / "out")
    step.attributes[attribute] = value
    with pytest.raises(CorruptError, match="attribute"):
        compare(format_name, step, checksums, tmp_path / "out")


def test_bp5_is_what_adios2_readers_expect(tmp_path: Path) -> None:
    step = rich_step()
    write("bp5", step, tmp_path / "out.bp")
    with adios2.FileReader(str(tmp_path / "out.bp")) as reader:
        types = {name: described["Type"] for name, described in reader.available_variables().items()}
        assert types["global_i1"] == "int8_t"
        assert types["global_S1"] == "char"
        assert types["global_g"] == "long double"
        assert len(reader.all_blocks_info("global_f8")[0]) == 3
        np.testing.assert_array_equal(reader.read("global_f8", [0, 0], [3, 4]), step["global_f8"].block(0))
        np.testing.assert_array_equal(reader.read("joined"), step["joined"][...])
        np.testing.assert_array_equal(reader.read("per_rank"), [7, 8, 9])
        assert reader.read("title") == "Strömung λ=3"
        assert reader.read_attribute("hosts") == ["a", "bé"]
        assert reader.read_attribute("unit", "mesh/nodes") == "m"
        assert reader.num_steps() == 1


def test_the_profile_of_adios2_goes_by_no_link_of_somebody_else(tmp_path: Path) -> None:
    """It lies in /tmp, and others can see the hidden name of an output, and the number of the process."""
    step = InMemoryStep([global_array("T", "f8")], {})
    path = tmp_path / f".flow.bp.partial-{tmp_path.parent.name}"
    written = write("bp5", step, path)
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    link = Path("/tmp", f"{path.name}_{os.getpid():x}_profiling.json")
    link.symlink_to(theirs)
    try:
        output_format("bp5").compare(cast(Step, step), written, path, lambda _: None)
        assert theirs.read_text() == "theirs"
        assert link.is_symlink()
    finally:
        link.unlink(missing_ok=True)


def test_hdf5_is_what_h5py_users_expect(tmp_path: Path) -> None:
    step = rich_step()
    write("hdf5", step, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["global_c16"][...], step["global_c16"][...])
        np.testing.assert_array_equal(file["joined"][...], step["joined"][...])
        np.testing.assert_array_equal(file["local/block_000002"][...], step["local"].block(2))
        assert file["title"].asstr()[()] == "Strömung λ=3"
        assert file["mesh/nodes"].attrs["unit"] == "m"
        assert file.attrs["description"] == "packed bed"


@pytest.mark.parametrize("with_checksums", [True, False])
def test_hdf5_compares_overlapping_blocks_with_what_the_stream_gives(tmp_path: Path, with_checksums: bool) -> None:
    parts = [((0,), np.arange(6.0)), ((4,), np.full(4, -1.0))]
    step = InMemoryStep([InMemoryVariable("x", ShapeKind.GLOBAL_ARRAY, (8,), parts, checksums=with_checksums)])
    checksums = write("hdf5", step, tmp_path / "out.h5")
    compare("hdf5", step, checksums, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["x"][...], [0, 1, 2, 3, -1, -1, -1, -1])


def test_hdf5_refuses_an_array_inside_an_array(tmp_path: Path) -> None:
    step = InMemoryStep(
        [InMemoryVariable(name, ShapeKind.GLOBAL_ARRAY, (2,), [((0,), np.zeros(2))]) for name in ("a", "a/b")]
    )
    with pytest.raises(UnsupportedError, match="'a' and 'a/b'"):
        write("hdf5", step, tmp_path / "out.h5")


def memory_bytes(field: str) -> int:
    """Of this process, by a field of its status in KiB."""
    (found,) = re.findall(rf"(?m)^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text())
    return int(found) << 10


def bytes_grown_by_writing(elements: int, blocks: int, path: Path) -> int:
    """How much memory writing blocks of float64 by BP5 took at most, beside the blocks."""
    arrays = [np.full((elements,), rank, "f8") for rank in range(blocks)]
    for array in arrays:
        array.flags.writeable = False
    parts = [((rank * elements,), array) for rank, array in enumerate(arrays)]
    step = InMemoryStep([InMemoryVariable("x", ShapeKind.GLOBAL_ARRAY, (blocks * elements,), parts)])
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_bytes("VmRSS")
    checksums = write("bp5", step, path)
    grown = memory_bytes("VmHWM") - before
    compare("bp5", step, checksums, path)
    return grown


def test_large_blocks_pass_through_bp5_without_a_copy_of_their_own(tmp_path: Path) -> None:
    # BP5 copies small blocks, which shows that a copy would be seen.
    assert bytes_grown_by_writing(1 << 18, 24, tmp_path / "small.bp") > 40 << 20
    assert bytes_grown_by_writing(1 << 21, 3, tmp_path / "large.bp") < 8 << 20


def test_variables_without_checksums_are_named() -> None:
    step = InMemoryStep(
        [
            InMemoryVariable("bare", ShapeKind.GLOBAL_ARRAY, (2,), [((0,), np.zeros(2))], checksums=False),
            InMemoryVariable("summed", ShapeKind.GLOBAL_ARRAY, (2,), [((0,), np.zeros(2))]),
            InMemoryVariable("value", ShapeKind.GLOBAL_VALUE, (), [((), np.array(1.0))]),
            InMemoryVariable("empty", ShapeKind.GLOBAL_ARRAY, (0,), [((0,), np.zeros(0))], checksums=False),
        ]
    )
    assert list(unchecked_variables(cast(Step, step), list(step))) == ["bare"]
