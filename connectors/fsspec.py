# SPDX-License-Identifier: Apache-2.0
"""The files of a reservation, for programs that use fsspec: ``fsspec.open("forebay://RES/files/PATH")``.

They lie on this machine, so reading and writing works as for any local file. Needs the extra ``forebay[fsspec]``.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

import forebay
from forebay.errors import InvalidArgumentError
from forebay.instance import InstanceLike, instance_path

__all__ = ["ReservationFileSystem"]

_SCHEME = "forebay://"
_FILES = "files"


class ReservationFileSystem(DirFileSystem):  # type: ignore[misc]
    """``files/`` of one reservation; paths are relative to it.

    Parameters
    ----------
    reservation : str
        Its name. In a URL it is the first part: ``forebay://RES/files/PATH``.
    instance : Instance or path, optional
        The instance that has it, as in :class:`forebay.Admin`; with a URL ``fsspec.open(url, instance=…)``, or
        ``storage_options={"instance": …}``. Pickles carry it.

    Raises
    ------
    NotFoundError
        There is no such reservation.
    """

    protocol: ClassVar[str] = "forebay"
    # A reservation that was destroyed and made again has another folder: the instance is not to be found by its name.
    cachable: ClassVar[bool] = False

    def __init__(self, reservation: str, instance: InstanceLike | None = None, **options: Any) -> None:
        with forebay.Admin(instance) as admin:
            info = admin.reservation(reservation)
        self.reservation = reservation
        self.instance = instance_path(instance)
        options.pop("fs", None)
        options.pop("path", None)
        super().__init__(path=info.files_path, fs=LocalFileSystem(auto_mkdir=True), **options)

    def __reduce__(self) -> tuple[Any, ...]:
        named = ("reservation", "instance")
        options = {name: value for name, value in self.storage_options.items() if name not in named}
        return functools.partial(type(self), **options), (self.reservation, self.instance)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(item) for item in path]
        text = str(path)
        return _parts(text)[1] if text.startswith(_SCHEME) else text.rstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, str]:
        return {"reservation": _parts(url)[0]} if url.startswith(_SCHEME) else {}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        return f"{_SCHEME}{self.reservation}/{_FILES}/{self._strip_protocol(name).lstrip('/')}"

    def _join(self, path: Any) -> Any:
        for one in path if isinstance(path, list) else [path]:
            if ".." in str(one).split("/"):
                raise InvalidArgumentError(
                    f"a path lies inside files/ and has no '..': {one!r}", f"reservation {self.reservation}"
                )
        return super()._join(path)


def _parts(url: str) -> tuple[str, str]:
    """Reservation and path of a URL."""
    reservation, _, rest = url.removeprefix(_SCHEME).partition("/")
    kind, _, path = rest.partition("/")
    if kind != _FILES:
        raise InvalidArgumentError(
            f"a file's address is forebay://RESERVATION/{_FILES}/PATH, not {url!r}; for a stream use xarray, Zarr or "
            "forebay.open"
        )
    return reservation, path.rstrip("/")
