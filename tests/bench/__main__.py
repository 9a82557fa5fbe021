# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench [SUITE...] [--quick]``: measures, prints a table, writes ``build/bench``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from forebay.workflows.cluster.network import why_not
from tests.bench import rates
from tests.bench.command_line import parse
from tests.bench.measure import Outcome, Suite, run_suite
from tests.bench.recorded import record, regressions, unrecorded
from tests.bench.report import POLICY, describe_machine, print_table, save_json, save_plot
from tests.bench.suites.allocate import allocated_steps
from tests.bench.suites.durable import durable_steps
from tests.bench.suites.latency import small_step_latency
from tests.bench.suites.live import live_reader
from tests.bench.suites.lost_writer import lost_writer
from tests.bench.suites.many_reservations import many_reservations
from tests.bench.suites.metadata import many_steps, many_variables, restart
from tests.bench.suites.peak_memory import slow_reader_memory
from tests.bench.suites.read import committed_steps
from tests.bench.suites.readers import paced_readers
from tests.bench.suites.slurm_calls import locked_calls
from tests.bench.suites.small_variables import small_variables
from tests.bench.suites.stage_out import staged_steps
from tests.bench.suites.staging import staged_large_file, staged_trees
from tests.bench.suites.workflows import detector, snakemake_jobs, snakemake_questions
from tests.bench.suites.write import large_steps
from tests.bench.workbench import MIB, Workbench
from tests.support.guests import why_no_guests

SUITES: dict[str, Callable[[], list[Suite]]] = {
    "write": lambda: [large_steps(16 * MIB), large_steps(64 * MIB), allocated_steps(), small_variables()],
    "live": lambda: [live_reader(16 * MIB), live_reader(64 * MIB)],
    "latency": lambda: [small_step_latency()],
    "read": lambda: [committed_steps()],
    "readers": lambda: [paced_readers()],
    "memory": lambda: [slow_reader_memory()],
    "lost-writer": lambda: [lost_writer()],
    "metadata": lambda: [many_variables(), many_steps(), restart()],
    "durable": lambda: [durable_steps()],
    "stage-out": lambda: [staged_steps()],
    "staging": lambda: [*staged_trees(), staged_large_file()],
    "slurm": lambda: [locked_calls(), many_reservations(), *_slurm_jobs()],
    "workflows": lambda: [snakemake_jobs(), snakemake_questions(), detector()],
    "workloads": lambda: _workloads(),
    "consumers": lambda: _consumers(),
    "remote": lambda: _remote(),
    "servers": lambda: _servers(),
    "mounts": lambda: _mounts(),
    "files": lambda: _files(),
}


def _slurm_jobs() -> list[Suite]:
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        print("slurm-jobs is left out: it needs root and Slurm, which `./run test slurm` installs", file=sys.stderr)
        return []
    from tests.bench.suites.slurm_jobs import job_throughput

    return [job_throughput()]


def _workloads() -> list[Suite]:
    from tests.bench.suites.workload_files import advice_on_a_log, particles_two_ways, plotfiles
    from tests.bench.suites.workloads import derived_remote_read, derived_steps, producer_beside_derivation

    suites = [derived_steps(), producer_beside_derivation(), particles_two_ways(), plotfiles(), advice_on_a_log()]
    if reason := why_not():
        print(f"derive-remote is left out: {reason}", file=sys.stderr)
        return suites
    return [*suites, derived_remote_read()]


def _mounts() -> list[Suite]:
    from tests.bench.suites.mounts import mounted_steps

    return [mounted_steps()]


def _files() -> list[Suite]:
    return [*_shown_files(), *_striped_files()]


def _striped_files() -> list[Suite]:
    from tests.bench.suites import striped_files as striped
    from tests.bench.suites.striped_by_hand import why_no_hand_made_tree

    if needed := striped.why_no_striping():
        print(f"striped files are left out: {needed}", file=sys.stderr)
        return []
    suites = [striped.striped_files(), striped.striped_slowly(), striped.striped_life(), striped.striped_memory()]
    if needed := why_no_hand_made_tree():
        print(f"striped files by hand are left out: {needed}", file=sys.stderr)
        return suites
    return [*suites, striped.striped_by_hand()]


