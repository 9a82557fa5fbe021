# SPDX-License-Identifier: Apache-2.0
"""slurmctld, slurmd, the manager and the server, killed in each state of a job, and started again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.slurm.centre import needs_slurm
from tests.slurm.cluster import wait_for
from tests.slurm.faults.faulty import Fault

pytestmark = needs_slurm


def restart_controller(fault: Fault) -> None:
    with fault.centre.cluster.saved_jobs():
        restart_forgetful_controller(fault)


def restart_forgetful_controller(fault: Fault) -> None:
    fault.centre.cluster.kill_controller()
    fault.centre.cluster.start_controller()


def restart_manager(fault: Fault) -> None:
    fault.centre.instance.kill_manager()
    fault.centre.instance.up()


def restart_server(fault: Fault) -> None:
    fault.centre.instance.kill_server()
    fault.centre.instance.up()


DAEMONS = [restart_controller, restart_manager, restart_server]


def must_have_results(fault: Fault, lose: Callable[[Fault], None] | None = None) -> None:
    """At the destination, or kept for their owner. No space is taken."""
    fault.wait_for_state("gone", "kept", seconds_max=300)
    wait_for(fault.is_settled, f"job {fault.job} to be over: {fault.told()}", 300)
    kept = fault.take_what_was_kept()
    assert (fault.out / "results" / "ended").exists() or "ended" in kept, fault.rows()
    if lose is restart_controller:
        # Killed before it saved its state, Slurm 22.05 counts a buffer twice in UsedSpace until it is started again.
        fault.centre.cluster.restart_controller()
    fault.must_have_settled()


@pytest.mark.parametrize("lose", DAEMONS)
# crash-matrix: A Slurm job in its stage-in | slurmctld, manager or server, killed and started again | the job runs, its results are staged out
def test_a_stage_in_survives(fault: Fault, lose: Callable[[Fault], None]) -> None:
    fault.submit_slow_stage_in()
    lose(fault)
    fault.go_on()
    must_have_results(fault, lose)


@pytest.mark.parametrize("lose", DAEMONS)
# crash-matrix: A Slurm job that runs | slurmctld that has saved it, manager or server, killed and started again | what it wrote is staged out
def test_a_running_job_survives(fault: Fault, lose: Callable[[Fault], None]) -> None:
    fault.submit_until_told()
    lose(fault)
    fault.end()
    must_have_results(fault, lose)


@pytest.mark.parametrize("lose", DAEMONS)
# crash-matrix: A Slurm job in its stage-out | slurmctld, manager or server, killed and started again | its results are staged out
def test_a_stage_out_survives(fault: Fault, lose: Callable[[Fault], None]) -> None:
    fault.submit_slow_stage_out()
    lose(fault)
    fault.go_on()
    must_have_results(fault, lose)


# crash-matrix: A Slurm job that runs | slurmd of its node, killed and started again | it runs on, its results are staged out
def test_a_running_job_survives_its_nodes_daemon(fault: Fault) -> None:
    fault.submit_until_told()
    node = fault.centre.cluster.show(fault.job)["NodeList"]
    fault.centre.cluster.kill_node(node)
    fault.centre.cluster.start_node(node)
    fault.end()
    must_have_results(fault)
    fault.centre.cluster.wait_for_nodes()


# crash-matrix: A Slurm job whose reservation is gone | slurmctld, killed before it saved that | nothing is left; Slurm may show the job in STAGE_OUT until `scancel --hurry`
def test_a_job_is_over_although_slurm_has_forgotten_it(fault: Fault) -> None:
    fault.submit()
    fault.wait_for_state("gone")
    restart_forgetful_controller(fault)
    assert fault.result("ended") == "ended\n"
    fault.cancel("--hurry")
    fault.centre.cluster.restart_controller()
    fault.must_have_settled()
