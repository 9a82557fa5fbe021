# SPDX-License-Identifier: Apache-2.0
"""Every form in which a user asks Slurm for a burst buffer. All jobs are submitted first, and run side by side."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.centre import Centre, needs_slurm
from tests.slurm.cluster import PERSON, wait_for
from tests.support.time_limits import seconds

pytestmark = needs_slurm

_SCRATCH = "#DW jobdw capacity=64MiB access_mode=striped type=scratch\n"

_ARRAY = """\
#!/bin/bash
#DW jobdw capacity=64MiB access_mode=striped type=scratch
#DW stage_out type=file source=$DW_JOB_STRIPED/task destination={out}/task.%A.%a
#FB stage_out stream=flow every=4 destination={out}/steps.%a
echo $SLURM_ARRAY_TASK_ID > ${{DW_JOB_STRIPED}}task
{python} {home}/simulate.py
"""

_SYMBOLS = """\
#!/bin/bash
#SBATCH --job-name=symbols
#DW jobdw  capacity=64MiB \\
    access_mode=striped  type=scratch
#DW stage_in  type=list   source={out}/list
#DW stage_out type=file source=$DW_JOB_STRIPED/b.txt destination={out}/%x.%u.%j
#FB stage_out stream=flow steps=1 destination={out}/flow.%j
cat ${{DW_JOB_STRIPED}}a.txt ${{DW_JOB_STRIPED}}deep/b.txt > ${{DW_JOB_STRIPED}}b.txt
{python} {home}/simulate.py
"""

# The loop ends when a checkpoint has been copied, so the copying goes on beside the job. One appears after that.
_FOLLOWED = """\
#!/bin/bash
#DW jobdw capacity=64MiB access_mode=striped type=scratch
#FB stage_out source=$DW_JOB_STRIPED/run match=chk????? multiple_of=10 exclude=*7? destination={out}/checkpoints.%j
set -e
checkpoint() {{
    mkdir -p ${{DW_JOB_STRIPED}}run/$1.temp/Level_0
    echo $1 > ${{DW_JOB_STRIPED}}run/$1.temp/Level_0/Cell
    mv ${{DW_JOB_STRIPED}}run/$1.temp ${{DW_JOB_STRIPED}}run/$1
}}
checkpoint chk00000
checkpoint chk00005
checkpoint chk00010
until test -e {out}/checkpoints.$SLURM_JOB_ID/chk00010; do sleep 0.1; done
checkpoint chk00070
checkpoint chk00020
"""

_HETEROGENEOUS = """\
#!/bin/bash
#SBATCH --nodes=1
#DW jobdw capacity=64MiB access_mode=striped type=scratch
#DW stage_out type=file source=$DW_JOB_STRIPED/first destination={out}/first
#SBATCH hetjob
#SBATCH --nodes=1
#DW jobdw capacity=32MiB access_mode=striped type=scratch
srun --het-group=0 sh -c 'echo $FOREBAY_RESERVATION > ${{DW_JOB_STRIPED}}first'
"""

_PRIVATE = """\
#!/bin/bash
#DW jobdw capacity=64MiB access_mode=striped,private type=scratch
#DW stage_out type=directory source=$DW_JOB_STRIPED destination={out}/striped
#DW stage_out type=directory source=$DW_JOB_STRIPED/seen destination={out}/seen
srun --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME >> ${{DW_JOB_PRIVATE}}mine'
touch ${{DW_JOB_STRIPED}}rest
rm -rf ${{DW_JOB_STRIPED}}
mkdir ${{DW_JOB_STRIPED}}seen
srun --ntasks-per-node=1 sh -c 'cp ${{DW_JOB_PRIVATE}}mine ${{DW_JOB_STRIPED}}seen/$SLURMD_NODENAME'
"""


@dataclass(frozen=True)
class Submitted:
    """The jobs by their form, and what they left."""

    jobs: dict[str, int]
    out: Path


@pytest.fixture(scope="module")
def submitted(centre: Centre, home: Path, python: Path) -> Iterator[Submitted]:
    """All of them, begun at once."""
    out = home / "forms"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    (out / "a.txt").write_text("a\n")
    (out / "b.txt").write_text("b\n")
    (out / "list").write_text(f"{out}/a.txt  $DW_JOB_STRIPED/a.txt\n\n{out}/b.txt $DW_JOB_STRIPED/deep/b.txt\n")
    (out / "directives").write_text(
        f"{_SCRATCH}#DW stage_in type=file source={home}/input.txt destination=$DW_JOB_STRIPED/in.txt\n"
    )
    shutil.chown(out, PERSON)
    values = {"out": out, "home": home, "python": python}
    plain = "#!/bin/bash\n"
    short = "capacity=64MiB access=striped type=scratch"
    submit = centre.cluster.submit
    jobs = {
        "private": submit(_PRIVATE.format(**values), "--nodes=2"),
        "heterogeneous": submit(_HETEROGENEOUS.format(**values)),
        "array": submit(_ARRAY.format(**values), "--array=1-2"),
        "symbols": submit(_SYMBOLS.format(**values)),
        "followed": submit(_FOLLOWED.format(**values)),
        "bb": submit(
            f"{plain}test -d $DW_JOB_STRIPED && echo $FOREBAY_RESERVATION > {out}/bb\n{python} {home}/simulate.py\n",
            f"--bb={short}",
            f"--export=ALL,FOREBAY_STAGE_OUT=stream=flow steps=3 destination={out}/bb.%j",
        ),
        "bbf": submit(f"{plain}cp ${{DW_JOB_STRIPED}}in.txt {out}/bbf\n", f"--bbf={out}/directives"),
        "nodeless": submit(f"{plain}#BB create_persistent name=nodeless capacity=64MiB access=striped\n", "-N0"),
    }
    last = f"#DW stage_out type=file source=$DW_JOB_STRIPED/x destination={out}/before\n"
    jobs["before"] = submit(f"{plain}{_SCRATCH}{last}echo made > ${{DW_JOB_STRIPED}}x\n")
    jobs["after"] = submit(f"{plain}cp {out}/before {out}/after\n", f"--dependency=afterburstbuffer:{jobs['before']}")
    yield Submitted(jobs, out)
    centre.cluster.submit(f"{plain}#BB destroy_persistent name=nodeless\n", "-N0")
    wait_for(lambda: "nodeless" not in centre.cluster.buffers(), "the persistent reservation to go", 120)
    centre.must_be_clean()


def read(path: Path, what: str) -> str:
    """A file's content, as soon as it has some."""
    wait_for(lambda: path.exists() and path.stat().st_size > 0, what, 180)
    return path.read_text()