def _shown_files() -> list[Suite]:
    needed = why_no_guests() or ("" if shutil.which("ganesha.nfsd") else "Ganesha is not installed")
    if needed:
        print(f"files is left out: {needed}; `./run test files` installs what it needs", file=sys.stderr)
        return []
    from tests.bench.suites.files import files_life, files_memory, files_on_nodes, files_restart, home_files

    return [home_files(), files_on_nodes(), files_life(), files_restart(), files_memory()]


def _consumers() -> list[Suite]:
    from tests.bench.suites.arrays import arrays_over_steps, many_steps_as_dataset
    from tests.bench.suites.pictures import drawing, live_frames, producer_with_consumers, sinograms
    from tests.bench.suites.python_views import computing_in_place, views

    return [
        arrays_over_steps(16 * MIB),
        arrays_over_steps(2 * MIB),
        computing_in_place(),
        views(),
        many_steps_as_dataset(),
        drawing(),
        live_frames(),
        sinograms(),
        producer_with_consumers(),
    ]


def _remote() -> list[Suite]:
    from tests.bench.suites.remote import (
        remote_blocks,
        remote_limited,
        remote_live,
        remote_readers,
        remote_small_steps,
    )

    return [
        remote_blocks(8 * MIB),
        remote_blocks(MIB),
        remote_live(),
        remote_small_steps(),
        remote_limited(),
        remote_readers(),
    ]


def _servers() -> list[Suite]:
    from tests.bench.suites.servers import (
        durable_over_servers,
        read_from_servers,
        readers_on_members,
        small_steps_over_servers,
        write_to_servers,
        writers_on_members,
    )

    return [
        write_to_servers(),
        read_from_servers(),
        writers_on_members(),
        readers_on_members(),
        small_steps_over_servers(),
        durable_over_servers(),
    ]


def main() -> int:
    """0 unless a row is far below its last ratio that was recorded on such a processor."""
    arguments = parse()
    console = Console()
    folder: Path = arguments.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(folder)
    # On the repository's file system, because that is what is measured.
    bench = Workbench(folder / "scratch", quick=arguments.quick, long=arguments.long)
    outcomes: list[Outcome] = []
    with console.status("") as status:
        for name in arguments.suites:
            for suite in SUITES[name]():
                outcomes.append(run_suite(suite, bench, lambda text: status.update(text)))
                # At once: what was measured is kept if the run ends early.
                save_json(outcomes[-1], machine, folder)
    shutil.rmtree(bench.folder)

    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    print_table(verdicts, console)
    console.print(POLICY)
    loads = [load for outcome in outcomes for load in outcome.load_averages]
    console.print(
        f"Load average while measuring: {min(loads):.1f} to {max(loads):.1f} on {machine['processors']} processors."
    )
    save_plot(verdicts, folder / "ratios.png")
    console.print(f"Samples and plot: {folder}")
    poor = [verdict for verdict in verdicts if not verdict.acceptable]
    for verdict in poor:
        console.print(f"[red]below half of its target, or slower than BP5:[/] {verdict.what} against {verdict.against}")
    behind = regressions(verdicts, machine["processor"])
    for row in behind:
        console.print(
            f"[red]fallen behind:[/] {row.what} against {row.against}: "
            f"{row.best:.2f} at best, {row.recorded:.2f} recorded"
        )
    if arguments.record:
        record(verdicts, machine["processor"])
        rates.keep(verdicts, machine["processor"])
    elif missing := unrecorded(verdicts, machine["processor"]):
        console.print(
            f"{len(missing)} of {len(verdicts)} rows could not be compared: nothing is recorded of them on "
            f"{machine['processor']} (--record keeps this run)."
        )
    # What is known to be poor stands in docs/performance.md, with the reason: only what was better before fails.
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
