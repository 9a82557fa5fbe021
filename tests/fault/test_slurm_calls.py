# SPDX-License-Identifier: Apache-2.0
"""The calls that a real slurmctld made, recorded once (22.05.8), against the manager: killed in each of them, repeated,
overlapping, and late. Whatever comes, files are where they belong, once, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.workflows.manager.instance.daemon import is_locked
from tests.slurm.cluster import make_python, python_is_usable
from tests.support.instance import CommandLineInstance
from tests.support.randomness import TEST_SEED
from tests.support.slurm_calls import SlurmCalls
from tests.support.sweeps import Sweep

pytestmark = [
    pytest.mark.instance,
    pytest.mark.skipif(
        os.geteuid() == 0 and not python_is_usable(),
        reason="needs a Python that other users may run: the distribution's, in the version of this one",
    ),
    pytest.mark.timeout(600),
]

#: A job with #DW jobdw, stage_in and stage_out, as slurmctld called for it, and what Slurm says of the job meanwhile.
JOB = (
    ("job_process", "PENDING", "--job SCRIPT"),
    ("setup", "PENDING", "--token 17 --caller SLURM --user UID --groupid GID --capacity forebay:16MiB --job SCRIPT"),
    ("data_in", "PENDING", "--token 17 --job SCRIPT"),
    ("real_size", "PENDING", "--token 17"),
    ("paths", "RUNNING", "--job SCRIPT --token 17 --pathfile PATHS"),
    ("pre_run", "RUNNING", "--token 17 --job SCRIPT --nodehostnamefile NODES"),
    ("post_run", "COMPLETED", "--token 17 --job SCRIPT"),
    ("data_out", "COMPLETED", "--token 17 --job SCRIPT"),
    ("teardown", "COMPLETED", "--token 17 --job SCRIPT"),
)
#: Jobs that make, use and destroy a persistent reservation. The first and the last have #BB lines alone.
PERSISTENT = (
    ("create_persistent", "PENDING", "-c CLI -t mesh -u UID -C forebay:16777216 -a striped -T scratch"),
    ("setup", "PENDING", "--token 21 --caller SLURM --user UID --groupid GID --capacity forebay:0 --job CREATES"),
    ("data_in", "PENDING", "--token 21 --job CREATES"),
    ("post_run", "COMPLETED", "--token 21 --job CREATES"),
    ("data_out", "COMPLETED", "--token 21 --job CREATES"),
    ("teardown", "COMPLETED", "--token 21 --job CREATES"),
    ("job_process", "PENDING", "--job USES"),
    ("setup", "PENDING", "--token 22 --caller SLURM --user UID --groupid GID --capacity forebay:0 --job USES"),
    ("data_in", "PENDING", "--token 22 --job USES"),
    ("paths", "RUNNING", "--job USES --token 22 --pathfile PATHS"),
    ("pre_run", "RUNNING", "--token 22 --job USES --nodehostnamefile NODES"),
    ("post_run", "COMPLETED", "--token 22 --job USES"),
    ("data_out", "COMPLETED", "--token 22 --job USES"),
    ("teardown", "COMPLETED", "--token 22 --job USES"),
    ("teardown", "COMPLETED", "--token mesh --job DESTROYS --hurry"),
)
#: What may be said of a call that comes too late: the job has gone on.
LATE = (
    "No matching session",
    "token not found",
    "is over already",
    "runs: its reservation is made already",
)

Call = tuple[str, str, str]


class Centre:
    """An instance with Slurm's caller, and a job's user with files of their own."""

    def __init__(self, folder: Path, python: Path | None) -> None:
        self.instance = CommandLineInstance(folder / "root", python=python)
        self.slurm = SlurmCalls(folder, self.instance)
        self.outside = folder / "pfs"
        self.outside.mkdir()
        (self.outside / "input").write_text("water flows\n")
        (folder / "nodes").write_text("n1\n")
        for path in (self.outside, self.outside / "input"):
            os.chown(path, self.slurm.uid, self.slurm.gid)
        striped = "$DW_JOB_STRIPED"
        scripts = {
            "SCRIPT": (
                "#DW jobdw capacity=16MiB access_mode=striped type=scratch",
                f"#DW stage_in type=file source={self.outside}/input destination={striped}/input",
                f"#DW stage_out type=file source={striped}/input destination={self.outside}/output",
            ),
            "CREATES": ("#BB create_persistent name=mesh capacity=16MiB access=striped type=scratch",),
            "USES": (
                "#DW persistentdw name=mesh",
                f"#DW stage_in type=file source={self.outside}/input destination=$DW_PERSISTENT_STRIPED_mesh/input",
                f"#DW stage_out type=file source=$DW_PERSISTENT_STRIPED_mesh/input destination={self.outside}/output",
            ),
            "DESTROYS": ("#BB destroy_persistent name=mesh hurry",),
        }
        self._words = {
            "UID": str(self.slurm.uid),
            "GID": str(self.slurm.gid),
            "PATHS": str(folder / "paths"),
            "NODES": str(folder / "nodes"),
        }
        for name, lines in scripts.items():
            self._words[name] = str(shutil.copy(self.slurm.script(*lines), folder / name))

    def arguments(self, call: Call) -> list[str]:
        """Of `dw_wlm_cli`, behind the function's name."""
        return [self._words.get(word, word) for word in call[2].split()]

    def begin(self, call: Call) -> subprocess.Popen[str]:
        """Slurm says of the job what it said then, and calls."""
        words = call[2].split()
        if "--token" in words:
            self.slurm.say(words[words.index("--token") + 1], call[1])
        return self.slurm.start(call[0], *self.arguments(call))

    def answer(self, called: subprocess.Popen[str], call: Call, *, late: bool = False) -> None:
        """Waits for it. Where the manager has died meanwhile, it is started again: the call waits for it."""
        deadline = time.monotonic() + 120
        while called.poll() is None:
            assert time.monotonic() < deadline, f"{call[0]} has no answer\n{self.instance.logs()}"
            self.revive()
            with contextlib.suppress(subprocess.TimeoutExpired):
                called.wait(0.05)
        text, _ = called.communicate()
        assert called.returncode == 0 or (late and any(said in text for said in LATE)), f"{call}: {text}"

    def call(self, call: Call, *, late: bool = False) -> None:
        """One call to its end."""
        with self.begin(call) as called:
            self.answer(called, call, late=late)

    def revive(self) -> None:
        """Starts the manager if it is dead."""
        if not is_locked(self.instance.files.manager_lock):
            self.instance.up()

    def arm(self, fail_point: str) -> bool:
        """The manager from now on dies there. True if it has died already, of its start or of what it does at once."""
        self.instance.kill_manager()
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("FOREBAY_FAIL_POINT", fail_point)
            started = self.instance.run("up", "--capacity", "1GiB")
        died = started.returncode != 0 or not is_locked(self.instance.files.manager_lock)
        self.revive()
        return died

    def starts(self) -> int:
        """How many managers have served."""
        return self.instance.files.manager_log.read_text().count("forebay.manager: serving")

    def check(self) -> None:
        """All is done, once, and nothing is left."""
        output = self.outside / "output"
        assert output.read_text() == "water flows\n"
        assert output.stat().st_uid == self.slurm.uid
        assert self.instance.ask("ls")["reservations"] == []
        assert self.slurm.ask("show_sessions") == '{"sessions": []}\n'
        told = self.instance.ask("status", "--all")
        assert {job["state"] for job in told["jobs"]} == {"gone"}
        assert all(job["run"] == 1 for job in told["jobs"])
        assert told["attachments"] == []
        (pool,) = told["pools"]
        assert pool["free_bytes"] == pool["capacity_bytes"]
        done = self.instance.run("doctor")
        assert done.returncode == 0, done.stdout
        # For the next run of the same calls.
        for path in self.outside.glob("output*"):
            path.unlink()