def test_a_short_option_is_a_jobs_scratch(centre: Centre, submitted: Submitted) -> None:
    job = submitted.jobs["bb"]
    centre.wait_until_gone(job)
    assert (submitted.out / "bb").read_text() == f"job{job}\n"
    assert len(list((submitted.out / f"bb.{job}").glob("*000003*.bp*"))) == 1, centre.cluster.output(job)


def test_directives_may_lie_in_a_file_of_their_own(centre: Centre, submitted: Submitted) -> None:
    centre.wait_until_gone(submitted.jobs["bbf"])
    assert (submitted.out / "bbf").read_text() == "water flows\n"


def test_an_interactive_job_has_its_files(centre: Centre, submitted: Submitted, home: Path, python: Path) -> None:
    directives = submitted.out / "interactive"
    rule = f"#FB stage_out stream=flow steps=2 destination={submitted.out}/interactive.%j\n"
    directives.write_text((submitted.out / "directives").read_text() + rule)
    asked = ["salloc", "--nodes=1", f"--bbf={directives}"]
    typed = f"cat ${{DW_JOB_STRIPED}}in.txt; echo job $SLURM_JOB_ID; {python} {home}/simulate.py"
    shell = centre.cluster.start(*asked, "sh", "-c", typed)
    printed, _ = shell.communicate(timeout=seconds(180))
    assert "water flows\n" in printed, printed
    (number,) = [line.split()[1] for line in printed.splitlines() if line.startswith("job ")]
    centre.wait_until_gone(int(number))
    assert len(list((submitted.out / f"interactive.{number}").glob("*000002*.bp*"))) == 1, printed


def test_each_task_of_an_array_has_a_scratch_and_places_of_its_own(centre: Centre, submitted: Submitted) -> None:
    array = submitted.jobs["array"]
    for task in ("1", "2"):
        assert read(submitted.out / f"task.{array}.{task}", f"task {task} to be staged out") == f"{task}\n"
        wait_for(lambda task=task: len(list((submitted.out / f"steps.{task}").glob("*.bp"))) == 2, "its steps", 180)  # type: ignore[misc]


def test_symbols_lists_continued_lines_and_many_blanks(centre: Centre, submitted: Submitted) -> None:
    job = submitted.jobs["symbols"]
    centre.wait_until_gone(job)
    assert (submitted.out / f"symbols.{PERSON}.{job}").read_text() == "a\nb\n", centre.cluster.output(job)
    assert len(list((submitted.out / f"flow.{job}").glob("*000001*.bp*"))) == 1


def test_checkpoints_are_copied_while_the_job_runs(centre: Centre, submitted: Submitted) -> None:
    job = submitted.jobs["followed"]
    centre.wait_until_gone(job)
    checkpoints = submitted.out / f"checkpoints.{job}"
    names = sorted(path.name for path in checkpoints.iterdir() if not path.name.startswith("."))
    assert names == ["chk00000", "chk00010", "chk00020"], centre.cluster.output(job)
    for name in names:
        assert (checkpoints / name / "Level_0" / "Cell").read_text() == f"{name}\n"
    assert checkpoints.owner() == PERSON


def test_each_component_of_a_heterogeneous_job_has_a_scratch(centre: Centre, submitted: Submitted) -> None:
    leader = submitted.jobs["heterogeneous"]
    centre.wait_until_gone(leader, leader + 1)
    assert (submitted.out / "first").read_text() == f"job{leader}\n", centre.cluster.output(leader)


