# SPDX-License-Identifier: Apache-2.0
"""dw_wlm_cli and dwstat against a real manager, and without one: what Slurm and users are told, and when."""

from __future__ import annotations

import json
import os
import pwd
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.slurm_calls import SlurmCalls
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance

LISTS = ("pools", "show_sessions", "show_instances", "show_configurations")
JOB = "#DW jobdw capacity=64MiB access_mode=striped type=scratch"


@pytest.fixture
def instance(tmp_path: Path) -> CommandLineInstance:
    return CommandLineInstance(tmp_path / "root")


@pytest.fixture
def slurm(tmp_path: Path, instance: CommandLineInstance) -> Iterator[SlurmCalls]:
    """Slurm's calls to an instance that is up."""
    calls = SlurmCalls(tmp_path, instance)
    with instance:
        until((instance.root / "slurm" / "snapshot").exists, "the snapshot")
        yield calls


def lists(slurm: SlurmCalls) -> dict[str, Any]:
    return {name: json.loads(slurm.ask(name)) for name in LISTS}


def tokens(slurm: SlurmCalls) -> set[str]:
    return {session["token"] for session in json.loads(slurm.ask("show_sessions"))["sessions"]}


def test_without_a_snapshot_no_list_is_given(tmp_path: Path, instance: CommandLineInstance) -> None:
    slurm = SlurmCalls(tmp_path, instance)
    calls = [slurm.call(name) for name in LISTS]
    calls.append(slurm.call("job_process", "--job", slurm.script(JOB)))
    calls.append(slurm.call("paths", "--token", "1", "--pathfile", tmp_path / "path"))
    for done in calls:
        assert done.returncode != 0
        assert done.stdout.startswith("forebay: there is no whole ")
        assert "forebay up" in done.stdout
    assert slurm.dwstat().returncode != 0


