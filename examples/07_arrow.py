# SPDX-License-Identifier: Apache-2.0
"""Particles and blocks of a stream as Arrow data, read by Polars and DuckDB without a copy.

Needs ``forebay[arrow]``, polars and duckdb, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/07_arrow.py demo/dust
"""

import sys

import duckdb
import numpy as np
import polars as pl

import forebay
from forebay.connectors import arrow


def produce(address: str) -> None:
    """Writes particles that spread out, and the density that they make up."""
    random = np.random.default_rng(1)
    with forebay.open(address, mode="w") as stream:
        for number in range(5):
            x = random.normal(0.0, 1.0 + number, 10_000)
            with stream.step() as step:
                step["x"] = x
                step["mass"] = np.full(10_000, 0.5)
                step["density"] = np.histogram(x, 64, (-10, 10))[0].astype(np.float32)


def main() -> None:
    address = sys.argv[1]
    produce(address)

    # One step: columns that share memory with it. The step stays pinned as long as the batch lives.
    with forebay.open(address) as stream:
        particles = arrow.particles(stream[4], ["x", "mass"])
        frame = pl.DataFrame(particles)
        print(
            f"step 4: {frame.height} particles, {frame.filter(pl.col('x').abs() > 10).height > 0} that some are far out"
        )
        tensor = arrow.tensor(stream[4]["density"])
        print(f"density: {tensor.type.shape} of {tensor.type.value_type}")

    # All steps, one record batch each, as DuckDB asks for them.
    reader = arrow.particle_reader(address, ["x", "mass"])
    masses = duckdb.from_arrow(reader).query(
        "particles", "select step, sum(mass) from particles group by all order by step"
    )
    for step, mass in masses.fetchall():
        print(f"step {step}: mass {mass:.0f}")

    # What is known without reading data: steps, and blocks with their statistics.
    print(pl.DataFrame(arrow.blocks(address, "x")).select("step", "count", pl.col("min") < -3).rows()[-1])


if __name__ == "__main__":
    main()