@pytest.fixture(scope="module")
def python() -> Iterator[Path | None]:
    if os.geteuid() != 0:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="python-") as folder:
        Path(folder).chmod(0o755)
        yield make_python(Path(folder) / "python")


@pytest.fixture
def centre(python: Path | None) -> Iterator[Centre]:
    # Not below pytest's folders, which it closes to others whenever another run begins.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        Path(folder).chmod(0o755)
        made = Centre(Path(folder), python)
        with made.instance:
            yield made


def renamed(call: Call, token: str) -> Call:
    """The same for another job: a token that comes back would get a new run."""
    return (call[0], call[1], call[2].replace("--token 17", f"--token {token}"))


# crash-matrix: a Slurm job's calls | nobody; but each call comes twice, and twice at the same time | files are staged in and out once, the reservation is gone, doctor finds nothing
@pytest.mark.parametrize("recorded", [JOB, PERSISTENT], ids=["job", "persistent"])
def test_calls_that_come_twice_and_overlap_do_no_more_than_one(centre: Centre, recorded: tuple[Call, ...]) -> None:
    for call in recorded:
        with centre.begin(call) as first, centre.begin(call) as second:
            for called in (first, second):
                centre.answer(called, call, late=call[0] == "teardown")
        centre.call(call, late=call[0] == "teardown")
    centre.check()


