# SPDX-License-Identifier: Apache-2.0
"""A stream as a Ray dataset with a row for each step: ``read_stream("RES/STREAM", ["T"])``.

The dataset has the steps that are in the stream now. Needs the extra ``forebay[ray]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import ray.data
from ray.data.block import Block, BlockAccessor, BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from forebay import Address, Stream
from forebay.connectors.opening import opening_options
from forebay.connectors.stream_table import ArrayOverSteps, StepTable, StreamTable
from forebay.errors import InvalidArgumentError
from forebay.instance import InstanceLike

__all__ = ["StreamDatasource", "read_stream"]


def read_stream(
    address: str | Address | Stream,
    variables: Sequence[str] | None = None,
    *,
    instance: InstanceLike | None = None,
    **options: Any,
) -> ray.data.Dataset:
    """The steps of a stream as rows: ``step``, ``commit_time`` (nanoseconds since 1970), and a column per variable.

    Nothing is read until Ray runs the dataset. Its workers read for themselves, through ``instance``, else the one that
    their environment names.

    Parameters
    ----------
    address : str, Address or Stream
        The stream.
    variables : sequence of str, optional
        Columns; None: all variables that have one shape and type in all steps and that Ray has a type for.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    **options
        Of :func:`ray.data.read_datasource`, for example ``concurrency``, and of :func:`forebay.open`, for example
        ``run``.

    Raises
    ------
    StreamNotFoundError, StepNotFoundError
        There is no such stream, or it has no steps yet.
    InvalidArgumentError
        A named variable is no column; the text says why.
    """
    source = StreamDatasource(address, variables, instance, **opening_options(options))
    # A block is one step: with fewer blocks than tasks Ray would split or merge them.
    return ray.data.read_datasource(source, **{"override_num_blocks": len(source.steps), **options})


class StreamDatasource(Datasource):  # type: ignore[misc]
    """What Ray reads: a task for some steps, a block for each.

    Attributes
    ----------
    steps : StepTable
        The steps that the stream had when this was made.
    left_out : dict of str to str
        Variables that are no columns, with the reason.
    """

    def __init__(
        self,
        address: str | Address | Stream,
        variables: Sequence[str] | None = None,
        instance: InstanceLike | None = None,
        **opening: Any,
    ) -> None:
        super().__init__()
        table = StreamTable.read(address, instance, opening)
        self.steps: StepTable = table.steps
        self.left_out = dict(table.left_out)
        self._arrays: dict[str, ArrayOverSteps] = {}
        self._values: dict[str, Any] = {}
        for name, array in table.arrays.items():
            if array.dtype.kind in "iuf" and array.dtype.itemsize <= 8:
                self._arrays[name] = array
            else:
                self.left_out[name] = f"Ray has no column of {array.dtype}"
        for name, values in table.values.items():
            if values.dtype.kind in "iufO" and values.dtype.itemsize <= 8:
                self._values[name] = values
            else:
                self.left_out[name] = f"Ray has no column of {values.dtype}"
        if variables is not None:
            for name in variables:
                if name not in self._arrays and name not in self._values:
                    reason = self.left_out.get(name, "the stream does not have it")
                    raise InvalidArgumentError(f"{name} is no column: {reason}", f"stream {self.steps.stream.address}")
            self._arrays = {name: array for name, array in self._arrays.items() if name in variables}
            self._values = {name: values for name, values in self._values.items() if name in variables}

    def get_name(self) -> str:
        """How Ray calls the source."""
        return "Forebay"

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all columns."""
        return len(self.steps) * self._row_bytes()

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """At most ``parallelism`` tasks of neighbouring steps."""
        tasks = []
        for part in np.array_split(np.arange(len(self.steps)), min(max(1, parallelism), len(self.steps))):
            metadata = BlockMetadata(
                num_rows=len(part), size_bytes=len(part) * self._row_bytes(), exec_stats=None, input_files=None
            )
            tasks.append(ReadTask(self._reader(part.tolist()), metadata, per_task_row_limit=per_task_row_limit))
        return tasks

    def _row_bytes(self) -> int:
        return 16 + sum(int(np.prod(array.extents)) * array.dtype.itemsize for array in self._arrays.values())

    def _reader(self, indices: list[int]) -> Callable[[], Iterator[Block]]:
        steps, arrays, values = self.steps, self._arrays, self._values

        def read() -> Iterator[Block]:
            for index in indices:
                row: dict[str, Any] = {
                    "step": steps.numbers[index : index + 1],
                    "commit_time": steps.times_ns[index : index + 1],
                }
                for name, column in values.items():
                    row[name] = column[index : index + 1]
                for name, array in arrays.items():
                    row[name] = array.read([index], (slice(None),) * len(array.extents))
                yield BlockAccessor.batch_to_block(row)

        return read
