# SPDX-License-Identifier: Apache-2.0
"""Streams as xarray Datasets: ``xr.open_dataset("forebay://RES/STREAM", engine="forebay", chunks={})``.

Needs the extra ``forebay[xarray]``; chunks also need ``forebay[dask]``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from forebay import Address, ShapeKind, Step, Stream
from forebay.connectors.opening import followed_stream, opening_options
from forebay.connectors.stream_table import (
    COMMIT_TIME_ATTRIBUTES,
    OWN_NAMES,
    ArrayOverSteps,
    StreamTable,
    constant_names,
    dimension_names,
    group_of,
    path_of,
)
from forebay.connectors.wrf_times import times_of
from forebay.errors import NotFoundError
from forebay.instance import InstanceLike

__all__ = ["ForebayBackend", "follow"]

_SCHEME = "forebay://"
# Options of xarray.conventions.decode_cf_variables.
_DECODERS = (
    "mask_and_scale",
    "decode_times",
    "decode_timedelta",
    "use_cftime",
    "concat_characters",
    "decode_coords",
)


class ForebayBackend(BackendEntrypoint):
    """xarray's way in; chosen by ``engine="forebay"``, or by an address that begins with ``forebay://``."""

    description: ClassVar[str] = "Open streams of a Forebay staging server"
    url: ClassVar[str] = "docs/consumers/xarray.md"
    open_dataset_parameters: ClassVar[tuple[str, ...]] = (
        "filename_or_obj",
        *_DECODERS,
        "drop_variables",
        "group",
        "instance",
    )
    supports_groups: ClassVar[bool] = True

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        instance: InstanceLike | None = None,
        **options: Any,
    ) -> xr.Dataset:
        """The steps that a stream has now, read when they are computed with.

        Parameters
        ----------
        filename_or_obj : str or Stream
            ``"forebay://RES/STREAM"``, ``"RES/STREAM"``, or an open stream.
        drop_variables : str or iterable of str, optional
            Variables to leave away.
        group : str, optional
            Only the variables ``GROUP/NAME``, called ``NAME``.
        instance : Instance or path, optional
            The instance that has the stream, as in :func:`forebay.open`.
        **options
            How attributes of the CF conventions count, as for any engine: ``mask_and_scale``, ``decode_times``,
            ``decode_timedelta``, ``use_cftime``, ``concat_characters`` and ``decode_coords``. And those of
            :func:`forebay.open`, for example ``run`` and ``wait_for_writer``.

        Returns
        -------
        Dataset
            With the coordinates ``step`` (number), ``time`` (the stream's single value of that name, else the time of
            the commit) and ``commit_time``. Variables that are no array over all steps are listed in
            ``attrs["forebay_left_out"]``.
        """
        decoders, opening = _split(options)
        table = StreamTable.read(filename_or_obj, instance, opening)
        dataset = _dataset(table, _names(drop_variables), group, decoders)
        dataset.set_close(table.steps.close)
        return dataset

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        instance: InstanceLike | None = None,
        **options: Any,
    ) -> dict[str, xr.Dataset]:
        """One Dataset for each part of the variables' names before the last ``/``."""
        decoders, opening = _split(options)
        table = StreamTable.read(filename_or_obj, instance, opening)
        dropped = _names(drop_variables)
        groups = _groups((*table.arrays, *table.values))
        return {f"/{group}": _dataset(table, dropped, group, decoders, groups) for group in sorted(groups)}

    def open_datatree(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        instance: InstanceLike | None = None,
        **options: Any,
    ) -> xr.DataTree:
        """The groups as a tree."""
        groups = self.open_groups_as_dict(filename_or_obj, drop_variables=drop_variables, instance=instance, **options)
        return xr.DataTree.from_dict(groups)

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """True for what begins with ``forebay://`` and for open streams."""
        return isinstance(filename_or_obj, Stream) or (
            isinstance(filename_or_obj, str) and filename_or_obj.startswith(_SCHEME)
        )


