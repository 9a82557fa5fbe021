# SPDX-License-Identifier: Apache-2.0
"""libdatawarp as a C program of a job's user calls it: stages at once, at the job's end, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from forebay.instance import server_binary
from forebay.workflows.manager.instance.daemon import is_locked
from tests.support.datawarp_program import ACTIVATE, AT_JOB_END, IMMEDIATE, REVOKE, DatawarpProgram
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.slurm_calls import SlurmCalls, Start, job_of, outside, reservations
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance

JOB = "#DW jobdw capacity=16MiB access_mode=striped type=scratch"
_STRANGER = 61234


@dataclass
class Job:
    """A job that runs, its scratch, and a folder outside."""

    slurm: SlurmCalls
    instance: CommandLineInstance
    program: DatawarpProgram
    script: Path
    scratch: Path
    pfs: Path
    token: str = "17"

    def write(self, name: str, text: str) -> Path:
        """A file of the user's in the scratch."""
        path = self.scratch / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        for made in (path, path.parent):
            if made != self.scratch:
                os.chown(made, self.slurm.uid, self.slurm.gid)
        return path

    def data_out(self) -> None:
        """The job ends, and what it was to keep is staged out."""
        self.end()
        self.slurm.ask("data_out", "--token", self.token, "--job", self.script)

    def end(self) -> None:
        self.slurm.say(self.token, "COMPLETED")
        self.slurm.ask("post_run", "--token", self.token, "--job", self.script)

    def teardown(self, *hurry: str) -> None:
        self.slurm.ask("teardown", "--token", self.token, "--job", self.script, *hurry)


@pytest.fixture
def job(start_slurm: Start) -> Job:
    return running_job(*start_slurm())


def running_job(slurm: SlurmCalls, instance: CommandLineInstance) -> Job:
    script = slurm.script(JOB)
    slurm.set_up("17", script, "forebay:16MiB")
    slurm.ask("data_in", "--token", "17", "--job", script)
    slurm.say("17", "RUNNING")
    slurm.ask("pre_run", "--token", "17", "--job", script)
    program = DatawarpProgram(instance.root.parent, instance, slurm.uid, slurm.gid)
    return Job(slurm, instance, program, script, reservations(instance)["job17"] / "17", outside(slurm))


def test_a_file_and_a_folder_go_out_and_come_in(job: Job) -> None:
    file = job.write("checkpoint", "one")
    job.program.call("file_out", file, job.pfs / "made" / "checkpoint", IMMEDIATE)
    job.program.call("wait_file", file)
    assert (job.pfs / "made" / "checkpoint").read_text() == "one"
    assert (job.pfs / "made" / "checkpoint").stat().st_uid == job.slurm.uid
    assert job.program.counts("file", file) == (1, 0, 0, 0)

    job.write("results/a", "a")
    job.write("results/b", "b")
    # As libhio does: the folder is there already.
    (job.pfs / "results").mkdir()
    os.chown(job.pfs / "results", job.slurm.uid, job.slurm.gid)
    job.program.call("directory_out", f"{job.scratch}//results/", job.pfs / "results", IMMEDIATE)
    job.program.call("wait_directory", job.scratch / "results")
    assert sorted(path.name for path in (job.pfs / "results").iterdir()) == ["a", "b"]
    complete, *others = job.program.counts("directory", job.scratch / "results")
    assert complete >= 2
    assert others == [0, 0, 0]
    # A file of a folder that was staged whole is as far as the folder.
    assert job.program.counts("file", job.scratch / "results" / "a") == (1, 0, 0, 0)

    job.program.call("file_in", job.scratch / "new" / "input", job.pfs / "results" / "a")
    job.program.call("wait_file", job.scratch / "new" / "input")
    assert (job.scratch / "new" / "input").read_text() == "a"
    job.program.call("directory_in", job.scratch / "again", job.pfs / "results")
    job.program.call("wait_directory", job.scratch / "again")
    assert (job.scratch / "again" / "b").read_text() == "b"


def test_lists_and_threads(job: Job) -> None:
    files = [job.write(f"file.{number}", str(number)) for number in range(8)]
    job.program.call("concurrency", job.scratch, "2")
    job.program.call("threads", job.scratch, job.pfs, "8")
    assert [(job.pfs / file.name).read_text() for file in files] == [str(number) for number in range(8)]
    job.program.call("list_out", job.pfs / "listed", IMMEDIATE, *files[:3])
    job.program.call("wait_list", *files[:3])
    assert sorted(path.name for path in (job.pfs / "listed").iterdir()) == ["file.0", "file.1", "file.2"]
    assert job.program.counts("list", files[0]) == (1, 0, 0, 0)
    assert job.program.counts("directory", job.scratch) == (8, 0, 0, 0)
    job.program.call("list_in", job.scratch / "back", job.pfs / "file.0", job.pfs / "file.1")
    job.program.call("wait_list", job.scratch / "back" / "file.0", job.scratch / "back" / "file.1")
    assert (job.scratch / "back" / "file.1").read_text() == "1"


