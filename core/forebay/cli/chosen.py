# SPDX-License-Identifier: Apache-2.0
"""The instance that a command line names by ``--root DIR``, before or after the command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from forebay.instance import Instance

__all__ = ["choose", "chosen", "chosen_or_current", "one_command_line"]

_chosen: ContextVar[Instance | None] = ContextVar("chosen_instance", default=None)


@contextlib.contextmanager
def one_command_line() -> Iterator[None]:
    """What is chosen inside holds until the end of it."""
    token = _chosen.set(None)
    try:
        yield
    finally:
        _chosen.reset(token)


def choose(root: str) -> None:
    """This command line is for the instance below ``root``."""
    _chosen.set(Instance.below(root))


def chosen() -> Instance | None:
    """What ``--root`` named; None: the instance that the environment names, for `forebay.Admin` and `forebay.open`."""
    return _chosen.get()


def chosen_or_current() -> Instance:
    """The instance whose manager is meant: what ``--root`` named, else that of the environment."""
    return _chosen.get() or Instance.current()