def follow(
    address: str | Address | Stream, consumer: str = "", *, instance: InstanceLike | None = None, **options: Any
) -> Iterator[xr.Dataset]:
    """Each step of a running stream as a Dataset, as it commits.

    Variables are views of the step's bytes where one block covers them, so a Dataset that is kept pins its step.
    Variables of a changing shape, and those that come and go, are there in the steps that have them.

    Parameters
    ----------
    consumer : str
        Name that the position is kept under; as in :meth:`forebay.Stream.follow`.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    **options
        Of :meth:`forebay.Stream.follow` and of :func:`forebay.open`, for example ``wait_for_writer``; and how
        attributes of the CF conventions count, as in :meth:`ForebayBackend.open_dataset`.
    """
    decoders = {name: options.pop(name) for name in _DECODERS if name in options}
    opening = opening_options(options)
    with followed_stream(address, instance, opening, timeout=options.get("timeout")) as stream:
        for step in stream.follow(consumer, **options):
            yield dataset_of_step(step, **decoders)


def dataset_of_step(step: Step, **decoders: Any) -> xr.Dataset:
    """One step as a Dataset, without the dimension ``step``."""
    variables: dict[Hashable, Any] = {}
    left_out: list[str] = []
    sizes: dict[str, int] = {}
    step_attributes = step.attributes
    for name, variable in step.items():
        if variable.kind is ShapeKind.LOCAL_ARRAY:
            left_out.append(f"{name}: a local array has no global shape: read its blocks by step[name].block(number)")
            continue
        if name in OWN_NAMES:
            left_out.append(f"{name}: {OWN_NAMES[name]}")
            continue
        dims = dimension_names(variable, step_attributes)
        reason = _reason_not_beside(dims, variable.shape, sizes)
        if not reason and name in dims and len(dims) > 1:
            reason = "it has the name of one of its dimensions, but more than that one"
        if reason:
            left_out.append(f"{name}: {reason}")
            continue
        sizes.update(zip(dims, variable.shape, strict=True))
        prefix = f"{name}/"
        attributes = {key[len(prefix) :]: value for key, value in step_attributes.items() if key.startswith(prefix)}
        if variable.dims is not None:
            attributes.pop("dims", None)
        data = variable[...]
        variables[name] = xr.Variable(dims, data.astype(object) if data.dtype.kind == "T" else data, _plain(attributes))
    decoded, _, coordinate_names = xr.conventions.decode_cf_variables(variables, {}, **decoders)
    for name, variable in decoded.items():
        # What needs no decoding stays a view of the step.
        if variable.dtype != variables[name].dtype or variable.attrs.keys() != variables[name].attrs.keys():
            variables[name] = variable
    time = variables.pop("time", None)
    commit_time = np.datetime64(step.time_ns, "ns")
    if time is None and "Times" in variables and (times := times_of(variables["Times"].values.reshape(-1))) is not None:
        time = xr.Variable((), times[0])
    return xr.Dataset(
        variables,
        {
            "step": step.number,
            "time": commit_time if time is None or time.ndim else time,
            "commit_time": commit_time,
        },
        {"forebay_address": str(step.address), "forebay_left_out": left_out},
    ).set_coords(coordinate_names & variables.keys())


class _LazyArray(BackendArray):
    """What xarray indexes: steps by any index, without reading those between; the rest by box."""

    def __init__(self, array: ArrayOverSteps) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._outer)

    def _outer(self, key: tuple[Any, ...]) -> NDArray[Any]:
        steps = np.arange(self.shape[0])[key[0]]
        box: list[int | slice] = []
        # What is left to take from the box: each array index in turn, along the dimension that it is of.
        takes: list[tuple[int, NDArray[np.int64]]] = []
        axis = 1
        for item in key[1:]:
            if isinstance(item, np.ndarray):
                first, last = (int(item.min()), int(item.max())) if item.size else (0, -1)
                takes.append((axis, item - first))
                box.append(slice(first, last + 1))
                axis += 1
            elif isinstance(item, slice):
                box.append(item)
                axis += 1
            else:
                box.append(int(item))
        result = self._array.read(np.atleast_1d(steps).tolist(), tuple(box))
        for along, places in takes:
            result = np.take(result, places, along)
        return result if np.ndim(steps) else result[0]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self._array.__dask_tokenize__()


class _LazyConstant(BackendArray):
    """What xarray indexes of a variable that is the same in all steps: it is read from the newest one."""

    def __init__(self, array: ArrayOverSteps) -> None:
        self._array = array
        self.shape = array.extents
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._box)

    def _box(self, key: tuple[Any, ...]) -> NDArray[Any]:
        box: NDArray[Any] = self._array.read([len(self._array.steps) - 1], key)[0]
        return box

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (*self._array.__dask_tokenize__(), "newest")


