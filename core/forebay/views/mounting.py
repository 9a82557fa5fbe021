# SPDX-License-Identifier: Apache-2.0
"""Mounts a stream as a folder of files, by a process of its own; finds mounts whose process has died.

``python -m forebay.views.mounting READY REQUEST`` is that process. It ends when the folder is unmounted.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from forebay.errors import InvalidArgumentError, NotFoundError, StorageError, UnsupportedError
from forebay.instance import InstanceLike, instance_path

__all__ = ["dead_mounts", "mount", "remove_dead_mounts", "unmount"]

_READY = b"ready"
_START_SECONDS_MAX = 60.0
_KIND = "fuse.forebay"
_DEVICE = Path("/dev/fuse")
_FUSERMOUNT = "fusermount3"
_NO_FUSERMOUNT = f"there is no {_FUSERMOUNT}; install it (Debian: fuse3)"
_MOUNTS = Path("/proc/self/mountinfo")


def mount(stream: str, folder: Path, formats: Sequence[str], instance: InstanceLike | None) -> None:
    """Mounts the stream. The mount outlives this process.

    Raises
    ------
    NotFoundError
        There is no such folder or stream.
    UnsupportedError
        Forebay was built without libfuse3, or the kernel or fusermount3 refuses.
    """
    _check_node()
    folder = Path(os.path.realpath(folder))
    if str(folder) in dead_mounts():
        _run_fusermount("-u", "-z", "--", str(folder))
    if not folder.is_dir():
        raise NotFoundError("a stream is mounted on a folder that is there: make it first", str(folder))
    if any(folder.iterdir()):
        raise InvalidArgumentError("the folder is not empty, and the mount would hide what it has", str(folder))
    heard, ready = os.pipe()
    request = {"stream": stream, "folder": str(folder), "formats": list(formats), "instance": instance_path(instance)}
    # What fusermount3 and libfuse say of a failure; both write to stderr.
    said = os.memfd_create("forebay-mount")
    try:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "forebay.views.mounting", str(ready), json.dumps(request)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                pass_fds=[ready],
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(ready)
        if not select.select([heard], [], [], _START_SECONDS_MAX)[0]:
            process.kill()
            raise StorageError(f"the process of the mount says nothing for {_START_SECONDS_MAX:.0f} s", str(folder))
        if (answer := os.read(heard, 4096)) != _READY:
            text = answer.decode(errors="replace") or "the process of the mount has ended"
            fuse_text = os.pread(said, 200, 0).decode(errors="replace").strip().partition("\n")[0]
            raise UnsupportedError(f"{text}: {fuse_text}" if fuse_text and fuse_text not in text else text, str(folder))
    finally:
        os.close(heard)
        os.close(said)


def unmount(folder: Path) -> None:
    """Ends a mount. Files that are open stay readable until they are closed.

    Raises
    ------
    NotFoundError
        No stream is mounted there.
    StorageError
        fusermount3 refuses, with its reason.
    """
    folder = Path(os.path.realpath(folder))
    if str(folder) not in _mounted():
        raise NotFoundError("no stream is mounted here", str(folder))
    _run_fusermount("-u", "-z", "--", str(folder))


def dead_mounts() -> list[str]:
    """Folders on which this user has mounted a stream whose process has died."""
    found = []
    for folder in _mounted():
        try:
            os.statvfs(folder)
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                found.append(folder)
    return found


def remove_dead_mounts() -> None:
    """Unmounts them."""
    for folder in dead_mounts():
        try:
            _run_fusermount("-u", "-z", "--", folder)
        except StorageError:
            # The fusermount3 of the dead process was faster.
            if folder in _mounted():
                raise


def _check_node() -> None:
    """Says what is missing for mounts."""
    try:
        import forebay._fuse  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            f"mounts need libfuse3 here (Debian: libfuse3-3) and at Forebay's build (libfuse3-dev): {error}"
        ) from None
    if not _DEVICE.exists():
        raise UnsupportedError(
            "this node has no FUSE device: load the module (`modprobe fuse`), or give the device to the container; "
            "`forebay path` needs neither",
            str(_DEVICE),
        )
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        raise UnsupportedError(
            "this user may not open the FUSE device: its mode must be 0666; `forebay path` needs no device",
            str(_DEVICE),
        )
    if shutil.which(_FUSERMOUNT) is None:
        raise UnsupportedError(_NO_FUSERMOUNT)


def _run_fusermount(*words: str) -> None:
    try:
        done = subprocess.run([_FUSERMOUNT, *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UnsupportedError(_NO_FUSERMOUNT) from None
    if done.returncode:
        raise StorageError(done.stderr.strip() or f"fusermount3 ended with status {done.returncode}", words[-1])


def _mounted() -> list[str]:
    """Where this user has mounted streams, as the kernel lists it. A mount of somebody else is never touched."""
    found = []
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        if not after.startswith(f"{_KIND} "):
            continue
        if f"user_id={os.geteuid()}" in after.rpartition(" ")[2].split(","):
            escaped = before.split(" ")[4]
            found.append(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), escaped))
    return found


def main(arguments: list[str]) -> None:
    """The process of a mount."""
    ready, request = int(arguments[0]), json.loads(arguments[1])
    # libfuse leaves Python's handler in place, and that one waits for Python code to run.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        import forebay
        from forebay._fuse import Mount
        from forebay.views.formats import format_named
        from forebay.views.shown_stream import ShownStream

        for name in request["formats"]:
            format_named(name)
        stream = forebay.open(request["stream"], instance=request["instance"], timeout=0)
        shown = ShownStream(stream, request["formats"])
        mounted = Mount(shown, request["folder"], f"forebay:{stream.address.path}")
    except Exception as error:
        os.write(ready, (str(error) or type(error).__name__)[:1000].encode())
        sys.exit(1)
    # From here on nobody reads what is said, and it would fill memory.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    os.write(ready, _READY)
    os.close(ready)
    mounted.run()
    # Neither threads nor connections have anything to finish.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
