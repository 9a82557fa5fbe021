# SPDX-License-Identifier: Apache-2.0
"""`scancel` in each state, and the time limit, of jobs whose processes ignore SIGTERM."""

from __future__ import annotations

from tests.slurm.centre import needs_slurm
from tests.slurm.cluster import wait_for
from tests.slurm.faults.faulty import UNTIL_TOLD, Fault

pytestmark = needs_slurm


# crash-matrix: A Slurm job | user, `scancel` before setup | nothing is left of it
def test_a_job_that_is_cancelled_before_its_setup_leaves_nothing(fault: Fault) -> None:
    fault.submit(options=("--hold",))
    fault.cancel()
    fault.must_have_settled()


# crash-matrix: A Slurm job | user, `scancel` during stage-in | the stage ends, nothing is left
def test_a_job_that_is_cancelled_in_its_stage_in_leaves_nothing(fault: Fault) -> None:
    fault.submit_slow_stage_in()
    fault.cancel()
    wait_for(lambda: fault.centre.cluster.show(fault.job).get("JobState") == "CANCELLED", "it to be cancelled")
    fault.go_on()
    fault.wait_for_state("gone")
    fault.must_have_settled()


# crash-matrix: A Slurm job | user, `scancel` while it runs and ignores SIGTERM | what it wrote until it was killed is staged out
def test_a_running_job_that_is_cancelled_is_staged_out_when_it_is_dead(fault: Fault) -> None:
    fault.submit_until_told()
    fault.cancel()
    fault.wait_for_state("gone")
    assert fault.result("begun") == "begun\n"
    ticks = fault.result("ticks").splitlines()
    # The last one is whole, and nothing was written behind the copy.
    assert float(ticks[-1]) > float(ticks[0])
    assert not (fault.out / "results" / "ended").exists()
    fault.must_have_settled()


# crash-matrix: A Slurm job | user, `scancel --hurry` while it runs | its data is discarded when its processes are gone, as the user asked
def test_a_running_job_that_is_cancelled_in_a_hurry_gives_its_space_back(fault: Fault) -> None:
    fault.submit_until_told()
    fault.cancel("--hurry")
    fault.wait_for_state("gone")
    assert not (fault.out / "results").exists()
    fault.must_have_settled()


# crash-matrix: A Slurm job | user, `scancel` during stage-out | it is ignored: everything is staged out
def test_a_job_that_is_cancelled_in_its_stage_out_is_staged_out(fault: Fault) -> None:
    fault.submit_slow_stage_out()
    fault.cancel()
    fault.go_on()
    fault.wait_for_state("gone")
    assert fault.result("ended") == "ended\n"
    fault.must_have_settled()


# crash-matrix: A Slurm job | user, `scancel --hurry` during stage-out | its data is discarded, as the user asked
def test_a_stage_out_that_is_cancelled_in_a_hurry_is_discarded(fault: Fault) -> None:
    fault.submit_slow_stage_out()
    fault.cancel("--hurry")
    fault.go_on()
    fault.wait_for_state("gone")
    fault.must_have_settled()


# crash-matrix: A Slurm job | Slurm, its time limit | what it wrote until it was killed is staged out
def test_a_job_that_reaches_its_time_limit_is_staged_out(fault: Fault) -> None:
    fault.submit(body=UNTIL_TOLD, options=("--time=1",))
    fault.wait_for_state("gone", seconds_max=300)
    assert fault.result("begun") == "begun\n"
    assert not (fault.out / "results" / "ended").exists()
    fault.must_have_settled()