class _StreamVariable(xr.Variable):
    """A variable whose Dask tasks are named by the identity of its steps.

    ``xr.open_dataset(…, chunks=…)`` names them by the address alone, which another stream, or the same one with other
    steps, may have later: a scheduler that still holds results would give out wrong data.
    """

    __slots__ = ()

    def chunk(self, *arguments: Any, **options: Any) -> Any:
        given = dict(options.pop("from_array_kwargs", None) or {})
        if given.get("name"):
            from dask.tokenize import tokenize

            given["name"] = f"{given['name']}-{tokenize(self._data)}"
        options["from_array_kwargs"] = given
        return super().chunk(*arguments, **options)


def _dataset(
    table: StreamTable,
    dropped: set[str],
    group: str | None,
    decoders: Mapping[str, Any],
    beside: frozenset[str] = frozenset(),
) -> xr.Dataset:
    """The variables of a group, or all of them; in a tree with the groups ``beside``."""
    wanted = None if group is None else path_of(group)
    if wanted and wanted not in (groups := _groups((*table.arrays, *table.values, *table.left_out))):
        raise NotFoundError(
            f"no group {wanted}; {_listed(sorted(groups - {''}))}", f"stream {table.steps.stream.address}"
        )
    variables: dict[Hashable, Any] = {}
    coordinates: dict[Hashable, Any] = {}
    left_out = dict(table.left_out)
    constants = constant_names(table.attributes)
    # Of records of a file, the writer has said which variables do not depend on them.
    says_which_are_constant = not table.attributes.keys().isdisjoint({"record_dimension", "constant_variables"})
    sizes = {"step": len(table.steps)}
    own_names, auxiliary = _shown_names(table, wanted)
    first: dict[str, str] = {}
    for name, shown in list(own_names.items()):
        # A hierarchy has one thing of a name.
        if first.setdefault(shown, name) != name:
            left_out[name] = f"it has the same path as {first[shown]!r}: open the stream without groups"
            del own_names[name]
        elif path_of(f"{wanted or ''}/{shown}") in beside:
            left_out[name] = "a group has its name: open the stream without groups"
            del own_names[name]
    for name, array in table.arrays.items():
        own = own_names.get(name)
        if own is None or own in dropped:
            continue
        reason = OWN_NAMES.get(own) or _reason_not_beside(array.dims, array.extents, sizes)
        if not reason and own in auxiliary and own not in array.dims and not says_which_are_constant:
            # Such as latitude and longitude of each point: one for all steps, where they stay the same.
            places = table.constant(array)
            if places is not None:
                coordinates[own] = xr.Variable(array.dims, places, _plain(array.attributes))
                sizes.update(zip(array.dims, array.extents, strict=True))
                continue
        if not reason and own in array.dims:
            # The places along a dimension: one coordinate for all steps.
            places = table.constant(array) if len(array.dims) == 1 else None
            if places is not None:
                coordinates[own] = xr.Variable(array.dims, places, _plain(array.attributes))
                continue
            reason = "it has the name of a dimension, but it is no coordinate that stays the same in all steps"
        if reason:
            left_out[name] = reason
            continue
        sizes.update(zip(array.dims, array.extents, strict=True))
        is_constant = name in constants and table.is_constant(array)
        lazy = _LazyConstant(array) if is_constant else _LazyArray(array)
        dims = array.dims if is_constant else ("step", *array.dims)
        variable = _StreamVariable(dims, indexing.LazilyIndexedArray(lazy), _plain(array.attributes))
        chunks: dict[str, Any] = {} if is_constant else {"step": 1}
        for axis, dimension in enumerate(array.dims):
            chunks[dimension] = array.extents[axis] if array.grid is None else array.grid[axis]
        variable.encoding = {"preferred_chunks": chunks}
        variables[own] = variable
    for name, values in table.values.items():
        own = own_names.get(name)
        if own in OWN_NAMES:
            left_out[name] = OWN_NAMES[own]
        elif own is not None and own not in dropped:
            value_attributes = _plain(table.value_attributes[name])
            if name in constants and len(np.unique(values)) == 1:
                variables[own] = xr.Variable((), values[0], value_attributes)
            else:
                variables[own] = xr.Variable(("step",), values, value_attributes)
    steps = table.steps
    commit_time = _commit_time(steps.times_ns, decoders)
    time = variables.pop("time", None)
    if time is not None and time.dims != ("step",):
        variables["time"], time = time, None
    coordinates |= {"step": xr.Variable(("step",), steps.numbers), "commit_time": commit_time}
    if time is None and wanted in (None, "") and (times := times_of(table.values.get("Times", [None]))) is not None:
        time = xr.Variable(("step",), times)
    if "time" not in variables:
        coordinates["time"] = commit_time if time is None else time
    attributes: dict[str, Any] = {} if wanted else dict(table.attributes)
    attributes["forebay_address"] = steps.stream.address.path
    attributes["forebay_uuid"] = steps.uuid
    attributes["forebay_left_out"] = [f"{name}: {reason}" for name, reason in left_out.items()]
    decoded, attributes, named = xr.conventions.decode_cf_variables(
        {**variables, **coordinates}, attributes, **decoders
    )
    for key, variable in variables.items():
        if isinstance(variable, _StreamVariable):
            found = decoded[key]
            decoded[key] = _StreamVariable(found.dims, found._data, found.attrs, found.encoding, fastpath=True)
    return xr.Dataset(decoded, attrs=attributes).set_coords(named.union(coordinates) & decoded.keys())