def test_a_thread_that_is_cancelled_ends_when_its_call_is_over(job: Job) -> None:
    file = job.write("file", "x")
    job.program.call("cancelled", file, job.pfs / "file")
    assert (job.pfs / "file").read_text() == "x"


# crash-matrix: A stage kept for its job's end | the manager, before and during data_out | it runs in data_out, without a line that asks for it
def test_what_is_deferred_survives_the_manager_and_runs_in_data_out(job: Job) -> None:
    file = job.write("late", "before")
    job.program.call("file_out", file, job.pfs / "late", AT_JOB_END)
    job.program.call("file_out", file, job.pfs / "late", AT_JOB_END)  # again: the same stage
    assert job.program.counts("file", file) == (0, 0, 1, 0)
    assert job.program.error("wait_file", file) in ("EDEADLK", "EDEADLOCK")
    job.instance.kill_manager()
    job.instance.up()
    assert job.program.counts("file", file) == (0, 0, 1, 0)
    assert not (job.pfs / "late").exists()
    file.write_text("after")
    job.data_out()
    assert (job.pfs / "late").read_text() == "after"
    job.teardown()
    assert job_of(job.instance, "17")["state"] == "gone"
    assert job.instance.ask("ls")["reservations"] == []


def test_what_is_revoked_does_not_run_and_what_is_activated_runs_at_once(job: Job) -> None:
    revoked, activated = job.write("revoked", "r"), job.write("activated", "a")
    for file in (revoked, activated):
        job.program.call("file_out", file, job.pfs / file.name, AT_JOB_END)
    job.program.call("file_out", revoked, "null", REVOKE)
    assert job.program.error("file_out", revoked, "null", REVOKE) == "EINVAL"
    assert job.program.error("query_file", revoked) == "EINVAL"
    job.program.call("file_out", activated, "null", ACTIVATE)
    job.program.call("wait_file", activated)
    assert (job.pfs / "activated").read_text() == "a"
    states = {stage["job"]["path"]: stage["state"] for stage in job.instance.ask("stages")["stages"]}
    assert states == {"17/revoked": "revoked", "17/activated": "succeeded"}
    job.data_out()
    assert not (job.pfs / "revoked").exists()


def test_a_deferred_stage_that_fails_keeps_the_jobs_data(job: Job) -> None:
    file = job.write("late", "kept")
    job.program.call("file_out", file, job.pfs / "closed" / "late", AT_JOB_END)
    (job.pfs / "closed").write_text("a file where a folder is to be")
    job.end()
    failed = job.slurm.call("data_out", "--token", "17", "--job", job.script)
    assert failed.returncode == 1, failed.stdout
    job.teardown()
    assert job_of(job.instance, "17")["state"] == "kept"
    assert file.read_text() == "kept"


def test_a_deferred_stage_is_tried_again_by_the_next_data_out(job: Job) -> None:
    file = job.write("late", "kept")
    job.program.call("file_out", file, job.pfs / "closed" / "late", AT_JOB_END)
    (job.pfs / "closed").write_text("a file where a folder is to be")
    job.end()
    assert job.slurm.call("data_out", "--token", "17", "--job", job.script).returncode == 1
    (job.pfs / "closed").unlink()
    job.slurm.ask("data_out", "--token", "17", "--job", job.script)
    assert (job.pfs / "closed" / "late").read_text() == "kept"


def fail(job: Job, name: str) -> Path:
    """A file whose stage has failed; nobody was told."""
    file = job.write(name, "kept")
    (job.pfs / "closed").write_text("a file where a folder is to be")
    job.program.call("file_out", file, job.pfs / "closed" / name, IMMEDIATE)
    until(lambda: job.instance.ask("stages")["stages"][0]["state"] == "failed", "the stage to fail")
    return file


def test_a_stage_that_failed_without_its_programs_knowing_keeps_the_jobs_data(job: Job) -> None:
    file = fail(job, "file")
    job.end()
    failed = job.slurm.call("data_out", "--token", "17", "--job", job.script)
    assert failed.returncode == 1, failed.stdout
    assert "closed" in failed.stdout
    job.teardown()
    assert job_of(job.instance, "17")["state"] == "kept"
    assert file.read_text() == "kept"


