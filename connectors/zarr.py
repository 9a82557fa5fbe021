# SPDX-License-Identifier: Apache-2.0
"""A stream as a read-only Zarr v3 store: ``zarr.open_group(StreamStore("RES/STREAM"), mode="r")``.

No file is written: a chunk is the block that a rank wrote. Needs the extra ``forebay[zarr]``.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import struct
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype

from forebay import Address, Stream
from forebay.connectors.stream_table import (
    COMMIT_TIME_ATTRIBUTES,
    OWN_NAMES,
    ArrayOverSteps,
    StreamTable,
    group_of,
    path_of,
)
from forebay.errors import UnsupportedError
from forebay.instance import InstanceLike

__all__ = ["StreamStore"]

_METADATA = "zarr.json"


@dataclass(frozen=True)
class _Node:
    """An array of the store.

    Attributes
    ----------
    chunk : tuple of int
        Extents of a chunk. Chunks at the far edges are padded with zeros to it, as the format wants.
    source : ArrayOverSteps or array
        What chunks are read from; an array in memory has one chunk.
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...]
    attributes: dict[str, Any]
    source: ArrayOverSteps | NDArray[Any]

    def metadata(self) -> dict[str, Any]:
        """The array's ``zarr.json``."""
        zero: Any = [0.0, 0.0] if self.dtype.kind == "c" else 0
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunk)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": zero,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": _json_attributes(self._attributes()),
            "dimension_names": list(self.dims),
        }

    def _attributes(self) -> dict[str, Any]:
        """With ``_FillValue`` in the form that xarray writes and expects: numbers with a point in base64."""
        attributes = dict(self.attributes)
        if "_FillValue" in attributes:
            fill = _fill_value(attributes.pop("_FillValue"), self.dtype)
            if fill is not None:
                attributes["_FillValue"] = fill
        return attributes

    def chunk_counts(self) -> tuple[int, ...]:
        """How many chunks there are along each dimension."""
        return tuple(-(-extent // chunk) for extent, chunk in zip(self.shape, self.chunk, strict=True))

    def read(self, place: tuple[int, ...]) -> NDArray[Any]:
        """A chunk of full size; a view of the step where nothing has to be padded."""
        if not isinstance(self.source, ArrayOverSteps):
            return np.ascontiguousarray(self.source, self.dtype)
        starts = [number * extent for number, extent in zip(place, self.chunk, strict=True)]
        box = tuple(
            slice(start, min(start + extent, whole))
            for start, extent, whole in zip(starts[1:], self.chunk[1:], self.shape[1:], strict=True)
        )
        found = self.source.read([starts[0]], box)
        if found.shape != self.chunk:
            padded = np.zeros(self.chunk, self.dtype)
            padded[tuple(slice(0, extent) for extent in found.shape)] = found
            return padded
        return np.ascontiguousarray(found, self.dtype)


class StreamStore(Store):
    """The steps that a stream has now, as a Zarr hierarchy; read-only. Pickles by the identity of its steps.

    Each variable is an array with the dimension ``step`` first. ``step``, ``time`` and ``commit_time`` are arrays, too.
    A variable whose blocks form no regular grid is left out; the root's attribute ``forebay_left_out`` names it, with
    the reason.

    Parameters
    ----------
    address : str, Address or Stream
        ``"forebay://RES/STREAM"``, ``"RES/STREAM"``, or an open stream.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    whole_steps : bool
        A chunk is a whole step of a variable, whatever its blocks: nothing is left out for its blocks, and each chunk
        is a copy.
    **opening
        Of :func:`forebay.open`, for example ``run`` and ``wait_for_writer``.

    Raises
    ------
    StreamNotFoundError, StepNotFoundError
        There is no such stream, or it has no steps yet.
    """

    supports_writes: ClassVar[bool] = False
    supports_deletes: ClassVar[bool] = False
    supports_listing: ClassVar[bool] = True

    def __init__(
        self,
        address: str | Address | Stream,
        *,
        instance: InstanceLike | None = None,
        whole_steps: bool = False,
        **opening: Any,
    ) -> None:
        super().__init__(read_only=True)
        table = StreamTable.read(address, instance, opening)
        self._steps = table.steps
        self._nodes, left_out = _nodes_of(table, whole_steps)
        attributes = dict(table.attributes)
        attributes["forebay_address"] = self._steps.stream.address.path
        attributes["forebay_uuid"] = self._steps.uuid
        attributes["forebay_left_out"] = [f"{name}: {reason}" for name, reason in left_out.items()]
        self._groups: dict[str, dict[str, Any]] = {"": attributes}
        for name in self._nodes:
            group = group_of(name)[0]
            while group:
                self._groups.setdefault(group, {})
                group = group_of(group)[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamStore) and other._identity() == self._identity()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<StreamStore {self._steps.stream.address}: {len(self._steps)} steps, {len(self._nodes)} arrays>"

    def with_read_only(self, read_only: bool = False) -> StreamStore:
        """The store itself; a stream cannot be written through Zarr."""
        if not read_only:
            raise UnsupportedError(
                "a stream cannot be written through Zarr: write steps by forebay.open(address, mode='w')",
                f"stream {self._steps.stream.address}",
            )
        return self

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """The bytes of a key; None where there is no such key."""
        found = await asyncio.to_thread(self._read, key)
        if found is None:
            return None
        return prototype.buffer.from_array_like(found[_slice_of(byte_range, found.size)])

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Parts of several keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """True for metadata and for every chunk of every array."""
        group, _, name = key.rpartition("/")
        if name == _METADATA:
            return group in self._groups or group in self._nodes
        return self._chunk_of(key) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Refused: the store is read-only."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refused: the store is read-only."""
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        for key in self._keys():
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with ``prefix``."""
        for key in self._keys():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names right below ``prefix``."""
        folder = prefix.rstrip("/") + "/" if prefix.strip("/") else ""
        seen = set()
        for key in self._keys():
            if key.startswith(folder):
                name = key[len(folder) :].partition("/")[0]
                if name not in seen:
                    seen.add(name)
                    yield name

    def _identity(self) -> tuple[Any, ...]:
        return (*self._steps.__dask_tokenize__(), *((name, node.chunk) for name, node in self._nodes.items()))

    def _keys(self) -> Iterator[str]:
        for group in self._groups:
            yield f"{group}/{_METADATA}" if group else _METADATA
        for name, node in self._nodes.items():
            yield f"{name}/{_METADATA}"
            for place in itertools.product(*(range(count) for count in node.chunk_counts())):
                yield "/".join((name, "c", *map(str, place)))

    def _chunk_of(self, key: str) -> tuple[_Node, tuple[int, ...]] | None:
        name, separator, rest = key.rpartition("/c/")
        node = self._nodes.get(name)
        parts = rest.split("/")
        if not separator or node is None or not all(part.isdecimal() for part in parts):
            return None
        place = tuple(int(part) for part in parts)
        counts = node.chunk_counts()
        if len(place) != len(counts) or any(number >= count for number, count in zip(place, counts, strict=True)):
            return None
        return node, place

    def _read(self, key: str) -> NDArray[np.uint8] | None:
        group, _, name = key.rpartition("/")
        if name == _METADATA:
            if group in self._nodes:
                document = self._nodes[group].metadata()
            elif group in self._groups:
                attributes = _json_attributes(self._groups[group])
                document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
            else:
                return None
            return np.frombuffer(json.dumps(document).encode(), np.uint8)
        found = self._chunk_of(key)
        if found is None:
            return None
        node, place = found
        return node.read(place).reshape(-1).view(np.uint8)


def _nodes_of(table: StreamTable, whole_steps: bool) -> tuple[dict[str, _Node], dict[str, str]]:
    """The arrays of the store by their paths, and the variables that are none, with the reason."""
    nodes: dict[str, _Node] = {}  # by the variables' names
    left_out = dict(table.left_out)
    for name, array in table.arrays.items():
        if array.dims == (group_of(name)[1],) and array.dtype.kind in "iufc" and array.dtype != np.longdouble:
            # The places along a dimension: one coordinate for all steps.
            places = table.constant(array)
            if places is not None and places.size:
                nodes[name] = _in_memory(places, dict(array.attributes), array.dims)
                continue
        chunk = array.extents if whole_steps else _regular_chunk(array)
        if array.dtype.kind not in "iufc" or array.dtype == np.longdouble:
            left_out[name] = f"Zarr has no elements of type {array.dtype}"
        elif 0 in array.extents:
            left_out[name] = f"it has no elements: its shape is {array.extents}"
        elif chunk is None:
            left_out[name] = (
                "its blocks form no regular grid, which Zarr's chunks must: open the store with whole_steps=True, or "
                "the stream with xarray"
            )
        else:
            nodes[name] = _Node(
                array.shape,
                (1, *chunk),
                array.dtype.newbyteorder("<"),
                ("step", *array.dims),
                dict(array.attributes),
                array,
            )
    for name, values in table.values.items():
        if values.dtype.kind not in "iufc" or values.dtype == np.longdouble:
            left_out[name] = f"it is a single value of type {'text' if values.dtype.kind == 'O' else values.dtype}"
        else:
            nodes[name] = _in_memory(values, dict(table.value_attributes[name]))
    return _placed(nodes, table, left_out), left_out


def _placed(nodes: Mapping[str, _Node], table: StreamTable, left_out: dict[str, str]) -> dict[str, _Node]:
    """The nodes by their paths; what has no place in the hierarchy is added to ``left_out``."""
    times = _in_memory(table.steps.times_ns, dict(COMMIT_TIME_ATTRIBUTES))
    placed = {"step": _in_memory(table.steps.numbers, {}), "commit_time": times}
    names = dict.fromkeys(placed, "")
    for name, node in nodes.items():
        path = path_of(name)
        if path in OWN_NAMES:
            left_out[name] = OWN_NAMES[path]
        elif path in placed:
            left_out[name] = f"it has the same path as {names[path]!r}"
        elif not path or not {".", ".."}.isdisjoint(path.split("/")):
            left_out[name] = "its name is no path in a Zarr hierarchy"
        else:
            placed[path], names[path] = node, name
    placed.setdefault("time", times)
    # A node of the hierarchy is an array or a group.
    for path in list(placed):
        group = group_of(path)[0]
        while group and group not in placed:
            group = group_of(group)[0]
        if group:
            left_out[names[path]] = f"{group} is an array, so that nothing can lie below it"
            del placed[path]
    return placed


def _in_memory(values: NDArray[Any], attributes: dict[str, Any], dims: tuple[str, ...] = ("step",)) -> _Node:
    return _Node(values.shape, values.shape, values.dtype.newbyteorder("<"), dims, attributes, values)


def _regular_chunk(array: ArrayOverSteps) -> tuple[int, ...] | None:
    """The blocks' extents where all but the last along each dimension are equal, and the last is not larger."""
    if array.grid is None:
        return None
    for along in array.grid:
        if len(set(along[:-1])) > 1 or along[-1] > along[0]:
            return None
    return tuple(along[0] for along in array.grid)


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """None where no element can have this value."""
    try:
        number = np.asarray(value).reshape(-1)[0].astype(dtype if dtype.kind == "c" else np.float64)
        if dtype.kind in "iu":
            return int(number) if number == int(number) else None
    except (ValueError, OverflowError, IndexError):
        return None
    parts = [number.real, number.imag] if dtype.kind == "c" else [number]
    encoded = [base64.standard_b64encode(struct.pack("<d", float(part))).decode() for part in parts]
    return encoded if dtype.kind == "c" else encoded[0]


def _slice_of(part: ByteRequest | None, size: int) -> slice:
    if part is None:
        return slice(None)
    if isinstance(part, RangeByteRequest):
        return slice(part.start, part.end)
    if isinstance(part, OffsetByteRequest):
        return slice(part.offset, None)
    assert isinstance(part, SuffixByteRequest)
    return slice(max(0, size - part.suffix), None)


def _json_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them; complex numbers as pairs."""
    return {name: _json_value(value) for name, value in attributes.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_json_value(item) for item in value]
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value.decode("latin-1") if isinstance(value, bytes) else value
