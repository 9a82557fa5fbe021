# SPDX-License-Identifier: Apache-2.0
"""The files of reservations, for programs that use fsspec: ``fsspec.open("forebay://RES/files/PATH")``.

They lie on this machine, so reading and writing works as for any local file. Links that another user has put there are
not followed. Needs the extra ``forebay[fsspec]``.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar

from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.transaction import Transaction
from fsspec.utils import stringify_path

import forebay
from forebay.errors import InvalidArgumentError, UnsupportedError
from forebay.files.by_descriptor import found_entry, found_place
from forebay.instance import InstanceLike, instance_path

__all__ = ["ReservationFileSystem"]

_SCHEME = "forebay://"
_FILES = "files"


class _FileInTransaction(io.BufferedWriter):
    """A file that is written under a hidden name beside its own, which it gets by :meth:`commit`."""

    def __init__(self, path: Path, mode: str) -> None:
        self._exclusive = "x" in mode
        if self._exclusive and os.path.lexists(path):
            raise FileExistsError(f"it exists already: {path}")
        # Others who may write here may exchange folders and names.
        with ExitStack() as stack:
            self._path = stack.enter_context(found_place(path, makes=True))
            before = None
            with suppress(FileNotFoundError):
                before = stack.enter_context(found_entry(path))
            self._temporary = self._path.with_name(f".forebay-{uuid.uuid4().hex}.part")
            # So the file has the rights that the user's mask leaves it.
            raw = io.FileIO(os.open(self._temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "w")
            super().__init__(raw)
            if before is not None:
                os.fchmod(raw.fileno(), stat.S_IMODE(before.stat().st_mode))
                if "a" in mode:
                    with before.open("rb") as content:
                        shutil.copyfileobj(content, self)
            self._folder = stack.pop_all()

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
        self._folder.close()

    def discard(self) -> None:
        """The file is as it was before."""
        self._temporary.unlink(missing_ok=True)
        self._folder.close()
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
        with found_place(self._place(path), makes=create_parents) as place:
            self._local.mkdir(str(place), create_parents, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a folder and those above it."""
        with found_place(self._place(path), makes=True) as place:
            self._local.makedirs(str(place), exist_ok)

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""
        with found_place(self._place_below(path)) as place:
            self._local.rmdir(str(place))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        with found_place(self._place(path)) as place:
            self._local.rm_file(str(place))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and folders with ``recursive``."""
        for item in path if isinstance(path, list) else [path]:
            with found_place(self._place_below(item)) as place:
                if place.is_symlink():
                    place.unlink()
                else:
                    self._local.rm(str(place), recursive, maxdepth)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copies a file, also between reservations; a folder is made."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path1, "rb") as source:
            # Opening the target to write would empty the source.
            with suppress(FileNotFoundError), found_entry(self._place(path2)) as there:
                if os.path.samestat(os.fstat(source.fileno()), there.stat()):
                    raise shutil.SameFileError(f"{path1!r} and {path2!r} are the same file")
            with self.open(path2, "wb") as target:
                shutil.copyfileobj(source, target)

    def mv(self, path1: str, path2: str, recursive: bool = True, **options: Any) -> None:
        """Moves files or folders, also between reservations."""
        to = self._place(path2)
        with ExitStack() as stack:
            source = stack.enter_context(found_place(self._place_below(path1)))
            target = stack.enter_context(found_place(to, makes=True))
            if target.is_symlink():  # to a folder, perhaps
                target = stack.enter_context(found_entry(to))
            self._local.mv(str(source), str(target), recursive)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Makes an empty file, or empties one."""
        place = Path(self._place(path))
        _make_file(place)
        with found_entry(place) as entry:
            self._local.touch(str(entry), truncate)

    def created(self, path: str) -> Any:
        """When a file was made."""
        return self._local.created(self._place(path))

    def modified(self, path: str) -> Any:
        """When a file was written last."""
        return self._local.modified(self._place(path))

    def _open(self, path: str, mode: str = "rb", autocommit: bool = True, **options: Any) -> Any:
        place = Path(self._place(path))
        if autocommit or mode == "rb":
            is_new = "r" not in mode and _make_file(place)
            if "x" in mode and not is_new:
                raise FileExistsError(f"it exists already: {place}")
            with found_entry(place) as entry:
                file = self._local._open(str(entry), mode.replace("x", "w"))
            file.path = str(place)
            return file
        if "+" in mode:
            raise UnsupportedError(
                f"mode {mode!r} changes a file in place, which a transaction cannot take back: use 'w', 'a' or 'x', or "
                "open it outside",
                str(place),
            )
        return _FileInTransaction(place, mode)

    def _above_files(self, inside: str) -> list[str] | None:
        """What lies in a folder that is no reservation's ``files/``; None for those that are, and what is in them."""
        parts = inside.split("/")
        if len(parts) > 1:
            return None
        if not inside:
            with forebay.Admin(self.instance) as admin:
                return [info.name for info in admin.reservations(count_files=False)]
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
                folder = Path(admin.reservation(reservation, count_files=False).files_path)
            self._folders[reservation] = folder
        return folder

    def _named(self, inside: str, entry: dict[str, Any]) -> dict[str, Any]:
        """An entry of a local listing of ``inside`` under its own path."""
        place = self._place(inside)
        below = str(entry["name"]).removeprefix(place).strip("/")
        return {**entry, "name": f"{inside}/{below}" if below else inside}


def _make_file(place: Path) -> bool:
    """Makes an empty file, and folders above it; False if something has the name."""
    with found_place(place, makes=True) as new:
        try:
            os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            return False
    return True


def _folder(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _opened(kind: type[ReservationFileSystem], instance: str | None, options: dict[str, Any]) -> ReservationFileSystem:
    return kind(instance, **options)
