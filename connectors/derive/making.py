# SPDX-License-Identifier: Apache-2.0
"""Where derived steps are made: in this process, or on the workers of a Dask or Ray cluster (``--on``).

A cluster's worker opens the source's step for itself and makes the whole derived one, which travels back. Whoever
derives writes it, in the source's order. So a cluster neither orders nor writes anything, and a worker that dies costs
only time.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

from forebay import Step
from forebay.closing import Closing
from forebay.connectors.derive.fields import Array, Box, Field, Fields, MissingVariableError
from forebay.connectors.derive.recipe import Recipe
from forebay.errors import ForebayError, InvalidArgumentError, UnavailableError, UnsupportedError

__all__ = ["Maker", "Making", "check_cluster", "maker_of"]

#: Fields, and the attributes that belong to no variable.
Made = tuple[Fields, dict[str, Any]]

_ADDRESS = re.compile(r"(dask|ray)://([^/\s]+:[0-9]{1,5})")
_CONNECT_SECONDS = 30


class Making(Protocol):
    """A derived step that is being made."""

    def result(self) -> Made:
        """Waits for it.

        Raises
        ------
        MissingVariableError
            The step lacks a variable that is needed.
        StepGoneError, StepNotFoundError
            A worker could not open it any more.
        UnavailableError
            The cluster could not make it.
        """

    def cancel(self) -> None:
        """Nobody waits for it any more."""


class Maker(Closing, ABC):
    """Makes derived steps. A context manager."""

    @abstractmethod
    def begin(self, step: Step, recipe: Recipe) -> Making:
        """Begins with one; the step is held until it is made."""

    def close(self) -> None:
        """Lets the cluster go."""


def maker_of(on: str | None) -> Maker:
    """The maker: this process, or the cluster that ``on`` names.

    Raises
    ------
    InvalidArgumentError, UnsupportedError
        See `check_cluster`.
    UnavailableError
        The cluster does not answer.
    """
    if on is None:
        return _Here()
    kind, address = check_cluster(on)
    return _Dask(address) if kind == "dask" else _Ray(on)


def check_cluster(on: str) -> tuple[str, str]:
    """``dask`` or ``ray``, and ``HOST:PORT``.

    Raises
    ------
    InvalidArgumentError
        It is neither ``dask://HOST:PORT`` nor ``ray://HOST:PORT``.
    UnsupportedError
        The library is not installed.
    """
    match = _ADDRESS.fullmatch(on)
    if match is None:
        raise InvalidArgumentError(
            f"--on is dask://HOST:PORT, the scheduler's address, or ray://HOST:PORT, not {on[:80]!r}"
        )
    if find_spec({"dask": "distributed", "ray": "ray"}[match[1]]) is None:
        raise UnsupportedError(f"--on {match[1]}:// needs {match[1]}: pip install 'forebay[{match[1]}]'")
    return match[1], match[2]


class _Here(Maker):
    def begin(self, step: Step, recipe: Recipe) -> Making:
        return _MakingHere(step, recipe)


class _MakingHere:
    """Blocks are read and computed when they are written."""

    def __init__(self, step: Step, recipe: Recipe) -> None:
        self._step = step
        self._recipe = recipe

    def result(self) -> Made:
        return self._recipe.fields(self._step)

    def cancel(self) -> None:
        """Nothing has begun."""


class _Dask(Maker):
    def __init__(self, address: str) -> None:
        from distributed import Client

        try:
            self._client = Client(f"tcp://{address}", timeout=_CONNECT_SECONDS, set_as_default=False)
        except OSError as error:
            raise UnavailableError(f"no Dask scheduler answers there: {str(error)[:120]}", address) from None

    def begin(self, step: Step, recipe: Recipe) -> Making:
        future = self._client.submit(_made_whole, step, recipe, pure=False)
        return _MakingThere(future.result, future.cancel)

    def close(self) -> None:
        self._client.close()


class _Ray(Maker):
    def __init__(self, address: str) -> None:
        import ray

        self._ray = ray
        try:
            ray.init(address, log_to_driver=False)
        except Exception as error:
            raise UnavailableError(f"no Ray cluster answers there: {str(error)[:120]}", address) from None
        self._made_whole = ray.remote(_made_whole)

    def begin(self, step: Step, recipe: Recipe) -> Making:
        result = self._made_whole.remote(step, recipe)
        return _MakingThere(partial(self._ray.get, result), partial(self._ray.cancel, result))

    def close(self) -> None:
        self._ray.shutdown()


class _MakingThere:
    """A task of the cluster."""

    def __init__(self, wait: Callable[[], Any], cancel: Callable[[], object]) -> None:
        self._wait = wait
        self._cancel = cancel

    def result(self) -> Made:
        try:
            made = self._wait()
        except ForebayError:
            raise
        except Exception as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, ForebayError):
                raise cause from None
            raise UnavailableError(
                f"the cluster could not make the step: {type(error).__name__}: {str(error)[:160]}; the same line goes "
                "on there"
            ) from error
        if isinstance(made, _Missing):
            raise MissingVariableError(made.what, name=made.name)
        return made  # type: ignore[no-any-return]

    def cancel(self) -> None:
        self._cancel()


class _Missing:
    """What a worker says in place of a derived step."""

    def __init__(self, error: MissingVariableError) -> None:
        self.what, self.name = error.what, error.name


def _made_whole(step: Step, recipe: Recipe) -> Made | _Missing:
    """Runs on a worker."""
    with step:
        try:
            fields, attributes = recipe.fields(step)
        except MissingVariableError as error:
            return _Missing(error)
        return {name: _MadeField(field) for name, field in fields.items()}, attributes


class _MadeField(Field):
    """A field that has been computed, block by block."""

    def __init__(self, field: Field) -> None:
        self.dtype, self.shape, self.is_local = field.dtype, field.shape, field.is_local
        self.boxes, self.dims, self.attributes = tuple(field.boxes), field.dims, dict(field.attributes)
        self._contents: dict[Box, Any] = {box: field.content(box) for box in self.boxes}

    def read(self, box: Box) -> Array:
        content: Array = self._contents[box]
        return content

    def content(self, box: Box) -> Any:
        return self._contents[box]
