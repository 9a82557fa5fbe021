# SPDX-License-Identifier: Apache-2.0
"""Events in ROOT files: how many reads it takes to go through them, with small and large baskets and a reader's cache.

Needs uproot (``pip install uproot``), ``forebay[fsspec]``, a running instance and a reservation with room for files:

    forebay up && forebay create events --capacity 0 --files 256MiB
    python examples/26_events.py events

A basket holds some values of one branch. Each read of one costs next to nothing here, where the file is local, and
about 0.6 ms where it lies on a parallel file system or beyond a network: the last column says what that makes.
"""

import argparse
import io
import time
from collections.abc import Iterator
from typing import Any

import fsspec
import numpy as np
import uproot

READ_SECONDS = 0.6e-3


class CountedReads(io.RawIOBase):
    """A file without a cache, which counts how often it is asked."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.reads = 0
        self.read_bytes = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        self.reads += 1
        self.read_bytes += len(content)
        return len(content)


def write(url: str, events: int, branches: int, per_basket: int) -> None:
    """A tree of float32 branches, uncompressed."""
    with fsspec.open(url, "wb") as file, uproot.recreate(file, compression=None) as root:
        tree = root.mktree("events", {f"b{branch:02d}": "float32" for branch in range(branches)})
        for first in range(0, events, per_basket):
            values = np.arange(first, min(first + per_basket, events), dtype=np.float32)
            tree.extend({f"b{branch:02d}": values + branch for branch in range(branches)})


def sums(file: Any, branches: int) -> Iterator[float]:
    """Goes through all events, branch by branch, as an analysis does."""
    with uproot.open(file) as root:
        for branch in range(branches):
            yield float(root["events"][f"b{branch:02d}"].array(library="np").sum(dtype=np.float64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reservation")
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--branches", type=int, default=60)
    parser.add_argument("--cache-mib", type=int, default=100, help="the reader's cache")
    chosen = parser.parse_args()
    print(f"{'baskets':>8} {'cache':>8} {'reads':>7} {'read':>9} {'here':>8} {'0.6 ms a read':>14}")
    for per_basket in (512, 131_072):
        url = f"forebay://{chosen.reservation}/files/events-{per_basket}.root"
        write(url, chosen.events, chosen.branches, per_basket)
        for cache_mib in (0, chosen.cache_mib):
            began = time.perf_counter()
            with fsspec.open(url, "rb") as plain:
                counted = CountedReads(plain)
                cached = io.BufferedReader(counted, cache_mib << 20) if cache_mib else counted
                found = list(sums(cached, chosen.branches))
            seconds = time.perf_counter() - began
            values = np.arange(chosen.events, dtype=np.float64)
            if found != [float((values + branch).sum()) for branch in range(chosen.branches)]:
                raise SystemExit(f"{url}: the events are not those that were written")
            print(
                f"{per_basket * 4 >> 10:5} KiB {cache_mib:4} MiB {counted.reads:7} {counted.read_bytes / 1e6:6.1f} MB "
                f"{seconds:6.2f} s {seconds + counted.reads * READ_SECONDS:12.2f} s"
            )


if __name__ == "__main__":
    main()
