# SPDX-License-Identifier: Apache-2.0
"""One array by some aggregators, each a rank of a stream, to a reservation over several servers.

    python examples/24_patterns/servers.py

It starts servers of its own, all on this machine, and ends them. Each aggregator runs beside one of them and writes
there. *Matched* aggregators are as many as the servers, or a multiple: each server gets the same. Others are not.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import forebay

FOREBAY = (sys.executable, "-P", "-m", "forebay")
STEPS, ROWS, COLUMNS = 5, 2304, 3641  # 64 MiB a step, in parts of whole rows
ADDRESS = "patterns/of-{aggregators}"


def aggregate(rank: int, ranks: int) -> None:
    """One aggregator: writes its rows of each step, and says how long that took."""
    rows = ROWS // ranks
    part = np.arange(rank * rows * COLUMNS, (rank + 1) * rows * COLUMNS, dtype=np.float64).reshape(rows, COLUMNS)
    with forebay.open(ADDRESS.format(aggregators=ranks), "w", rank=rank, ranks=ranks) as stream:
        began = time.perf_counter()
        for number in range(STEPS):
            with stream.step() as step:
                step.write("field", part + number, shape=(ROWS, COLUMNS), start=(rank * rows, 0))
        print(time.perf_counter() - began)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(folder: Path, count: int) -> list[Path]:
    """Starts the servers; their roots, the manager's first."""
    subprocess.run([*FOREBAY, "servers", "key", str(folder / "key")], check=True, stdout=subprocess.DEVNULL)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    roots = [folder / f"server{number}" for number in range(count)]
    for number, (root, address) in enumerate(zip(roots, addresses, strict=True)):
        command = [*FOREBAY, "up", "--root", str(root), "--name", root.name, "--capacity", "768MiB"]
        command += ["--pool-key", str(folder / "key"), "--listen", address]
        command += ["--join", addresses[0]] if number else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return roots


def run(roots: list[Path], aggregators: int) -> float:
    """Seconds of the slowest aggregator; every number has been compared."""
    command = [sys.executable, __file__, "--rank"]
    processes = [
        subprocess.Popen(
            [*command, str(rank), "--aggregators", str(aggregators)],
            env=os.environ | {"FOREBAY_ROOT": str(roots[rank % len(roots)])},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(aggregators)
    ]
    printed = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"an aggregator of {aggregators} failed")
    with forebay.open(ADDRESS.format(aggregators=aggregators), instance=roots[0], timeout=0) as stream:
        for step in stream:
            with step:
                wanted = step.number + np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS)
                if not np.array_equal(step["field"][...], wanted):
                    raise SystemExit(f"{aggregators} aggregators: step {step.number} does not have what was written")
    with forebay.Admin(roots[0]) as admin:
        admin.remove_stream(ADDRESS.format(aggregators=aggregators))
    return max(map(float, printed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--aggregators", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank is not None:
        aggregate(chosen.rank, chosen.aggregators)
        return
    rows = []
    with tempfile.TemporaryDirectory() as name:
        roots: list[Path] = []
        try:
            roots += start(Path(name), chosen.servers)
            size = f"{600 * chosen.servers}MiB"
            create = [*FOREBAY, "create", "patterns", "--capacity", size, "--servers", str(chosen.servers)]
            subprocess.run([*create, "--root", str(roots[0])], check=True, stdout=subprocess.DEVNULL)
            for aggregators in (1, 2, 3, 4):
                most = -(-aggregators // chosen.servers)  # aggregators of the busiest server
                rows.append(
                    {
                        "aggregators": aggregators,
                        "matched": aggregators % chosen.servers == 0,
                        "busiest": most / aggregators,
                        "seconds": run(roots, aggregators),
                    }
                )
        finally:
            for number in reversed(range(chosen.servers)):
                command = [*FOREBAY, "down", "--force", "--root", str(Path(name) / f"server{number}")]
                subprocess.run(command, check=False, capture_output=True)
    if chosen.json:
        print(json.dumps(rows))
        return
    print(f"{'aggregators':>11} {'':9} {'of the bytes, busiest server':>29} {'at best':>8} {'MB/s':>6} {'ratio':>6}")
    for row in rows:
        print(
            f"{row['aggregators']:11} {'matched' if row['matched'] else 'unmatched':9} {row['busiest']:29.0%} "
            f"{1 / row['busiest']:8.1f} {STEPS * ROWS * COLUMNS * 8 / row['seconds'] / 1e6:6.0f} "
            f"{rows[0]['seconds'] / row['seconds']:6.2f}"
        )


if __name__ == "__main__":
    main()
