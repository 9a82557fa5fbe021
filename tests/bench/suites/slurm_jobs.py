# SPDX-License-Identifier: Apache-2.0
"""50 jobs of a second with 1 GiB of scratch under a real Slurm, against the same plugin with a program that only
answers, and against jobs without burst buffers; and how long `squeue` takes meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import Workbench
from tests.slurm.centre import programs, slurm_centre
from tests.slurm.cluster import PERSON, Cluster, make_person, make_python, wait_for

__all__ = ["job_throughput"]

_JOBS = 50
_JOBS_QUICK = 16
_CORES = 8
_CAPACITY = "40GiB"
_WITH = "#!/bin/bash\n#DW jobdw capacity=1GiB access_mode=striped type=scratch\nsleep 1\n"
_WITHOUT = "#!/bin/bash\nsleep 1\n"

_STUB = """\
#!/bin/sh
case "$2" in
pools) echo '{"pools":[{"id":"forebay","units":"bytes","granularity":16777216,"quantity":1600,"free":1600}]}';;
show_*) echo "{\\"${2#show_}\\":[]}";;
setup) echo created;;
real_size) echo '{"units":"bytes","capacity":1073741824}';;
paths) for file; do :; done; : > "$file";;
esac
"""


def job_throughput() -> Suite:
    """Needs root, and Slurm."""
    return Suite(
        name="slurm-jobs",
        cases=[
            Case("forebay", _with_forebay),
            Case("stub", lambda bench: _with_stub(bench, _WITH)),
            Case("without", lambda bench: _with_stub(bench, _WITHOUT)),
        ],
        rows=[
            Row("50 jobs with 1 GiB", "a program that only answers", "forebay", "stub", "all_seconds", 0.9),
            Row("squeue meanwhile, 99th", "a program that only answers", "forebay", "stub", "squeue_seconds", 1 / 1.2),
            Row("50 jobs with 1 GiB", "jobs without burst buffer", "forebay", "without", "all_seconds"),
        ],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,
    )


def _with_forebay(bench: Workbench) -> Figures:
    with tempfile.TemporaryDirectory(prefix="slurm-", dir=_open_folder()) as name:
        folder = Path(name)
        folder.chmod(0o755)
        python = make_python(folder / "python")
        with slurm_centre(folder, python, capacity=_CAPACITY, cores=_CORES) as centre:
            return _run_jobs(bench, centre.cluster, _WITH)


def _with_stub(bench: Workbench, script: str) -> Figures:
    with tempfile.TemporaryDirectory(prefix="slurm-", dir=_open_folder()) as name:
        folder = Path(name)
        folder.chmod(0o755)
        stub = folder / "stub"
        stub.mkdir()
        (stub / "dw_wlm_cli").write_text(_STUB)
        (stub / "dw_wlm_cli").chmod(0o755)
        shutil.copy(programs() / "dwstat", stub / "dwstat")
        with Cluster(folder / "slurm", stub, folder / "forebay.toml", cores=_CORES) as cluster:
            return _run_jobs(bench, cluster, script)


def _open_folder() -> str:
    """Where other users may go."""
    return tempfile.gettempdir()


def _run_jobs(bench: Workbench, cluster: Cluster, script: str) -> Figures:
    """From the first `sbatch` until Slurm has let go of the last buffer."""
    make_person()
    count = bench.steps(_JOBS, _JOBS_QUICK)
    path = Path("/tmp") / f"bench-{os.getpid()}.sh"
    path.write_text(script)
    path.chmod(0o755)
    latencies: list[float] = []

    def squeue() -> str:
        began = time.perf_counter()
        printed = cluster.ask("squeue", "--noheader", "--states=all", "--format=%i %T")
        latencies.append(time.perf_counter() - began)
        return printed

    try:
        # One call as the user submits all: starting a user's shell takes longer than a submission.
        loop = f"for i in $(seq {count}); do sbatch --parsable --output=/dev/null {path}; done"
        began = time.perf_counter()
        done = subprocess.run(
            ["runuser", "-u", PERSON, "--", "sh", "-ec", loop],
            env=os.environ | {"SLURM_CONF": str(cluster.configuration)},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        wait_for(lambda: squeue().count("COMPLETED") == count, "all jobs to be over", 600)
        wait_for(lambda: "JobID=" not in cluster.buffers(), "Slurm to have let go of all buffers", 300)
        seconds = time.perf_counter() - began
    finally:
        path.unlink()
    return {"all_seconds": seconds, "squeue_seconds": sorted(latencies)[max(0, len(latencies) * 99 // 100 - 1)]}