def test_without_data_out_such_a_stage_keeps_the_jobs_data_too(job: Job) -> None:
    file = fail(job, "file")
    job.end()
    job.teardown()
    assert job_of(job.instance, "17")["state"] == "kept"
    assert file.read_text() == "kept"


@pytest.mark.parametrize(
    ("call", "is_of_file"),
    [
        ("wait_file", True),
        ("query_file", True),
        ("query_directory", False),
        ("failed", False),
        ("terminate_file", True),
    ],
)
def test_a_stage_that_its_program_knows_to_have_failed_keeps_nothing(job: Job, call: str, is_of_file: bool) -> None:
    file = fail(job, "file")
    job.program.say(call, file if is_of_file else job.scratch)
    job.data_out()
    job.teardown()
    assert job_of(job.instance, "17")["state"] == "gone"
    assert job.instance.ask("ls")["reservations"] == []


def test_a_file_of_a_folder_that_is_staged_whole_is_not_ended_alone(job: Job) -> None:
    file = job.write("folder/file", "kept")
    job.program.call("directory_out", file.parent, job.pfs / "folder", AT_JOB_END)
    assert job.program.error("terminate_file", file) == "EINVAL"
    job.data_out()
    assert (job.pfs / "folder" / "file").read_text() == "kept"


def test_a_stage_that_its_user_cancels_before_data_out_is_not_run(job: Job) -> None:
    file = job.write("late", "kept")
    job.program.call("file_out", file, job.pfs / "late", AT_JOB_END)
    (stage,) = job.instance.ask("stages")["stages"]
    assert job.instance.ask("stages", "cancel", str(stage["id"]))["stage"]["state"] == "cancelled"
    job.data_out()
    assert not (job.pfs / "late").exists()


def test_a_teardown_without_data_out_keeps_what_was_deferred(job: Job) -> None:
    file = job.write("late", "kept")
    job.program.call("file_out", file, job.pfs / "late", AT_JOB_END)
    job.end()
    job.teardown()
    assert job_of(job.instance, "17")["state"] == "kept"
    assert file.read_text() == "kept"
    (stage,) = job.instance.ask("stages")["stages"]
    assert stage["state"] == "cancelled"


def test_nothing_is_deferred_for_a_job_whose_stage_out_has_begun(job: Job) -> None:
    file = job.write("late", "x")
    job.data_out()
    assert job.program.error("file_out", file, job.pfs / "late", AT_JOB_END) == "EINVAL"


def test_wrong_arguments_are_refused(job: Job, tmp_path: Path) -> None:
    file = job.write("file", "x")
    assert job.program.say("nothing") == "0"
    error = job.program.error
    assert error("file_out", "null", job.pfs / "x", IMMEDIATE) == "EINVAL"
    assert error("file_out", file, "null", IMMEDIATE) == "EINVAL"
    assert error("file_out", file, job.pfs / "x", "9") == "EINVAL"
    assert error("file_out", job.scratch / "missing", job.pfs / "x", IMMEDIATE) == "ENOENT"
    assert error("file_out", job.scratch, job.pfs / "x", IMMEDIATE) == "EISDIR"
    assert error("directory_out", file, job.pfs / "x", IMMEDIATE) == "ENOTDIR"
    assert error("file_in", job.scratch / "new", job.pfs / "missing") == "ENOENT"
    assert error("wait_file", file) == "EINVAL"
    assert error("terminate_file", file) == "EINVAL"
    assert error("concurrency", job.scratch, "0") == "EINVAL"
    assert error("file_out", job.scratch / ("x" * 5000), job.pfs / "x", IMMEDIATE) == "ENAMETOOLONG"
    assert job.instance.ask("stages")["stages"] == []


