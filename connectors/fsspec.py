# SPDX-License-Identifier: Apache-2.0
"""The files of reservations, for programs that use fsspec: ``fsspec.open("forebay://RES/files/PATH")``.

They lie on this machine, so reading and writing works as for any local file. Needs the extra ``forebay[fsspec]``.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import uuid
from pathlib import Path
from typing import Any, ClassVar

from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.transaction import Transaction
from fsspec.utils import stringify_path

import forebay
from forebay.errors import InvalidArgumentError, UnsupportedError
from forebay.instance import InstanceLike, instance_path

__all__ = ["ReservationFileSystem"]

_SCHEME = "forebay://"
_FILES = "files"


class _FileInTransaction(io.BufferedWriter):
    """A file that is written under a hidden name beside its own, which it gets by :meth:`commit`."""

    def __init__(self, path: Path, mode: str) -> None:
        self._path, self._exclusive = path, "x" in mode
        if self._exclusive and path.exists():
            raise FileExistsError(f"it exists already: {path}")
        self._temporary = path.with_name(f".forebay-{uuid.uuid4().hex}.part")
        # So the file has the rights that the user's mask leaves it.
        raw = io.FileIO(os.open(self._temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "w")
        super().__init__(raw)
        if path.exists():
            # By the descriptor: others who may write in this folder may have put a link in the name's place.
            os.fchmod(raw.fileno(), stat.S_IMODE(path.stat().st_mode))
            if "a" in mode:
                with path.open("rb") as before:
                    shutil.copyfileobj(before, self)

    def prepare(self) -> None:
        """Puts the bytes on disk: a full file system shows here. Idempotent."""
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            self.close()

    def commit(self) -> None:
        """The file appears, whole."""
        self.prepare()
        if self._exclusive:
            os.link(self._temporary, self._path)
            self._temporary.unlink()
        else:
            self._temporary.replace(self._path)

    def discard(self) -> None:
        """The file is as it was before."""
        self._temporary.unlink(missing_ok=True)
        self.close()


class _WholeTransaction(Transaction):  # type: ignore[misc]
    """No file appears before the bytes of all are on disk."""

    def complete(self, commit: bool = True) -> None:
        """Lets the files appear, or drops them."""
        if commit:
            try:
                for file in self.files:
                    file.prepare()
            except BaseException:
                super().complete(commit=False)
                raise
        super().complete(commit)


class ReservationFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of the reservations of an instance. A path is ``RES/files/PATH``: a URL without ``forebay://``.

    In a transaction (``with fs.transaction:``) files appear when it ends, each of them whole; after an exception all
    are as they were before.

    Parameters
    ----------
    instance : Instance or path, optional
        The instance that has the reservations, as in :class:`forebay.Admin`; with a URL
        ``fsspec.open(url, instance=…)``, or ``storage_options={"instance": …}``. Pickles carry it.

    Raises
    ------
    NotFoundError
        By whatever takes a path: there is no such reservation.
    InvalidArgumentError
        A path has not the form ``RES/files/PATH``, or has ``..``.
    """

    protocol: ClassVar[str] = "forebay"
    # Which instance the environment names may change.
    cachable: ClassVar[bool] = False
    transaction_type: ClassVar[type[Transaction]] = _WholeTransaction

    def __init__(self, instance: InstanceLike | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.instance = instance_path(instance)
        self._local = LocalFileSystem(auto_mkdir=True)
        self._folders: dict[str, Path] = {}  # by the reservation's name

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name: value for name, value in self.storage_options.items() if name != "instance"}
        return _opened, (type(self), self.instance, options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(item) for item in path]
        text = stringify_path(path)
        inside = text.removeprefix(_SCHEME).strip("/")
        parts = inside.split("/")
        if text.startswith(_SCHEME) and (len(parts) < 2 or parts[1] != _FILES):
            raise InvalidArgumentError(
                f"a file's address is forebay://RESERVATION/{_FILES}/PATH, not {text!r}; for a stream use xarray, "
                "Zarr or forebay.open"
            )
        return inside

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        return f"{_SCHEME}{self._strip_protocol(name)}"

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """What lies in a folder."""
        inside = self._strip_protocol(path)
        names = self._above_files(inside)
        if names is not None:
            return [_folder(name) for name in names] if detail else names
        found = self._local.ls(self._place(inside), detail=True)
        listed = [self._named(inside, entry) for entry in found]
        return listed if detail else [entry["name"] for entry in listed]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Size, type and times of a file or folder."""
        inside = self._strip_protocol(path)
        if self._above_files(inside) is not None:
            return _folder(inside)
        return {**self._local.info(self._place(inside)), "name": inside}

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Makes a folder, and those above it."""
        self._local.mkdir(self._place(path), create_parents, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a folder and those above it."""
        self._local.makedirs(self._place(path), exist_ok)

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""
        self._local.rmdir(self._place_below(path))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self._local.rm_file(self._place(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and folders with ``recursive``."""
        places = [self._place_below(item) for item in (path if isinstance(path, list) else [path])]
        self._local.rm(places, recursive, maxdepth)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copies a file, also between reservations; a folder is made."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path1, "rb") as source, self.open(path2, "wb") as target:
            shutil.copyfileobj(source, target)

    def mv(self, path1: str, path2: str, recursive: bool = True, **options: Any) -> None:
        """Moves files or folders, also between reservations."""
        self._local.mv(self._place_below(path1), self._place(path2), recursive)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Makes an empty file, or empties one."""
        self._local.touch(self._place(path), truncate)

    def created(self, path: str) -> Any:
        """When a file was made."""
        return self._local.created(self._place(path))

    def modified(self, path: str) -> Any:
        """When a file was written last."""
        return self._local.modified(self._place(path))

    def _open(self, path: str, mode: str = "rb", autocommit: bool = True, **options: Any) -> Any:
        place = Path(self._place(path))
        if autocommit or mode == "rb":
            return self._local._open(str(place), mode)
        if "+" in mode:
            raise UnsupportedError(
                f"mode {mode!r} changes a file in place, which a transaction cannot take back: use 'w', 'a' or 'x', or "
                "open it outside",
                str(place),
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        return _FileInTransaction(place, mode)

    def _above_files(self, inside: str) -> list[str] | None:
        """What lies in a folder that is no reservation's ``files/``; None for those that are, and what is in them."""
        parts = inside.split("/")
        if len(parts) > 1:
            return None
        if not inside:
            with forebay.Admin(self.instance) as admin:
                return [info.name for info in admin.reservations()]
        self._folder_of(inside)
        return [f"{inside}/{_FILES}"]

    def _place(self, path: str) -> str:
        """Where it lies on this machine."""
        inside = self._strip_protocol(path)
        reservation, _, rest = inside.partition("/")
        kind, *below = rest.split("/")
        if kind != _FILES:
            raise InvalidArgumentError(f"a path is RESERVATION/{_FILES}/PATH, not {inside!r}")
        if ".." in below:
            raise InvalidArgumentError(
                f"a path lies inside {_FILES}/ and has no '..': {inside!r}", f"reservation {reservation}"
            )
        return str(self._folder_of(reservation).joinpath(*below))

    def _place_below(self, path: str) -> str:
        """Of what may go: files/ itself does not."""
        place = self._place(path)
        if self._strip_protocol(path).count("/") < 2:
            raise InvalidArgumentError(f"{_FILES}/ stays as long as its reservation: remove what lies in it", place)
        return place

    def _folder_of(self, reservation: str) -> Path:
        folder = self._folders.get(reservation)
        # A reservation that was destroyed and made again has another folder.
        if folder is None or not folder.is_dir():
            with forebay.Admin(self.instance) as admin:
                folder = Path(admin.reservation(reservation).files_path)
            self._folders[reservation] = folder
        return folder

    def _named(self, inside: str, entry: dict[str, Any]) -> dict[str, Any]:
        """An entry of a local listing of ``inside`` under its own path."""
        place = self._place(inside)
        below = str(entry["name"]).removeprefix(place).strip("/")
        return {**entry, "name": f"{inside}/{below}" if below else inside}


def _folder(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _opened(kind: type[ReservationFileSystem], instance: str | None, options: dict[str, Any]) -> ReservationFileSystem:
    return kind(instance, **options)