# crash-matrix: a Slurm job's calls | slurmctld, killed again and again; calls of the dead come late | nothing is done a second time, and the job ends as it would have
def test_calls_that_come_late_change_nothing(centre: Centre) -> None:
    random_order = random.Random(TEST_SEED)
    past: list[Call] = []
    for call in JOB:
        centre.call(call)
        past.append(call)
        # A setup behind the end of the job is its next run, which Slurm asks for after a teardown.
        late = [old for old in past if old[0] not in ("setup", "teardown") or call[0] in ("paths", "pre_run")]
        for old in random_order.sample(late, min(3, len(late))):
            centre.call((old[0], call[1], old[2]), late=True)
    centre.check()


# crash-matrix: a Slurm job's stage-out | slurmctld, killed during data_out: the next one begins post_run, data_out and teardown while the first data_out still runs | results are at their destination once, the reservation is gone
def test_two_ends_of_a_job_at_the_same_time_are_one(centre: Centre) -> None:
    for call in JOB[:-2]:
        centre.call(call)
    post_run, data_out, teardown = JOB[-3:]
    with centre.begin(data_out) as orphan, centre.begin(post_run) as second:
        centre.answer(second, post_run)
        with centre.begin(data_out) as third:
            centre.answer(third, data_out)
        centre.call(teardown)
        centre.answer(orphan, data_out, late=True)
    centre.check()


@pytest.mark.parametrize("place", ["manager.change.after", "manager.call.after"])
# crash-matrix: a Slurm job's calls | manager, killed after a change of its database, in any of the calls, at `manager.change.after` | the call is done when the manager is back: files staged in and out once, the reservation gone, doctor finds nothing
# crash-matrix: a Slurm job's calls | manager, killed when the server has done what it asked, in any of the calls, at `manager.call.after` | the call is done when the manager is back: files staged in and out once, the reservation gone, doctor finds nothing
def test_a_manager_killed_in_any_call_does_it_when_it_is_back(sweep: Sweep, place: str, centre: Centre) -> None:
    for number in sweep.numbers({"change": 16, "call": 4}[place.split(".")[1]]):
        print(f"{place}:{number}")
        died = centre.arm(f"{place}:{number}=kill")
        starts = centre.starts()
        for call in JOB:
            centre.call(renamed(call, str(1000 + number)))
        centre.revive()
        died = died or centre.starts() > starts
        if not died:
            # Or it would die of being asked how it is.
            centre.arm("")
        centre.check()
        if not died:
            sweep.ends_at(number)
            return