def test_names_outside_the_reservation_are_refused(job: Job) -> None:
    file = job.write("file", "x")
    (job.pfs / "elsewhere").write_text("y")
    error = job.program.error
    assert error("file_out", job.pfs / "elsewhere", job.pfs / "x", IMMEDIATE) == "EINVAL"
    above = "/.." * (len(job.scratch.parts) - 1)
    assert error("file_out", f"{job.scratch}{above}{job.pfs}/elsewhere", job.pfs / "x", IMMEDIATE) == "EINVAL"
    assert error("stripes", job.pfs / "elsewhere") == "ENODATA"
    (job.scratch / "out").symlink_to(job.pfs)
    assert error("file_out", job.scratch / "out" / "elsewhere", job.pfs / "x", IMMEDIATE) == "EINVAL"
    assert job.instance.ask("stages")["stages"] == []
    assert job.program.say("stripes", file) == "8388608 1 0 0"
    accounts = json.loads(job.program.say("accounting", file).rpartition(" ")[0])
    (fragment,) = accounts["realm"]["fragments"]
    assert (accounts["realm"]["realm_id"], fragment["capacity_max"]) == ("job17", 16 << 20)
    assert error("accounting", job.pfs) == "EINVAL"
    # A link that is the last name is the mover's to judge: it leads out, and is not followed.
    (job.scratch / "link").symlink_to(job.pfs / "elsewhere")
    job.program.call("file_out", job.scratch / "link", job.pfs / "x", IMMEDIATE)
    assert error("wait_file", job.scratch / "link") in ("EINVAL", "EACCES")
    assert not (job.pfs / "x").exists()
    assert job.program.say("failed", job.scratch).startswith(f"{job.scratch}/link:")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as other users")
def test_another_users_job_is_nobodys(job: Job) -> None:
    file = job.write("file", "x")
    job.program.call("file_out", file, job.pfs / "file", AT_JOB_END)
    for path in (job.scratch, job.scratch.parent, job.instance.root / "reservations"):
        path.chmod(0o777)  # what is readable is not yet one's own
    error = job.program.error
    for arguments in (
        ("file_out", file, "/tmp/stolen", IMMEDIATE),
        ("file_out", file, "/tmp/stolen", AT_JOB_END),
        ("file_out", file, "null", REVOKE),
        ("file_out", file, "null", ACTIVATE),
        ("terminate_file", file),
        ("wait_file", file),
        ("query_file", file),
        ("concurrency", job.scratch, "1"),
        ("failed", job.scratch),
    ):
        assert error(*arguments, uid=_STRANGER, SLURM_JOB_ID="17") in ("EINVAL", "ENOENT"), arguments
    assert job.program.counts("file", file) == (0, 0, 1, 0)


def test_two_destinations_of_one_path_are_refused_and_a_stage_can_be_terminated(job: Job) -> None:
    file = job.write("file", "x")
    job.program.call("file_out", file, job.pfs / "one", AT_JOB_END)
    assert job.program.error("file_out", file, job.pfs / "two", AT_JOB_END) == "EBUSY"
    assert job.program.error("file_out", file, job.pfs / "two", IMMEDIATE) == "EBUSY"
    job.program.call("terminate_file", file)
    job.program.call("file_out", file, job.pfs / "two", IMMEDIATE)
    job.program.call("wait_file", file)
    assert not (job.pfs / "one").exists()
    job.program.call("terminate_file", file)  # it is over: no error


# crash-matrix: A program that waits for its stage | the manager, then the program | the wait goes on; the stage is done
def test_a_wait_goes_on_across_a_restart_and_a_stage_without_its_program(job: Job) -> None:
    file = job.write("file", "x")
    # Open for writing: the stage waits until it is closed.
    with file.open("a"):
        job.program.call("file_out", file, job.pfs / "file", IMMEDIATE)
        waiting, killed = job.program.start("wait_file", file), job.program.start("wait_file", file)
        job.instance.kill_manager()
        job.instance.up()
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert waiting.poll() is None, waiting.communicate()
        assert job.program.counts("file", file) == (0, 1, 0, 0)
    said, _ = waiting.communicate(timeout=seconds(60))
    assert said == "0\n"
    assert (job.pfs / "file").read_text() == "x"


def test_a_stage_that_the_manager_refuses_is_an_error_of_its_own(start_slurm: Start) -> None:
    job = running_job(*start_slurm("[stages]", 'receipts_max = "1"'))
    file = job.write("file", "x")
    job.program.call("file_out", file, job.pfs / "file", IMMEDIATE)
    assert job.program.error("wait_file", file) == "EDQUOT"
    assert job.program.say("failed", job.scratch) == f"{file}:{errno.EDQUOT} {-errno.ENOENT}"
    assert job.program.counts("file", file) == (0, 0, 0, 1)
    (refused,) = job.instance.ask("stages")["stages"]
    shown = job.instance.ask("stages", "show", str(refused["id"]))["stage"]
    assert "receipts_max allows 1 B" in shown["failure"]["what"]


