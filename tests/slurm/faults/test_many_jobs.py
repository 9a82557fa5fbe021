# SPDX-License-Identifier: Apache-2.0
"""Many jobs at once: in the queue, and on one persistent reservation."""

from __future__ import annotations

from tests.slurm.centre import Centre, needs_slurm
from tests.slurm.cluster import wait_for
from tests.slurm.faults.faulty import Fault
from tests.support.time_limits import seconds

pytestmark = needs_slurm

_SECONDS_MAX = seconds(420)


# crash-matrix: 50 Slurm jobs in the queue | nobody, the pool holds ten of them | each has its scratch in turn, nothing is left
def test_fifty_queued_jobs_have_their_turns(centre: Centre, fault: Fault) -> None:
    jobs = [
        centre.cluster.submit(
            "#!/bin/bash\n#DW jobdw capacity=64MiB type=scratch\n"
            f"#DW stage_out type=file source=$DW_JOB_STRIPED/x destination={fault.out}/x.%j\n"
            "echo $SLURM_JOB_ID > ${DW_JOB_STRIPED}x\n"
        )
        for _ in range(50)
    ]
    for job in jobs:
        wait_for((fault.out / f"x.{job}").exists, f"job {job}: {centre.cluster.ask('squeue')}", _SECONDS_MAX)
    centre.wait_until_gone(*jobs)
    assert {(fault.out / f"x.{job}").read_text() for job in jobs} == {f"{job}\n" for job in jobs}
    centre.must_be_clean()


# crash-matrix: A persistent reservation in Slurm | ten jobs use it, a last one destroys it meanwhile | all have used it, then it goes
def test_ten_jobs_use_one_persistent_reservation(centre: Centre, fault: Fault) -> None:
    create = "#!/bin/bash\n#BB create_persistent name=shared capacity=64MiB access=striped type=scratch\n"
    centre.cluster.submit(create, "-N0")
    wait_for(lambda: "Name=shared" in centre.cluster.buffers(), "Slurm to know it", 120)
    users = [
        centre.cluster.submit(
            "#!/bin/bash\n#DW persistentdw name=shared\n"
            f"#DW stage_out type=file source=$DW_PERSISTENT_STRIPED_shared/%j destination={fault.out}/%j\n"
            "touch ${DW_PERSISTENT_STRIPED_shared}$SLURM_JOB_ID; sleep 1\n"
        )
        for _ in range(10)
    ]
    wait_for(lambda: any(state == "running" for state in centre.states().values()), "one to run", 120)
    centre.cluster.submit("#!/bin/bash\n#BB destroy_persistent name=shared\n", "-N0")
    for user in users:
        wait_for((fault.out / str(user)).exists, f"job {user}: {centre.cluster.ask('squeue')}", _SECONDS_MAX)
    centre.wait_until_gone(*users)
    wait_for(lambda: "shared" not in centre.cluster.buffers(), "it to go", 180)
    centre.must_be_clean()