def test_half_a_snapshot_is_none(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    instance.kill_manager()
    for path in (instance.root / "slurm" / "snapshot", instance.root / "slurm" / "snapshot.7"):
        whole = path.read_bytes()
        for size in (0, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            done = slurm.call("show_sessions")
            assert (done.returncode, done.stdout[:1]) == (1, "f"), (path, size)
        path.write_bytes(whole)
    path.unlink()
    assert slurm.call("show_instances").returncode == 1
    path.write_bytes(whole)
    assert json.loads(slurm.ask("show_sessions")) == {"sessions": []}


def test_what_changed_is_told_before_the_call_is_answered(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    free = json.loads(slurm.ask("pools"))["pools"][0]["free"]
    slurm.set_up("17", slurm.script(JOB))
    assert tokens(slurm) == {"17"}
    assert json.loads(slurm.ask("pools"))["pools"][0]["free"] < free
    assert slurm.create_persistent("mesh") == "created mesh\n"
    assert tokens(slurm) == {"17", "mesh"}
    instance.ask("create", "others", "--capacity", "16MiB", "--files", "16MiB", "--persistent")
    assert tokens(slurm) == {"17", "mesh", "others"}
    slurm.ask("teardown", "--token", "17", "--job", slurm.script(JOB), "--hurry")
    slurm.ask("teardown", "--token", "mesh", "--job", slurm.script())
    instance.ask("destroy", "others")
    assert tokens(slurm) == set()
    assert json.loads(slurm.ask("pools"))["pools"][0]["free"] == free


# crash-matrix: Slurm's lists and a job's variables | manager, killed before | both are answered as before, and nothing is forgotten
def test_lists_variables_and_submissions_need_no_manager(
    slurm: SlurmCalls, instance: CommandLineInstance, tmp_path: Path
) -> None:
    slurm.create_persistent("mesh")
    script = slurm.script(JOB, "#DW persistentdw name=mesh")
    slurm.set_up("17", script)
    before = lists(slurm)
    instance.kill_manager()
    assert lists(slurm) == before
    slurm.ask("paths", "--job", script, "--token", "17", "--pathfile", tmp_path / "path")
    variables = dict(line.split("=", 1) for line in (tmp_path / "path").read_text().splitlines())
    assert Path(variables["DW_JOB_STRIPED"]).is_dir()
    assert variables["DW_JOB_STRIPED"].endswith("/")
    assert Path(variables["DW_PERSISTENT_STRIPED_mesh"]).is_dir()
    assert variables["FOREBAY_RESERVATION"] == "job17"
    refused = slurm.call("paths", "--token", "18", "--pathfile", tmp_path / "none")
    assert (refused.returncode, refused.stdout) == (1, "forebay: No matching session: there is no job 18\n")
    assert slurm.ask("job_process", "--job", script) == ""
    assert [row["token"] for row in slurm.table("sessions")] == ["17", "mesh"]
    instance.up()
    assert lists(slurm) == before
    # What the manager did not see at submission, it refuses at setup.
    wrong = slurm.script("#DW jobdw capacity=1.5GiB")
    refused = slurm.call("setup", *slurm.setup_arguments("18", wrong))
    assert "capacity=1.5GiB is no size" in refused.stdout


def test_a_manager_that_hangs_stops_no_submission(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    script = slurm.script(JOB)
    os.kill(instance.manager_pid(), signal.SIGSTOP)
    try:
        begin = time.monotonic()
        assert slurm.ask("job_process", "--job", script) == ""
        assert time.monotonic() - begin < 4.0, "Slurm's ValidateTimeout is 5 s"
    finally:
        os.kill(instance.manager_pid(), signal.SIGCONT)
    for line, reason in (
        ("#DW jobdw capacity=1.5GiB", "is no size"),
        ("#DW jobdw capacity=16MiB pool=none", "there is no pool none"),
        ("#BB create_persistent name=a capacity=16MiB pool=none", "there is no pool none"),
        (f"{JOB}\n#FB stage_out stream=flow destination=/pfs/100%", "is no symbol"),
    ):
        assert reason in slurm.call("job_process", "--job", slurm.script(line)).stdout


# crash-matrix: a call of Slurm's | manager, killed before | the call waits, and is done when the manager is back
def test_calls_of_a_job_wait_for_the_manager(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    script = slurm.script(JOB)
    instance.kill_manager()
    with slurm.start("setup", *slurm.setup_arguments("17", script)) as waiting:
        instance.up()
        output, _ = waiting.communicate(timeout=seconds(60))
    assert waiting.returncode == 0
    assert output.endswith("created 17\n")
    assert tokens(slurm) == {"17"}


def test_the_variables_of_a_job_are_the_schedulers_alone(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    slurm.set_up("17", slurm.script(JOB))
    for path in (instance.root / "slurm").glob("snapshot*"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    public = (instance.root / "slurm" / "dwstat").read_text()
    assert "DW_JOB" not in public


def test_dwstat_has_the_columns_that_scripts_pick(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    slurm.create_persistent("mesh", "forebay:134217728")
    script = slurm.script(JOB, "#DW persistentdw name=mesh")
    slurm.set_up("17", script)
    slurm.ask("data_in", "--token", "17", "--job", script)
    slurm.ask("pre_run", "--token", "17", "--job", script)

    (pool,) = slurm.table("pools")
    assert (pool["pool"], pool["units"], pool["gran"]) == ("forebay", "bytes", "16MiB")
    job, persistent = slurm.table("sessions")
    assert (job["token"], job["state"], job["creator"], job["owner"]) == ("17", "CA---", "SLURM", str(slurm.uid))
    assert (persistent["token"], persistent["expiration"]) == ("mesh", "never")
    own, shared = slurm.table("instances")
    assert (own["sess"], own["bytes"], own["public"]) == (job["sess"], "64MiB", "false")
    assert (shared["sess"], shared["bytes"], shared["public"]) == (persistent["sess"], "128MiB", "true")
    assert [row["activs"] for row in slurm.table("configurations")] == ["1", "1"]
    assert {row["sess"] for row in slurm.table("registrations")} == {job["sess"]}
    assert {row["conf"] for row in slurm.table("activations")} == {own["inst"], shared["inst"]}
    assert [row["capacity"] for row in slurm.table("fragments")] == ["64MiB", "128MiB"]
    (node,) = slurm.table("nodes")
    assert (node["pool"], node["online"], node["insts"], node["activs"]) == ("forebay", "online", "2", "2")
    # Scripts take columns by number.
    assert list(node)[2] == "online"
    assert list(own)[:5] == ["inst", "state", "sess", "bytes", "nodes"]
    most = slurm.dwstat("most").stdout.split("\n\n")
    assert [table.split()[0] for table in most] == ["pool", "sess", "inst", "conf", "reg", "activ"]

    instance.kill_server()
    until(lambda: slurm.table("nodes")[0]["online"] == "offline", "the node to be shown as away")
    assert [row["token"] for row in slurm.table("sessions")] == ["17", "mesh"]
    instance.up()
    until(lambda: slurm.table("nodes")[0]["online"] == "online", "the node to be back")


@pytest.mark.parametrize(
    "argument", ["../snapshot", "pools\n== sessions", "--root=/etc", "x" * 100_000, "\x1b[31m", "end"]
)
def test_dwstat_repeats_nothing_that_a_stranger_writes(slurm: SlurmCalls, argument: str) -> None:
    done = slurm.dwstat(argument)
    assert done.returncode == 1
    assert done.stdout.startswith("dwstat: there is no such table\nusage: dwstat [TABLE...]\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="the reservation is root's, and the job another user's")
def test_a_job_uses_what_is_shared_with_its_user_or_group(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    instance.ask("create", "others", "--capacity", "16MiB", "--files", "16MiB", "--persistent")
    script = slurm.script("#DW persistentdw name=others")
    refused = slurm.call("setup", *slurm.setup_arguments("17", script, "forebay:0"))
    assert refused.returncode == 1
    assert "there is no persistent reservation others of yours or shared with you" in refused.stdout
    instance.ask("share", "others", "--group", str(slurm.gid), "--rights", "read")
    slurm.set_up("17", script, "forebay:0")
    assert [row["reservation"] for row in instance.ask("status")["attachments"]] == ["others"]
    instance.ask("share", "others", "--user", str(slurm.uid), "--rights", "none")
    refused = slurm.call("setup", *slurm.setup_arguments("18", script, "forebay:0"))
    assert refused.returncode == 1


def test_down_refuses_while_a_job_is_not_over(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    script = slurm.script(JOB)
    slurm.set_up("17", script)
    refused = instance.run("down")
    assert refused.returncode != 0
    assert "in use by 1 job (17)" in refused.stderr
    instance.ask("down", "--keep")
    assert tokens(slurm) == {"17"}
    instance.up()
    assert tokens(slurm) == {"17"}
    slurm.ask("teardown", "--token", "17", "--job", script, "--hurry")
    instance.ask("down")


def test_rules_of_a_batch_jobs_environment_are_directives(
    slurm: SlurmCalls, instance: CommandLineInstance, tmp_path: Path
) -> None:
    script = slurm.script(JOB)
    environment = script.with_name("environment")

    def let_environment_say(rules: str) -> None:
        environment.write_bytes(b"\3\0\0\0HOME=/\0FOREBAY_STAGE_OUT=" + rules.encode() + b"\0LAST=1\0")

    let_environment_say("stream=flow every=0 destination=/x")
    refused = slurm.call("job_process", "--job", script)
    assert refused.returncode != 0
    assert "every=0 is no whole number above 0" in refused.stdout

    let_environment_say(f"stream=flow every=2 destination={tmp_path}/a.%j; stream=probe destination={tmp_path}/b ;")
    slurm.ask("job_process", "--job", script)
    slurm.set_up("7", script)
    slurm.ask("data_in", "--token", "7", "--job", script)
    slurm.say("7", "RUNNING")
    slurm.ask("pre_run", "--token", "7", "--job", script)
    with instance.manager() as manager:
        (job,) = manager.jobs()
    streams = [(stream["stream"], stream["every"], stream["destination"]) for stream in job.directives["streams"]]
    assert streams == [("flow", 2, f"{tmp_path}/a.7"), ("probe", None, f"{tmp_path}/b")]


def test_a_job_on_a_node_that_does_not_see_the_files_is_stopped(tmp_path: Path, instance: CommandLineInstance) -> None:
    slurm = SlurmCalls(tmp_path, instance, 'nodes = "n[1-2]"')
    nodes = tmp_path / "nodes"
    script = slurm.script(JOB)
    with instance:
        until((instance.root / "slurm" / "snapshot").exists, "the snapshot")
        slurm.set_up("1", script)
        slurm.ask("data_in", "--token", "1", "--job", script)
        pre_run: list[str | Path] = ["--token", "1", "--job", script, "--nodehostnamefile", nodes]
        nodes.write_text("n1\nn3\n")
        refused = slurm.call("pre_run", *pre_run)
        assert refused.returncode != 0
        assert "n3 cannot reach the burst buffer" in refused.stdout
        assert "`scontrol release` runs the job again" in refused.stdout
        nodes.write_text("n1\nn2\n")
        slurm.ask("pre_run", *pre_run)


def test_a_jobs_account_is_what_slurm_has_for_it(tmp_path: Path, instance: CommandLineInstance) -> None:
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    accounts = [f'[accounts.{name}]\nusers = ["{user.pw_name}"]' for name in ("poor", "rich")]
    slurm = SlurmCalls(tmp_path, instance, accounts[0], 'quota = "32MiB"', accounts[1])
    script = slurm.script(JOB)
    with instance:
        until((instance.root / "slurm" / "snapshot").exists, "the snapshot")
        # Its user wrote another account into the comment.
        slurm.say("1", "PENDING")
        slurm.set_account("1", "poor", "please Account=rich")
        refused = slurm.call("setup", *slurm.setup_arguments("1", script))
        assert refused.returncode != 0
        assert "quota of account poor is 32 MiB" in refused.stdout
        # Slurm does not answer at first.
        slurm.say("2", "?")
        slurm.set_account("2", "rich")
        with slurm.start("setup", *slurm.setup_arguments("2", script)) as setup:
            until(lambda: slurm.times_asked("2") >= 2, "Slurm to be asked again")
            slurm.say("2", "PENDING")
            assert setup.wait(60) == 0
        with instance.manager() as manager:
            assert [row.account for row in manager.reservations()] == ["rich"]
        unknown = slurm.call("setup", *slurm.setup_arguments("3", script))
        assert (unknown.returncode, unknown.stdout) == (1, "Slurm knows no job 3\n")


def test_an_interactive_job_with_bb_lines_alone_has_no_script(slurm: SlurmCalls, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    slurm.set_up("17", nothing, "forebay:0")
    for call in ("data_in", "post_run", "data_out", "teardown"):
        slurm.ask(call, "--token", "17", "--job", nothing)
    # One with scratch has directives, which are not to be missed.
    refused = slurm.call("setup", *slurm.setup_arguments("18", nothing))
    assert (refused.returncode, refused.stdout) == (
        1,
        "forebay: the script cannot be read: No such file or directory\n",
    )