def _commit_time(times_ns: NDArray[np.int64], decoders: Mapping[str, Any]) -> xr.Variable:
    """When the steps committed. The options of decoding are for the stream's own times: cftime has no nanoseconds."""
    variable = xr.Variable(("step",), times_ns, COMMIT_TIME_ATTRIBUTES)
    decode = decoders.get("decode_times", True)
    if decode is False or (isinstance(decode, Mapping) and decode.get("commit_time", True) is False):
        return variable
    decoded: xr.Variable = xr.conventions.decode_cf_variable("commit_time", variable)
    return decoded


def _groups(names: Iterable[str]) -> frozenset[str]:
    """The groups that variables lie in, and those above them; the root is the empty name."""
    groups = {""}
    for name in names:
        group = group_of(name)[0]
        while group:
            groups.add(group)
            group = group_of(group)[0]
    return frozenset(groups)


def _listed(groups: list[str]) -> str:
    if not groups:
        return "the stream has no groups"
    return f"it has {', '.join(groups[:3])}{f' and {len(groups) - 3} more' if len(groups) > 3 else ''}"


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a variable, where an array of one text is that text: so WRF writes them by ADIOS2."""
    return {
        name: value[0] if isinstance(value, tuple) and len(value) == 1 else value for name, value in attributes.items()
    }


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of decoding, and of opening; another one is an error of forebay.open, which names it."""
    decoders = {name: value for name, value in options.items() if name in _DECODERS}
    return decoders, {name: value for name, value in options.items() if name not in _DECODERS}


def _reason_not_beside(dims: tuple[str, ...], extents: tuple[int, ...], sizes: Mapping[str, int]) -> str:
    """Why a variable cannot be in one Dataset with dimensions of these sizes; empty if it can."""
    if "step" in dims:
        return "one of its dimensions is called step, as that of the steps is"
    for dimension, extent in zip(dims, extents, strict=True):
        if sizes.get(dimension, extent) != extent:
            return f"its dimension {dimension} has {extent} elements, that of other variables {sizes[dimension]}"
    return ""


def _shown_names(table: StreamTable, group: str | None) -> tuple[dict[str, str], set[str]]:
    """What variables are called in a group, and the coordinates that their attributes ``coordinates`` name.

    As in netCDF, a group also has the coordinates of its variables that lie in the groups above it.
    """
    names = [*table.arrays, *table.values]
    shown = {name: own for name in names if (own := _own_name(name, group)) is not None}
    arrays = [table.arrays[name] for name in shown if name in table.arrays]
    auxiliary = {word for array in arrays for word in str(array.attributes.get("coordinates", "")).split()}
    wanted = {"time", *auxiliary, *(dim for array in arrays for dim in array.dims)}
    above = group or ""
    while above:
        above = above.rpartition("/")[0]
        for name in names:
            own = _own_name(name, above)
            if own in wanted and own not in shown.values():
                shown[name] = own
    return shown, auxiliary


def _own_name(name: str, group: str | None) -> str | None:
    """What a variable is called in a group; None where it is not in it."""
    if group is None:
        return name
    of, own = group_of(name)
    return own if of == group else None


def _names(dropped: str | Iterable[str] | None) -> set[str]:
    return set() if dropped is None else {dropped} if isinstance(dropped, str) else set(dropped)
