# SPDX-License-Identifier: Apache-2.0
"""An ensemble: N simulations write N streams of one reservation, and one program follows them all.

Needs a running instance and a reservation; then start the members and the statistics, in any order:

    forebay up && forebay create demo --capacity 256MiB
    for m in 0 1 2; do python examples/17_ensemble.py member demo/member-$m --seed $m & done
    python examples/17_ensemble.py statistics 'demo/member-*' --members 3

Members join when they begin. The same with any program, one command for each step of each member:

    forebay follow 'demo/member-*' --members 3 --exec echo {stream} {step}
"""

import argparse

import numpy as np

import forebay


def member(address: str, seed: int, steps: int) -> None:
    """A random walk of a field."""
    random = np.random.default_rng(seed)
    field = np.zeros((32, 32))
    with forebay.open(address, mode="w") as stream:
        for _ in range(steps):
            field += random.normal(0.0, 1.0, field.shape)
            stream.write("u", field)


def statistics(pattern: str, members: int) -> None:
    """The mean over the members, for each step as soon as all members have written it."""
    sums: dict[int, np.ndarray] = {}
    counts: dict[int, int] = {}
    with forebay.follow_all(pattern, "statistics", members=members) as steps:
        for step in steps:
            sums[step.number] = sums.get(step.number, 0.0) + step["u"][...]
            counts[step.number] = counts.get(step.number, 0) + 1
            if counts[step.number] == members:
                mean = sums.pop(step.number) / members
                print(f"step {step.number}: spread of the mean {mean.std():.3f}", flush=True)
        print(f"followed {', '.join(sorted(str(address) for address in steps.addresses))}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Members of an ensemble, and statistics over them.")
    parser.add_argument("role", choices=["member", "statistics"])
    parser.add_argument("address", metavar="RES/STREAM|'RES/PATTERN'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--members", type=int, default=3)
    options = parser.parse_args()
    if options.role == "member":
        member(options.address, options.seed, options.steps)
    else:
        statistics(options.address, options.members)


if __name__ == "__main__":
    main()
