# SPDX-License-Identifier: Apache-2.0
"""The steps of a running stream as samples for training: an iterable of dicts, and PyTorch's ``IterableDataset``.

Needs nothing beside Forebay. Where PyTorch is installed, :class:`StreamSamples` is a
``torch.utils.data.IterableDataset``; Ray Train and other loaders take it as a plain iterable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import forebay
from forebay import Address, Step, Stream, Variable
from forebay.connectors.opening import followed_stream, opening_options
from forebay.errors import InvalidArgumentError, VariableNotFoundError
from forebay.instance import InstanceLike, instance_path

if TYPE_CHECKING:
    from forebay.follower import StartText

    class _Dataset:
        """PyTorch's class, or nothing."""
else:
    try:
        from torch.utils.data import IterableDataset as _Dataset
    except ImportError:
        _Dataset = object

__all__ = ["StreamSamples"]


class StreamSamples(_Dataset):
    """A sample for each step of a stream as it commits: ``for sample in StreamSamples("RES/STREAM", ["T"])``.

    A sample is a dict: ``step`` (number), ``commit_time`` (nanoseconds since 1970), the variables as NumPy arrays, and
    texts as ``str``; or it is what ``transform`` makes of that. Arrays are copies that belong to the caller, because a
    training loop keeps and changes them. Each ``iter()`` opens the stream; pickles by address, so loaders with worker
    processes open it there.

    Several loaders with one ``consumer`` name share the steps if ``distribution`` is ``"on_demand"`` or
    ``"round_robin"``; each step then goes to one of them. Without it each of PyTorch's workers sees every step.

    Parameters
    ----------
    address : str, Address or Stream
        The stream. One that is given open is followed through its handle.
    variables : sequence of str, optional
        Which ones; None: all of each step but local arrays, which have no shape.
    transform : callable, optional
        Applied to each sample.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    consumer : str
        Name that the position is kept under: after a crash, training continues behind the last sample that was used.
        A sample counts as used when the next one is asked for.
    timeout : float, optional
        Seconds that one wait for the next step may take, then StepTimeoutError; None: for ever.
    start : {"cursor", "oldest", "latest", "next"} or int
        Where to begin, as in :meth:`forebay.Stream.follow`.
    **options
        Of :meth:`forebay.Stream.follow`, for example ``distribution="on_demand"`` or ``latest_only=True``, and of
        :func:`forebay.open`, for example ``run`` and ``wait_for_writer``.

    Raises
    ------
    VariableNotFoundError
        While iterating: a step does not have one of the variables.
    """

    def __init__(
        self,
        address: str | Address | Stream,
        variables: Sequence[str] | None = None,
        *,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        instance: InstanceLike | None = None,
        consumer: str = "",
        timeout: float | None = None,
        start: StartText | int = "cursor",
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(variables, str):
            raise InvalidArgumentError(f"variables is a sequence of names, not one text: write [{variables!r}]")
        self._source = Address.parse(address) if isinstance(address, str) else address
        self.variables = None if variables is None else list(variables)
        self._transform = transform
        self._instance = instance_path(instance)
        self._opening = opening_options(options)
        self._options: dict[str, Any] = {"consumer": consumer, "timeout": timeout, "start": start, **options}

    @property
    def address(self) -> Address:
        """The stream's."""
        return self._source.address if isinstance(self._source, Stream) else self._source

    def __iter__(self) -> Iterator[Any]:
        """The samples, until the stream has ended."""
        with (
            followed_stream(self._source, self._instance, self._opening, timeout=self._options["timeout"]) as stream,
            stream.follow(**self._options) as follower,
        ):
            for step in follower:
                sample = self._sample(step)
                yield sample if self._transform is None else self._transform(sample)

    def _sample(self, step: Step) -> dict[str, Any]:
        names = self.variables
        if names is None:
            names = [name for name, variable in step.items() if variable.kind is not forebay.ShapeKind.LOCAL_ARRAY]
        sample: dict[str, Any] = {"step": step.number, "commit_time": step.time_ns}
        for name in names:
            if name in ("step", "commit_time"):
                raise InvalidArgumentError(
                    f"a variable is called {name!r}, as a part of each sample is: name the others in variables",
                    str(step.address),
                )
            try:
                sample[name] = _plain(step[name])
            except VariableNotFoundError as error:
                raise VariableNotFoundError(f"{error.what}; samples take {names}", error.where) from None
        return sample


def _plain(variable: Variable) -> Any:
    """An array that belongs to the caller; texts as what loaders make batches of."""
    if variable.dtype.kind != "T":
        return variable.read()
    return str(variable[()]) if not variable.shape else [str(text) for text in variable[...]]
