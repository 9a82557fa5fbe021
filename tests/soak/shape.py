# SPDX-License-Identifier: Apache-2.0
"""What a stream of a soak is like: ranks, sizes, retention, durability, what happens when its reservation is full."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

__all__ = ["StreamShape", "random_shape"]


@dataclass(frozen=True)
class StreamShape:
    """Drawn once for a stream's life; every group of it writes so."""

    ranks: int
    retention: str
    last: int | None
    consumers: tuple[str, ...]
    precious_every: int
    drops_oldest: bool
    durable: bool
    checksums: bool
    variables: int
    elements: int
    pause_us: int

    def writer_options(self) -> dict[str, Any]:
        """For ``forebay_load write``."""
        return {
            "ranks": self.ranks,
            "retention": self.retention,
            "when_full": "drop-oldest" if self.drops_oldest else "block",
            "durability": "durable" if self.durable else "committed",
            "no_checksums": not self.checksums,
            "variables": self.variables,
            "elements": self.elements,
            "varying": True,
            "pause_us": self.pause_us,
            "block_timeout_ms": 4000,
            "open_timeout_ms": 30_000,
            "grace_ms": 1500,
        }

    def keeping(self) -> dict[str, Any]:
        """For the history (``timeline.Keeping``)."""
        return {
            "last": self.last,
            "consumers": self.consumers,
            "precious_every": self.precious_every,
            "drops_oldest": self.drops_oldest,
        }


def random_shape(chance: random.Random) -> StreamShape:
    """Any combination."""
    last = chance.choice([None, None, 3, 20, 60])
    consumers = chance.choice([(), (), ("render",), ("render", "plot")])
    precious_every = chance.choice([0, 0, 0, 7])
    terms = [f"last:{last}"] if last else []
    terms += [f"consumers:{'+'.join(consumers)}"] if consumers else []
    terms += [f"precious:{precious_every}"] if precious_every else []
    return StreamShape(
        ranks=chance.choice([1, 1, 2, 3, 4]),
        retention=",".join(terms) or "all",
        last=last,
        consumers=consumers,
        precious_every=precious_every,
        drops_oldest=chance.random() < 0.3,
        durable=chance.random() < 0.3,
        checksums=chance.random() < 0.75,
        variables=chance.choice([1, 2, 5]),
        # Of 8 bytes; the largest make steps of a few MiB.
        elements=chance.choice([1, 300, 4096, 20_000, 130_000]),
        pause_us=chance.choice([5_000, 20_000, 50_000]),
    )
