# SPDX-License-Identifier: Apache-2.0
"""The instance that a command line means: what ``--root DIR`` names, before or after the command; else what the
environment names; else the user's own; and where that was never started, the one that the centre's configuration names.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from forebay.errors import InvalidArgumentError
from forebay.instance import Instance

__all__ = ["choose", "chosen", "chosen_or_current", "named", "named_or_own", "one_command_line"]

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


def named() -> Instance | None:
    """What ``--root`` named."""
    return _chosen.get()


def named_or_own() -> Instance:
    """The instance that is to be started or ended: never the centre's, unless it is named."""
    return named() or Instance.current()


def chosen() -> Instance | None:
    """What ``--root`` named, or the centre's; None: that of the environment, for `forebay.Admin` and `forebay.open`."""
    return named() or _of_the_centre()


def chosen_or_current() -> Instance:
    """The instance whose manager is meant."""
    return chosen() or Instance.current()


def _of_the_centre() -> Instance | None:
    """The running instance that the centre's configuration names, for a user who has named none and has none.

    Raises
    ------
    InvalidArgumentError
        The configuration is no TOML.
    """
    if any(os.environ.get(name) for name in ("FOREBAY_ROOT", "FOREBAY_SOCKET", "FOREBAY_SERVER")):
        return None
    if Instance.current().endpoint.exists():
        return None
    path = Path(os.environ.get("FOREBAY_CONFIG") or "/etc/forebay/forebay.toml")
    try:
        root = tomllib.loads(path.read_text(encoding="utf-8")).get("root")
    except (FileNotFoundError, PermissionError):
        return None
    except ValueError as error:
        raise InvalidArgumentError(f"the centre's configuration cannot be read: {error}", str(path)) from None
    instance = Instance.below(root) if isinstance(root, str) and root else None
    return instance if instance is not None and instance.endpoint.exists() else None
