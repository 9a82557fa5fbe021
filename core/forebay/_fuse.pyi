# SPDX-License-Identifier: Apache-2.0
# Types of the native module, which is there only where libfuse3 was at the build: a tree that Python describes, shown
# by FUSE.

from collections.abc import Callable
from typing import Protocol

from typing_extensions import Buffer

class Content:
    # The bytes of one file. Runs do not overlap; what none covers is zero.

    def __init__(self, size_bytes: int) -> None: ...
    def add_memory(self, offset: int, buffer: Buffer) -> None: ...
    # read(start, stop) gives the run's bytes from start to stop.
    def add_read(self, offset: int, size_bytes: int, read: Callable[[int, int], Buffer]) -> None: ...

class Tree(Protocol):
    # Paths have no slash in front; the root is empty. OSError becomes its errno. Called by several threads.

    # Kind (0 folder, 1 file, 2 link), size in bytes, nanoseconds of modification, a link's target, version.
    def look_up(self, path: bytes) -> tuple[int, int, int, bytes, int]: ...
    # Name and kind.
    def list_folder(self, path: bytes) -> list[tuple[bytes, int]]: ...
    def open(self, path: bytes, version: int) -> Content: ...

class Mount:
    # RuntimeError where it cannot be mounted.

    def __init__(self, tree: Tree, folder: str, source: str) -> None: ...
    # Until it is unmounted or a signal ends it; 0 or an errno.
    def run(self) -> int: ...