def test_a_manager_that_stays_away_is_an_error_in_bounded_time(job: Job) -> None:
    file = job.write("file", "x")
    job.instance.kill_manager()
    assert (
        job.program.error("file_out", file, job.pfs / "x", IMMEDIATE, FOREBAY_DATAWARP_WAIT_SECONDS="1") == "ETIMEDOUT"
    )
    assert job.program.error("query_file", file, FOREBAY_ROOT="/nowhere") == "ENODEV"
    job.instance.up()
    job.program.call("file_out", file, job.pfs / "x", IMMEDIATE)


def test_data_out_waits_for_what_the_program_did_not_wait_for(job: Job) -> None:
    file = job.write("file", "x")
    with file.open("a"):
        job.program.call("file_out", file, job.pfs / "file", IMMEDIATE)
        job.end()
        out = job.slurm.start("data_out", "--token", "17", "--job", job.script)
        assert job.program.counts("file", file) == (0, 1, 0, 0)
        assert out.poll() is None
    said, _ = out.communicate(timeout=seconds(60))
    assert out.returncode == 0, said
    assert (job.pfs / "file").read_text() == "x"


def test_the_programs_are_found_by_pkg_config(tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config")

    _check_pkg_config(server_binary().parents[1] / "lib" / "pkgconfig", tmp_path)


def _check_pkg_config(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        "#include <datawarp.h>\nint main(void) { return dw_wait_file_stage(0) == -22 ? 0 : 1; }\n", encoding="utf-8"
    )
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "cray-datawarp >= 1.0"],
        env={**os.environ, "PKG_CONFIG_PATH": str(folder)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    subprocess.run(["cc", "-o", tmp_path / "program", source, *flags], check=True)
    subprocess.run([tmp_path / "program"], check=True, env={})


# crash-matrix: Stages kept for a job's end | manager, in data_out, when it has begun one, at `manager.stage.activated` | Slurm's call goes on with the next manager; they are copied
@pytest.mark.parametrize("place", ["manager.stage.activated", "manager.stage.spawned", "manager.stage.ended"])
def test_data_out_of_deferred_stages_goes_on_after_a_kill_of_the_manager(job: Job, place: str) -> None:
    files = [job.write(name, name) for name in ("one", "two")]
    for file in files:
        job.program.call("file_out", file, job.pfs / file.name, AT_JOB_END)
    job.end()
    job.instance.kill_manager()
    job.instance.environment["FOREBAY_FAIL_POINT"] = f"{place}=kill"
    job.instance.up()
    del job.instance.environment["FOREBAY_FAIL_POINT"]
    out = job.slurm.start("data_out", "--token", "17", "--job", job.script)
    until(lambda: not is_locked(job.instance.root / "manager.lock"), "the manager to die")
    job.instance.up()
    said, _ = out.communicate(timeout=seconds(60))
    assert out.returncode == 0, said
    assert [(job.pfs / file.name).read_text() for file in files] == ["one", "two"]
    job.teardown()
    assert job.instance.ask("ls")["reservations"] == []


def test_what_no_library_sends_is_refused(job: Job) -> None:
    file = job.write("file", "x")
    fields = b"kind\0file\0path\0" + os.fsencode(file) + b"\0"
    for body, number in (
        (b"", 22),
        (b"wait", 22),
        (b"wait\0kind\0", 22),
        (b"wait\0" + b"a\0b\0" * 20, 22),
        (b"forget\0", 38),
        (b"wait\0kind\0folder\0path\0" + os.fsencode(file) + b"\0", 22),
        (b"stage_out\0" + fields + b"pfs\0relative\0umask\x0022\0job\0\0", 22),
        (b"stage_out\0" + fields + b"pfs\0/tmp/x\0umask\x009999\0job\0\0", 22),
        (b"defer\0" + fields + b"pfs\0/tmp/x\0umask\x0022\0job\0../1\0", 22),
        (b"stage_out\0kind\0file\0path\0" + os.fsencode(file) + b"/../y\0pfs\0/tmp/x\0umask\x0022\0job\0\0", 22),
        (b"wait\0kind\0file\0path\0" + os.fsencode(file) + b"/a" * 300 + b"\0", 22),
        (b"x" * 70000, 22),
    ):
        assert answer_to(job.instance, body) == number, body[:80]
    assert job.instance.ask("stages")["stages"] == []


def answer_to(instance: CommandLineInstance, body: bytes) -> int:
    """The error number with which the manager answers a request that this user of the instance sends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect((instance.root / "manager-endpoint").read_text().strip())
        head = f"POST /datawarp HTTP/1.1\r\nHost: manager\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    (number,) = re.findall(rb"\r\n\r\n([0-9]+)\0", answer)
    return int(number)
