# SPDX-License-Identifier: Apache-2.0
"""The function `derive`: a stream from another one, by expressions and other operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any

from forebay import Address, Notice, Retention, Step, Stream
from forebay.connectors.derive.derivation import Progress, SkippedSteps, derive_stream, workers_by_default
from forebay.connectors.derive.expression import Expression
from forebay.connectors.derive.function import UserFunction, load_function
from forebay.connectors.derive.making import maker_of
from forebay.connectors.derive.precision import Packed, parse_precision
from forebay.connectors.derive.recipe import Operation
from forebay.connectors.derive.selection import parse_stride, parse_subset
from forebay.connectors.derive.summaries import Summaries, parse_histogram
from forebay.connectors.opening import followed_stream, opening_options
from forebay.errors import InvalidArgumentError, UnsupportedError
from forebay.follower import StartText
from forebay.instance import InstanceLike
from forebay.options import flag, integer, text, unknown_option

__all__ = ["derive"]

#: How many steps a cluster makes at once, unless told otherwise: each is in memory here as a whole when it comes.
_STEPS_AT_ONCE = 4
_WRITING = ("grace", "durability", "when_full", "block_timeout", "checksums", "force")


def derive(
    source: str | Address | Stream,
    output: str,
    *,
    expressions: str | Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    variables: Sequence[str] | None = None,
    function: str | Callable[..., Any] | None = None,
    subset: str | None = None,
    stride: int | str | None = None,
    precision: str | None = None,
    statistics: bool = False,
    histograms: str | Sequence[str] = (),
    instance: InstanceLike | None = None,
    consumer: str = "",
    latest_only: bool = False,
    start: StartText | int = "oldest",
    timeout: float | None = None,
    replace: bool = False,
    retention: Retention | str | None = None,
    workers: int | None = None,
    on: str | None = None,
    on_progress: Callable[[Progress, Step], object] | None = None,
    on_skip: Callable[[SkippedSteps], object] | None = None,
    on_notice: Callable[[Notice], object] | None = None,
    **options: Any,
) -> Progress:
    """Derives the stream ``output`` from ``source``, step by step, until that ends; returns what was done.

    >>> derive("run1/flow", "run1/speed", expressions="speed = sqrt(u*u + v*v + w*w)")

    The derived stream is an ordinary one: each step has its source's number, its blocks lie where the source's do, and
    its attributes ``derived_…`` say what it comes from. The source's single values and attributes come along. Called
    again, it continues after the last step. Steps that the source takes back are taken back here, too.

    Parameters
    ----------
    source : str, Address or Stream
        What to derive from.
    output : str
        ``"RESERVATION/STREAM"``; made if need be.
    expressions : str or sequence of str
        ``"NAME = EXPRESSION"`` each (:meth:`Expression.parse`), evaluated by numexpr element by element.
    names : mapping, optional
        Short names in expressions for variables: ``{"u": "velocity/u"}``.
    variables : sequence of str, optional
        Only these, and single values. Alone: they are copied.
    function : str or callable, optional
        Called for each step with its variables, after the expressions (:class:`UserFunction`): itself, or
        ``"MODULE.py:FUNCTION"``.
    subset : str, optional
        A box of arrays, ``"0:64,:,16:32"`` or ``"z=0:64,x=16:32"``; its ends are not included.
    stride : int or str, optional
        Each n-th element along all dimensions, or ``"1,2,2"`` along each of arrays of so many.
    precision : str, optional
        ``"float32"``, or ``"bits=N"`` or ``"bits=N:LOW:HIGH"`` for packed data as the CF conventions have it.
    statistics : bool
        Single values in place of the arrays: minimum, maximum, mean, standard deviation, number.
    histograms : str or sequence of str
        ``"NAME:BINS"`` or ``"NAME:BINS:LOW:HIGH"`` each, in place of the arrays.
    instance : Instance or path, optional
        That has both streams.
    consumer : str
        A name that the source's retention may wait for. Without one the source never waits: steps that it drops before
        they were read are skipped, and told.
    latest_only : bool
        After each step take the newest.
    start : "oldest", "latest", "next" or int
        Where to begin if ``output`` has no step.
    timeout : float, optional
        Seconds that the source, and each of its steps, is waited for; None: 60 for the source, for ever for a step.
    replace : bool
        Begin ``output`` anew, whatever it has.
    retention : Retention or str, optional
        Of ``output``; not given: as it is, or all.
    workers : int, optional
        Threads that compute; not given: half of the processors, four at most. With ``on``: steps that the cluster makes
        at once; not given: four.
    on : str, optional
        A cluster that makes the steps, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``. Its workers read the source for
        themselves; a step as a whole travels back, to be written here in its order.
    on_progress : callable, optional
        Called with :class:`Progress` and the source's step after each step.
    on_skip : callable, optional
        Called with :class:`SkippedSteps` when steps have no derived one.
    on_notice : callable, optional
        Called with a :class:`forebay.Notice` of the source, as by :meth:`forebay.Stream.follow`.
    **options
        Of :func:`forebay.open` for the source (``run``, ``wait_for_writer``, ``verify``) and for the output
        (``grace``, ``durability``, ``when_full``, ``block_timeout``, ``checksums``, ``force``).

    Raises
    ------
    InvalidArgumentError
        An expression is not allowed, or arrays do not fit each other.
    RefusedError
        ``output`` has steps that come from something else.
    BusyError
        Somebody writes ``output``.
    VariableNotFoundError
        No step so far had a variable that is needed. One that others had is skipped.
    StreamInterruptedError, StreamFailedError
        The source has lost its writers; the next call continues.
    UnsupportedError
        An element type that numexpr does not know; or a library is not installed.
    UnavailableError
        The cluster does not answer, or could not make a step; the next call continues.
    """
    opening = opening_options(options)
    writing = {name: options.pop(name) for name in _WRITING if name in options}
    if options:
        own = [name for name, one in signature(derive).parameters.items() if one.kind is Parameter.KEYWORD_ONLY]
        raise unknown_option("derive", next(iter(options)), [*own, "run", "wait_for_writer", "verify", *_WRITING])
    expressions = (expressions,) if isinstance(expressions, str) else tuple(expressions)
    parsed = [Expression.parse(one, names) for one in expressions]
    histograms = (histograms,) if isinstance(histograms, str) else tuple(histograms)
    after = _later_operations(function, subset, stride, precision, flag("statistics", statistics), histograms)
    if not parsed and not after and not variables:
        raise InvalidArgumentError("nothing is to be derived: give expressions, another operation, or variables")
    if workers is not None and integer("workers", workers) < 1:
        raise InvalidArgumentError(f"workers is a number of threads from 1 on, not {workers}")
    rule = Retention.parse(retention) if isinstance(retention, str) else retention
    if instance is None and isinstance(source, Stream):
        instance = source._instance
    operations: list[Operation] = []
    with ExitStack() as computing:
        if parsed:
            _check_numexpr()
            from forebay.connectors.derive.evaluation import Expressions, threads_limited

            operations.append(Expressions(parsed))
            if on is None:
                computing.enter_context(threads_limited(workers_by_default() if workers is None else workers))
        operations += after
        maker = computing.enter_context(maker_of(on))
        stream = computing.enter_context(followed_stream(source, instance, opening, timeout=timeout))
        return derive_stream(
            stream,
            output,
            operations,
            maker,
            ahead=1 if on is None else workers or _STEPS_AT_ONCE,
            instance=instance,
            variables=variables,
            consumer=consumer,
            latest_only=latest_only,
            start=start,
            timeout=timeout,
            replace=replace,
            retention=rule,
            writing=writing,
            on_progress=on_progress,
            on_skip=on_skip,
            on_notice=on_notice,
        )


def _later_operations(
    function: str | Callable[..., Any] | None,
    subset: str | None,
    stride: int | str | None,
    precision: str | None,
    statistics: bool,
    histograms: Sequence[str],
) -> list[Operation]:
    """What comes after the expressions, in this order."""
    operations: list[Operation] = []
    if function is not None:
        operations.append(_user_function(function))
    if subset is not None:
        operations.append(parse_subset(text("subset", subset)))
    if stride is not None:
        operations.append(parse_stride(str(stride)))
    if precision is not None:
        operations.append(parse_precision(text("precision", precision)))
    if statistics or histograms:
        if isinstance(operations[-1] if operations else None, Packed):
            raise InvalidArgumentError("histograms and statistics would be those of packed numbers: leave out bits=N")
        operations.append(Summaries(statistics, [parse_histogram(one) for one in histograms]))
    return operations


def _user_function(function: str | Callable[..., Any]) -> UserFunction:
    if callable(function):
        return UserFunction(function, f"{function.__module__}:{getattr(function, '__qualname__', 'function')}")
    return load_function(text("function", function))


def _check_numexpr() -> None:
    if find_spec("numexpr") is None:
        raise UnsupportedError("expressions need numexpr: pip install 'forebay[derive]'")