def test_a_job_without_nodes_makes_a_persistent_reservation(centre: Centre, submitted: Submitted) -> None:
    wait_for(lambda: "Name=nodeless" in centre.cluster.buffers(), "Slurm to know it", 120)
    centre.wait_until_gone(submitted.jobs["nodeless"])
    (row,) = [row for row in centre.instance.ask("ls")["reservations"] if row["name"] == "nodeless"]
    assert row["files_bytes"] == 64 << 20


def test_a_dependent_job_starts_when_the_stage_out_is_done(centre: Centre, submitted: Submitted) -> None:
    assert read(submitted.out / "after", "the dependent job to run") == "made\n"


def test_private_scratch_is_each_nodes_own_behind_one_path(centre: Centre, submitted: Submitted) -> None:
    job = submitted.jobs["private"]
    centre.wait_until_gone(job)
    seen = {path.name: path.read_text() for path in (submitted.out / "seen").glob("n*")}
    assert seen == {"n1": "n1\n", "n2": "n2\n"}, centre.cluster.output(job)
    # `rm -rf` of the striped scratch took what was in it, and a stage-out of it has nothing of the private one.
    names = {path.name for path in (submitted.out / "striped").iterdir() if "receipt" not in path.name}
    assert names == {"seen"}, centre.cluster.output(job)


def test_an_interactive_job_may_have_bb_lines_alone(centre: Centre, submitted: Submitted) -> None:
    line = submitted.out / "bb-alone"
    for verb, options in (("create", " capacity=64MiB access=striped type=scratch"), ("destroy", "")):
        line.write_text(f"#BB {verb}_persistent name=byhand{options}\n")
        shell = centre.cluster.start("salloc", "--nodes=1", f"--bbf={line}", "sh", "-c", "echo job $SLURM_JOB_ID")
        printed, _ = shell.communicate(timeout=seconds(180))
        (number,) = [row.split()[1] for row in printed.splitlines() if row.startswith("job ")]
        centre.wait_until_gone(int(number))
    wait_for(lambda: "byhand" not in centre.cluster.buffers(), "it to go", 120)


def test_a_job_whose_directives_come_too_late_says_so(centre: Centre) -> None:
    late = "#DW stage_out type=file source=$DW_JOB_STRIPED/x destination=%d/x"
    for form in (late, late.replace("%d", "/tmp")):
        job = centre.cluster.submit(f"#!/bin/bash\n{_SCRATCH}true\n{form}\nsleep 1\n")
        shown = ["scontrol", "show", "job", str(job)]
        wait_for(lambda shown=shown: "line 4 of the script" in centre.cluster.ask(*shown), "the comment")  # type: ignore[misc]
        centre.wait_until_gone(job)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("#DW swap 1GiB", "swap is not there"),
        (
            "#DW jobdw type=cache capacity=1GiB pfs=/tmp access_mode=striped",
            "this is type=cache, the transparent cache",
        ),
        (
            "#DW jobdw capacity=1GiB\n#DW stage_out source=$DW_JOB_STRIPED/a destination=/pfs/$USER/a",
            "write %u",
        ),
        ("#DW jobdw capacity=1.5GiB access_mode=striped type=scratch", "capacity=1.5GiB is no size"),
        ("#BB create_persistent name=shelf capacity=1.5GiB", "capacity=1.5GiB is no size"),
        ("#BB create_persistent name=shelf capacity=900GiB", "and the whole pool forebay has"),
        ("#BB destroy_persistent name=", '"name=" is no key=value'),
        ("#DW jobdw capacity=900GiB access_mode=striped type=scratch", "and the whole pool forebay has"),
        (
            "#DW jobdw capacity=1GiB\n#DW stage_in type=file source=input destination=$DW_JOB_STRIPED/x",
            "no absolute path",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_when_it_is_submitted(centre: Centre, line: str, reason: str) -> None:
    done = centre.cluster.try_to_submit(f"#!/bin/bash\n{line}\ntrue\n")
    assert done.returncode != 0
    assert reason in done.stderr


def test_a_persistent_reservation_that_does_not_exist_yet_is_waited_for(centre: Centre) -> None:
    job = centre.cluster.submit("#!/bin/bash\n#DW persistentdw name=later\necho $FOREBAY_RESERVATION\n")
    wait_for(lambda: centre.cluster.show(job).get("JobState") == "PENDING", "the job to be pending")
    told = centre.instance.run("why", str(job))
    assert "there is no persistent reservation later" in told.stdout, told.stdout + told.stderr
    maker = centre.cluster.submit(
        "#!/bin/bash\n#BB create_persistent name=later capacity=64MiB access=striped\n", "-N0"
    )
    centre.wait_until_gone(job, maker)
    assert centre.cluster.output(job) == "later\n"
    centre.cluster.submit("#!/bin/bash\n#BB destroy_persistent name=later\n", "-N0")
    wait_for(lambda: "later" not in centre.cluster.buffers(), "it to go", 120)
