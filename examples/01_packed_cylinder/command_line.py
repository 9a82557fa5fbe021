# SPDX-License-Identifier: Apache-2.0
"""The demo's command line. Run as a program it prints the help, for which nothing need be installed."""

from __future__ import annotations

import argparse
from pathlib import Path

from plan import SMALL_GRID, STEPS_MIN

REPOSITORY = Path(__file__).resolve().parents[2]
_DESCRIPTION = """\
The packed cylinder, whole: a running simulation is rendered, analysed and checkpointed, and survives being killed.

Exit status: 0 if everything that it shows was checked and holds, 1 if not, 2 for a mistake on the command line.

    ./run demo
    ./run demo --remote
    ./run demo --servers
    python demo.py --steps 40 --out results
"""


def parse() -> argparse.Namespace:
    """The options of this process."""
    parser = argparse.ArgumentParser(
        prog="./run demo", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=_steps, default=100, metavar="N",
        help=f"output steps, {STEPS_MIN} at least; the simulated time stays the same (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=REPOSITORY / "build" / "demo", metavar="DIR",
        help="folder for the results; what an earlier demo left there is removed (default: build/demo)",
    )  # fmt: skip
    places = parser.add_mutually_exclusive_group()
    places.add_argument(
        "--remote", action="store_true",
        help="server, simulation and consumers on three nodes of a cluster on this machine; one is cut off meanwhile",
    )  # fmt: skip
    places.add_argument(
        "--servers", action="store_true",
        help="three servers, simulation and consumers on five such nodes; one server is killed meanwhile; needs root",
    )  # fmt: skip
    parser.add_argument("--small", action="store_true", help=f"a grid of {SMALL_GRID.name}, as the tests take it")
    return parser.parse_args()


def _steps(text: str) -> int:
    steps = int(text)
    if steps < STEPS_MIN:
        raise argparse.ArgumentTypeError(
            f"{steps} are too few for a checkpoint, a kill and a restart; take {STEPS_MIN}"
        )
    return steps


if __name__ == "__main__":
    parse()
