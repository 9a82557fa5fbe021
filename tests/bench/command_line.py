# SPDX-License-Identifier: Apache-2.0
"""The command line of ``./run bench``. Run as a program it prints the help, for which nothing need be installed."""

from __future__ import annotations

import argparse
from pathlib import Path

#: In the order in which they are run.
SUITE_NAMES = (
    "write",
    "live",
    "latency",
    "read",
    "readers",
    "memory",
    "lost-writer",
    "metadata",
    "durable",
    "stage-out",
    "staging",
    "slurm",
    "workflows",
    "workloads",
    "consumers",
    "remote",
    "servers",
    "mounts",
    "files",
)
#: They need large packages, root or a FUSE device: only by name.
BY_NAME = ("consumers", "workflows", "workloads", "remote", "servers", "mounts", "files")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, with ``suites`` as they are to be run; None: those of this process."""
    parser = argparse.ArgumentParser(
        prog="./run bench",
        description="Measures Forebay beside its peers.",
        epilog="example: ./run bench write read --quick",
    )
    parser.add_argument(
        "suites", metavar="SUITE", nargs="*", help=f"of: {', '.join(SUITE_NAMES)}; none: all but {', '.join(BY_NAME)}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer steps and repetitions: some five minutes")
    parser.add_argument("--long", action="store_true", help="workflows: the detector takes two minutes, not 20 seconds")
    parser.add_argument(
        "--record", action="store_true", help="keep the ratios: what later runs on such a processor are compared with"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/bench"),
        help="folder for JSON and plot (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.suites if name not in SUITE_NAMES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}; the suites are {', '.join(SUITE_NAMES)}")
    options.suites = options.suites or [name for name in SUITE_NAMES if name not in BY_NAME]
    return options


if __name__ == "__main__":
    parse()
