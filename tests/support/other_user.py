# SPDX-License-Identifier: Apache-2.0
"""Functions that run as another user, in a forked process."""

from __future__ import annotations

import os
import pickle
import select
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from forebay import ForebayError

__all__ = ["Child", "as_user", "folder_for_all", "python_of", "python_path"]


def as_user(uid: int, function: Callable[[], Any], *, groups: Sequence[int] = ()) -> Any:
    """What ``function`` returns in a child of that user, with that user's number as its group and ``groups`` besides.

    A ForebayError that it raises is raised here. Needs root.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups(list(groups))
            os.setgid(uid)
            os.setuid(uid)
            answer: tuple[Any, ForebayError | None]
            try:
                answer = (function(), None)
            except ForebayError as error:
                answer = (None, error)
            os.write(writing, pickle.dumps(answer))
            status = 0
        except BaseException:
            traceback.print_exc()  # nobody else would say why there is no answer
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    value, refusal = pickle.loads(told)
    if refusal is not None:
        raise refusal
    return value


@contextmanager
def folder_for_all(prefix: str) -> Iterator[Path]:
    """A folder that all users may enter and nobody but its owner may list. pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix=f"forebay-{prefix}-") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


class Child:
    """A function in a process of another user: ``tell()`` in it reports, and so does its end."""

    def __init__(self, uid: int, function: Callable[[Callable[[Any], None]], Any]) -> None:
        self._reading, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)

                def tell(value: Any) -> None:
                    os.write(writing, pickle.dumps(value))

                try:
                    tell(function(tell))
                except ForebayError as error:
                    tell(f"{error.code.value}: {error.what}")
            except BaseException:
                traceback.print_exc()  # nobody else would say why it tells nothing
            finally:
                os._exit(0)
        os.close(writing)
        self._pipe = os.fdopen(self._reading, "rb", buffering=0)

    def next(self) -> Any:
        """What it tells next."""
        assert select.select([self._pipe], [], [], 60)[0], "the child tells nothing"
        return pickle.load(self._pipe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)


def python_of(uid: int) -> Path | None:
    """A Python of this version that the user can start, and that finds what this one has by `python_path`; else None.

    The one of the tests may lie in somebody's home; the system's does not.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (Path(sys.executable), Path("/usr/bin") / version):
        real = os.path.realpath(candidate)
        if as_user(uid, lambda real=real: os.access(real, os.X_OK) and _can_read(sys.path)):  # type: ignore[misc]
            return candidate
    return None


def python_path() -> str:
    """``$PYTHONPATH`` of such a Python: where this one looks, but for its own library."""
    library = sysconfig.get_paths()["stdlib"]

    def is_own(path: str) -> bool:
        return path.endswith(".zip") or (path.startswith(library) and "site-packages" not in path)

    return os.pathsep.join(path for path in sys.path if path and not is_own(path))


def _can_read(folders: Sequence[str]) -> bool:
    return all(os.access(folder, os.R_OK | os.X_OK) for folder in folders if "site-packages" in folder)
