# SPDX-License-Identifier: Apache-2.0
"""What Python writes is what Python reads: types, kinds, selections, memory in place, attributes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import forebay

DTYPES = [
    "S1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "longdouble",
    "complex64", "complex128", ">i4", ">f8",
]  # fmt: skip


def written(address: str, **variables: Any) -> forebay.Step:
    """One step with these variables, read back."""
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        for name, value in variables.items():
            step[name] = value
    return forebay.open(address)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_type_come_back(reservation: str, dtype: str) -> None:
    numbers = np.arange(1, 25)
    array = (np.frombuffer(b"abcdefghijklmnopqrstuvwx", "S1") if dtype == "S1" else numbers.astype(dtype)).reshape(4, 6)
    step = written(f"{reservation}/flow", T=array)
    variable = step["T"]
    native = np.dtype(dtype).newbyteorder("=")
    assert variable.dtype == native
    assert (variable.shape, variable.ndim, variable.size, variable.nbytes) == ((4, 6), 2, 24, 24 * native.itemsize)
    result = variable[...]
    assert result.dtype == native
    assert np.array_equal(result, array)
    if native.kind == "c":
        assert variable.min is None
        assert variable.max is None
    else:
        smallest, *_, largest = sorted(array.reshape(-1))
        assert variable.min == smallest
        assert variable.max == largest
        assert type(variable.max) is type(result[0, 0])


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name[0] != ">"])
def test_single_values_of_every_type_come_back(reservation: str, dtype: str) -> None:
    value = np.array(b"a" if dtype == "S1" else 42, dtype)[()]
    variable = written(f"{reservation}/flow", n=value)["n"]
    assert variable.kind is forebay.ShapeKind.GLOBAL_VALUE
    assert variable.shape == ()
    assert variable[()] == value
    assert type(variable[()]) is type(value)
    assert variable[...].shape == ()


def test_python_numbers_and_texts_are_single_values(reservation: str) -> None:
    step = written(f"{reservation}/flow", i=3, f=0.5, c=1 + 2j, text="Größe", empty="", nothing=np.zeros((0, 3)))
    assert (int(step["i"]), float(step["f"]), complex(step["c"])) == (3, 0.5, 1 + 2j)
    assert (step["i"].dtype, step["f"].dtype) == (np.dtype("int64"), np.dtype("float64"))
    assert (step["text"][()], step["text"].item(), step["empty"].item()) == ("Größe", "Größe", "")
    assert step["text"][...].dtype == np.dtypes.StringDType()
    assert step["nothing"][...].shape == (0, 3)
    assert step["nothing"].min is None


def test_step_is_a_mapping_of_its_variables(reservation: str) -> None:
    step = written(f"{reservation}/flow", T=np.zeros(3), p=1.0)
    assert list(step) == step.variables == ["T", "p"]
    assert len(step) == 2
    assert "T" in step
    assert "q" not in step
    assert [variable.name for variable in step.values()] == ["T", "p"]
    with pytest.raises(forebay.VariableNotFoundError, match="no variable 'q'; the step has T, p"):
        step["q"]
    with pytest.raises(KeyError):
        step["q"]
    assert step.get("q") is None


def test_block_of_a_rank_has_its_place(reservation: str) -> None:
    whole = np.arange(48.0).reshape(8, 6)
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as step:
        step.write("T", whole[:3], shape=whole.shape, start=(0, 0))
        step.write("T", whole[3:, :2], shape=whole.shape, start=(3, 0))
        step.write("T", whole[3:, 2:], shape=whole.shape, start=(3, 2))
        step.write("T", whole[:0], shape=whole.shape, start=(0, 0))
    variable = forebay.open(f"{reservation}/flow")[0]["T"]
    assert [(block.start, block.count) for block in variable.blocks if 0 not in block.count] == [
        ((0, 0), (3, 6)),
        ((3, 0), (5, 2)),
        ((3, 2), (5, 4)),
    ]
    assert [(block.min, block.max) for block in variable.blocks if 0 not in block.count] == [
        (0, 17),
        (18, 43),
        (20, 47),
    ]
    assert (variable.min, variable.max) == (0, 47)
    assert np.array_equal(variable[...], whole)
    assert np.array_equal(variable.block(1), whole[3:, :2])
    assert np.array_equal(variable.block(2, np.s_[1:, -1]), whole[4:, 5])
    assert variable.blocks[0].checksum == forebay.crc32c(np.ascontiguousarray(whole[:3]).data)
    with pytest.raises(IndexError, match="there is no block 9"):
        variable.block(9)


def test_one_block_is_seen_and_several_are_copied(reservation: str) -> None:
    whole = np.arange(48.0).reshape(8, 6)
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as step:
        step.write("T", whole[:4], shape=whole.shape, start=(0, 0))
        step.write("T", whole[4:], shape=whole.shape, start=(4, 0))
    variable = forebay.open(f"{reservation}/flow")[0]["T"]
    first = variable[:4]
    assert not first.flags.owndata
    assert not first.flags.writeable
    assert np.shares_memory(first, variable[1:3, ::-2])
    assert np.shares_memory(first, variable.block(0))
    assert np.shares_memory(variable.view(np.s_[5]), variable.block(1))
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.flags.writeable = True
    both = variable[3:5]
    assert both.flags.writeable
    assert not np.shares_memory(both, first)
    assert np.array_equal(both, whole[3:5])
    with pytest.raises(forebay.CopyNeededError):
        variable.view()
    with pytest.raises(ValueError, match="one block"):
        np.array(variable, copy=False)
    assert np.shares_memory(np.array(variable.block(0), copy=False), first)


def test_what_no_block_covers_is_zero_or_kept(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as step:
        step.write("T", np.ones((2, 2)), shape=(4, 4), start=(1, 1))
    variable = forebay.open(f"{reservation}/flow")[0]["T"]
    expected = np.zeros((4, 4))
    expected[1:3, 1:3] = 1
    with pytest.warns(forebay.FaultyVariableWarning, match="no block covers 12 of its 16 elements"):
        assert np.array_equal(variable[...], expected)
    for index in (np.s_[...], np.s_[::2], np.s_[:, 1:]):
        kept = np.full(expected[index].shape, 7.0)
        assert variable.read(index, out=kept) is kept
        assert np.array_equal(kept, np.where(expected[index] == 1, 1, 7))
    frame = np.full((6, 6), 9.0)
    variable.read(out=frame[1:5, 1:5])
    assert np.array_equal(frame[1:5, 1:5], np.where(expected == 1, 1, 9))
    assert frame.sum() == 9 * 32 + 4
    for wrong in (np.zeros((4, 3)), np.zeros((4, 4), "float32"), np.broadcast_to(0.0, (4, 4))):
        with pytest.raises(forebay.InvalidArgumentError, match="out must be"):
            variable.read(out=wrong)


@pytest.fixture(scope="module")
def tiled(server: object) -> tuple[np.ndarray[Any, Any], forebay.Variable]:
    """An array written as four tiles of different extents, and its variable."""
    whole = np.arange(7 * 5 * 4, dtype="int32").reshape(7, 5, 4)
    with forebay.Admin() as admin:
        admin.create("tiled", "64MiB")
    with forebay.open("tiled/flow", mode="w") as stream, stream.step() as step:
        for rows in (slice(0, 3), slice(3, 7)):
            for columns in (slice(0, 4), slice(4, 5)):
                step.write("T", whole[rows, columns], shape=whole.shape, start=(rows.start, columns.start, 0))
    return whole, forebay.open("tiled/flow")[0]["T"]


@given(index=basic_indices((7, 5, 4), allow_newaxis=False, allow_ellipsis=True))
def test_every_basic_index_equals_numpys(tiled: tuple[np.ndarray[Any, Any], forebay.Variable], index: Any) -> None:
    whole, variable = tiled
    result, expected = variable[index], whole[index]
    assert type(result) is type(expected)
    assert np.array_equal(result, expected)
    copy = variable.read(index)
    assert np.array_equal(copy, expected)


@settings(max_examples=25)
@given(data=st.data())
def test_any_strides_are_written(reservation: str, data: st.DataObject) -> None:
    whole = np.arange(6 * 5 * 4, dtype="int16").reshape(6, 5, 4)
    index = data.draw(basic_indices((6, 5, 4), min_dims=1, allow_newaxis=False))
    order = data.draw(st.permutations(range(np.ndim(whole[index]))))
    array = whole[index].transpose(order)
    assert np.array_equal(written(f"{reservation}/flow", T=array)["T"][...], array)


def test_local_and_joined_arrays_and_values(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as step:
        step.write("particles", np.arange(3), kind="local_array")
        step.write("particles", np.arange(5), kind="local_array")
        step.write("rows", np.arange(6).reshape(2, 3), kind="joined_array")
        step.write("rows", np.arange(3).reshape(1, 3), shape=(forebay.joined_dimension, 3))
        step.write("seconds", 1.5, kind="local_value")
        step.write("host", "node1", kind="local_value")
    read = forebay.open(f"{reservation}/flow")[0]
    particles = read["particles"]
    assert particles.kind == "local_array"
    assert particles.size == 8
    assert [particles.block(number).tolist() for number in range(2)] == [[0, 1, 2], [0, 1, 2, 3, 4]]
    with pytest.raises(forebay.InvalidArgumentError, match="blocks one by one"):
        particles[...]
    assert read["rows"].shape == (3, 3)
    assert read["rows"][...].tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert read["seconds"][...].tolist() == [1.5]
    assert read["host"][...].tolist() == ["node1"]


def test_ranks_share_a_step(reservation: str) -> None:
    def write(rank: int) -> int:
        with forebay.open(f"{reservation}/flow", mode="w", rank=rank, ranks=3) as stream, stream.step() as step:
            step.write("T", np.full((2, 4), rank), shape=(6, 4), start=(2 * rank, 0))
            step.write("rank", rank, kind="local_value")
            step.write("host", f"node{rank}", kind="local_value")
            step["n"] = 3
        return stream.incarnation

    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(write, range(3)))) == 1
    step = forebay.open(f"{reservation}/flow")[0]
    assert step["T"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert [block.rank for block in step["T"].blocks] == [0, 1, 2]
    assert step["rank"].shape == (3,)
    assert step["rank"][...].tolist() == [0, 1, 2]
    assert (step["rank"][-1], step["host"][1]) == (2, "node1")
    assert step["host"][::-1].tolist() == ["node2", "node1", "node0"]
    assert int(step["n"]) == 3


def test_memory_in_place_is_published_and_sealed(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            block = step.allocate("T", (300, 400), "float32", start=(0, 100), count=(300, 300))
            assert block.shape == (300, 300)
            assert block.ctypes.data % 4096 == 0
            block[...] = np.arange(300)
            block *= 2
            empty = step.allocate("none", (0, 3))
            assert empty.size == 0
        assert not block.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            block[0, 0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            block.flags.writeable = True
        read = stream[0]["T"]
        with pytest.warns(forebay.FaultyVariableWarning, match="no block covers 30000 of its 120000 elements"):
            assert np.array_equal(read[:, 100:], np.broadcast_to(np.arange(300) * 2, (300, 300)))
        assert (read.min, read.max) == (0, 598)
        read.verify()
        assert stream[0]["none"].shape == (0, 3)


def test_blocks_in_place_hold_every_kind(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            step.allocate("local", (3,), "int64", kind="local_array")[...] = 1
            step.allocate("joined", (forebay.joined_dimension, 2), count=(4, 2))[...] = 2
        assert stream[0]["local"].block(0).tolist() == [1, 1, 1]
        assert stream[0]["joined"].shape == (4, 2)


def test_attributes_belong_to_every_step_from_then_on(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        stream.attributes["title"] = "cylinder"
        with stream.step() as step:
            step["T"] = 1.0
            step.attributes["T/units"] = "K"
            step.attributes["limits"] = np.array([1, 2], "int16")
        with stream.step() as step:
            step["T"] = 2.0
            step.attributes["T/units"] = "degC"
            del step.attributes["limits"]
            assert dict(step.attributes) == {"title": "cylinder", "T/units": "degC"}
        first, second = stream[0].attributes, stream[1].attributes
    assert (first["title"], first["T/units"], first["limits"].tolist()) == ("cylinder", "K", [1, 2])
    assert first["limits"].dtype == np.int16
    assert not first["limits"].flags.writeable
    assert dict(second) == {"title": "cylinder", "T/units": "degC"}
    with pytest.raises(KeyError):
        second["limits"]
    with pytest.raises(TypeError):
        second["title"] = "x"  # type: ignore[index]


def test_unsuitable_values_are_refused_and_the_step_goes_on(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            unsuitable: list[Any] = [True, np.float16(1), np.array(["a"]), np.datetime64("2026-01-01"), [{}]]
            for value in unsuitable:
                with pytest.raises(forebay.InvalidArgumentError, match="'bad'"):
                    step["bad"] = value
            with pytest.raises(forebay.InvalidArgumentError):
                step.write("T", np.zeros(3), shape=(4,), start=(2,))
            with pytest.raises(forebay.InvalidArgumentError):
                step.write("T", np.zeros(3), shape=(4, 4), start=(0, 0))
            with pytest.raises(forebay.InvalidArgumentError):
                step.write("T", np.zeros(3), shape=(-4,))
            step["T"] = np.zeros(3)
        assert stream[0].variables == ["T"]


def test_wide_blocks_do_not_depend_on_size_to_be_seen(reservation: str) -> None:
    step = written(f"{reservation}/flow", T=np.ones((16, 256, 256)))
    view = step["T"][...]
    assert view.nbytes == 8 << 20
    assert not view.flags.owndata
    assert view.ctypes.data % 4096 == 0
    tensor = np.from_dlpack(view)
    assert np.shares_memory(tensor, view)
    assert not tensor.flags.writeable


def test_dlpack_shares_the_step_s_bytes_read_only(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["T"] = np.arange(24.0).reshape(4, 6)
        step.write("parts", np.zeros((2, 6)), shape=(4, 6), start=(0, 0))
        step.write("parts", np.ones((2, 6)), shape=(4, 6), start=(2, 0))
    read = forebay.open(address)[0]
    shared = np.from_dlpack(read["T"])
    assert shared.ctypes.data == read["T"].view().ctypes.data
    assert not shared.flags.writeable
    read.release()
    with forebay.Admin() as admin:
        assert admin.steps(address)[0].pins == 1
    np.testing.assert_array_equal(shared, np.arange(24.0).reshape(4, 6))
    again = forebay.open(address)[0]
    assert again["T"].__dlpack_device__() == (1, 0)
    assert np.from_dlpack(again["parts"])[3, 0] == 1.0
    with pytest.raises(BufferError, match="needs one block that covers"):
        np.from_dlpack(again["parts"], copy=False)
    with pytest.raises(BufferError):  # a consumer from before DLPack 1.0, which cannot know what is read-only
        again["T"].__dlpack__()
