# SPDX-License-Identifier: Apache-2.0
"""Which node of a job may mount what, who is fenced, and when an engine ends; with engines that only remember."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from forebay.errors import ForebayError, NoSpaceError, NotFoundError, PermissionDeniedError, StorageError
from forebay.manager.records import (
    JobMount,
    JobRow,
    JobState,
    NodeAnswer,
    NodeAnswerState,
    NodeReported,
    ReservationRow,
    ReservationState,
    SiteMount,
)
from forebay.records import Severity
from forebay.workflows.directives.directives import Directives
from forebay.workflows.files.commands.site_mounts import SiteWanted
from forebay.workflows.files.engines import NodeMount
from forebay.workflows.files.namespaces import make_namespaces, make_private_folders
from forebay.workflows.files.pool_engines import PoolEngines
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.pools.placement import Reach
from forebay.workflows.manager.core.pools.pool_settings import Pool
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.slurm.job_files import JobFiles

NODES = {"n1": "10.0.0.1", "n2": "10.0.0.2"}


class Engines:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.running: set[str] = set()
        self.fails = False
        self.lacks_tree = False
        self.clean: list[str] = []
        self.problems: dict[str, ForebayError] = {}
        self.outside: dict[str, str] = {}
        self.incarnation = 3
        self.places = 300
        self.without_agent: set[str] = set()
        self.can_mount = True
        self.own_address = "10.0.0.9"

    def open(self, reservation: str, tree: Path, nodes: Mapping[str, str]) -> dict[str, NodeMount]:
        self.running.add(reservation)
        return {node: NodeMount(f"home:/{node}", 20490) for node in nodes}

    def _note(self, *call: str) -> None:
        if self.fails:
            raise StorageError("the disk does not answer", "")
        self.calls.append(call)

    def fence(self, reservation: str, nodes: Sequence[str]) -> None:
        if nodes:
            self._note("fence", reservation, *nodes)

    def release(self, reservation: str, nodes: Sequence[str]) -> None:
        if nodes:
            self._note("release", reservation, *nodes)

    def stop(self, reservation: str, clean: Sequence[str] = ()) -> None:
        self._note("stop", reservation)
        self.clean = list(clean)

    def make_tree(self, reservation: str, tree: Path, capacity_bytes: int) -> None:
        self._note("make_tree", reservation, str(tree), str(capacity_bytes))

    def make_private_folders(self, _reservation: str, tree: Path, nodes: Collection[str], uid: int, gid: int) -> None:
        make_private_folders(tree, nodes, uid, gid)

    def check_tree(self, reservation: str) -> None:
        if self.lacks_tree:
            raise StorageError("the engine's tree is not mounted here", reservation)

    def site_state(self, reservation: str) -> str:
        return "told"

    def site_problems(self) -> dict[str, ForebayError]:
        return self.problems

    def cgroup_problems(self) -> dict[str, str]:
        return self.outside

    def close(self, reservation: str, clean: Sequence[str] = ()) -> None:
        self._note("close", reservation)
        self.clean = list(clean)
        self.running.discard(reservation)

    def forget(self, reservation: str) -> None:
        self.close(reservation)

    def forget_all_but(self, reservations: Collection[str]) -> None:
        """Nothing is kept here."""

    def lacks_agent(self, server: str) -> bool:
        return server in self.without_agent

    def ended(self) -> list[str]:
        return sorted(self.running)

    def reservations(self) -> list[str]:
        return sorted(self.running)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "manager.sqlite")
    yield made
    made.close()


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
def files(database: Database, engines: Engines) -> JobFiles:
    pools = {
        "": Pool("default", files_driver="nfs"),
        "plain": Pool("plain"),
        "site": Pool("site", files_driver="commands"),
    }

    def info(name: str) -> SimpleNamespace:
        return SimpleNamespace(id=f"id-{name}", files_path=f"/root/{name}/files", files_bytes=1)

    reservations = SimpleNamespace(info=info, pools=SimpleNamespace(settings=SimpleNamespace(pools=pools)))
    return JobFiles(database, cast(Reservations, reservations), cast(PoolEngines, engines))


def job(
    database: Database, token: str, *persistents: str, capacity: int = 1, pool: str = "", uid: int = 1000
) -> JobRow:
    """One that is about to run."""
    directives = Directives(capacity_bytes=capacity, persistents=persistents).as_json()
    row = JobTable(database).add(token, uid, uid, capacity, directives)
    for name in filter(None, (row.reservation, *persistents)):
        reserved = ReservationRow(
            name=name,
            capacity_bytes=0,
            files_bytes=1,
            persistent=True,
            owner_uid=1000,
            owner_gid=1000,
            created_ns=0,
            state=ReservationState.PRESENT,
            id=f"id-{name}",
            pool=pool,
        )
        database.put_reservation(reserved)
    return JobTable(database).change(row.id, state=JobState.PRE_RUN)


def run(database: Database, files: JobFiles, row: JobRow, nodes: Mapping[str, str] = NODES) -> JobRow:
    files.open(row, Directives.from_json(row.directives), nodes)
    return JobTable(database).change(row.id, state=JobState.RUNNING)


def test_a_reservation_that_was_made_when_the_job_had_begun_without_it_costs_the_job_alone(
    database: Database, files: JobFiles
) -> None:
    row = job(database, "17", "mesh", capacity=0)
    database.forget_reservation("mesh")  # by force, and made again later
    row = run(database, files, row)
    assert files.answer("17", "n1") == NodeAnswer(NodeAnswerState.NONE)
    job(database, "18", "mesh", capacity=0)
    # An error would have the prolog fail, and Slurm drain the node.
    assert files.answer("17", "n1") == NodeAnswer(NodeAnswerState.NONE)


def test_a_reservation_that_was_destroyed_before_the_prolog_is_not_mounted(database: Database, files: JobFiles) -> None:
    run(database, files, job(database, "17", "mesh"))
    database.forget_reservation("job17")
    answer = files.answer("17", "n1")
    assert [mount.id for mount in answer.mounts] == ["id-mesh"]
    assert answer.striped == ""


def test_a_node_waits_until_its_export_is_open_and_gets_its_own(database: Database, files: JobFiles) -> None:
    row = job(database, "17")
    assert files.answer("17", "n1") == NodeAnswer(NodeAnswerState.WAIT)
    run(database, files, row)
    answer = files.answer("17", "n1")
    assert (answer.state, answer.run, answer.striped) == (NodeAnswerState.MOUNT, 1, "id-job17")
    (mount,) = answer.mounts
    assert mount == JobMount("id-job17", "home:/n1", 20490, "/root/job17/files")


def test_files_of_a_home_on_another_server_are_shown_too(database: Database, files: JobFiles) -> None:
    row = job(database, "17", "mesh", capacity=0)
    mesh = database.reservation("mesh")
    assert mesh is not None
    database.put_reservation(replace(mesh, server="ssd2"))
    run(database, files, row)
    (mount,) = files.answer("17", "n1").mounts
    assert (mount.id, mount.home) == ("id-mesh", "ssd2")


def test_jobs_lie_on_other_servers_where_a_driver_and_an_agent_show_them(files: JobFiles, engines: Engines) -> None:
    others = [SimpleNamespace(name="ssd2"), SimpleNamespace(name="ssd3")]
    files._reservations.servers = cast(Servers, SimpleNamespace(others=lambda: others))
    own = Reach(home_on=(server_name(),))
    assert [files.reach(pool) for pool in ("plain", "unknown")] == [own] * 2
    assert files.reach("", follows=True) == own
    assert files.reach("") == files.reach("site") == Reach()
    engines.without_agent.add("ssd3")
    assert files.reach("").without.keys() == files.reach("site").without.keys() == {"ssd3"}
    engines.can_mount = False
    assert files.reach("") == own
    assert files.reach("site") != own  # whose commands mount it there
    others.clear()
    assert files.reach("plain") == Reach()


def test_a_job_whose_home_is_away_is_told_so(database: Database, files: JobFiles) -> None:
    row = job(database, "17")
    own = database.reservation("job17")
    assert own is not None
    database.put_reservation(replace(own, server="ssd2"))
    away: dict[str, float] = {}
    files._reservations.servers = cast(Servers, SimpleNamespace(away_since=away.get))
    assert files.note_on(row) == ""
    away["ssd2"] = 1.0
    assert files.note_on(row).startswith("its files lie on server ssd2, which is away since 1970")


def test_a_job_whose_reservation_is_gone_does_not_run_without_its_files(database: Database, files: JobFiles) -> None:
    row = job(database, "17")
    files.check_there(row)
    database.forget_reservation("job17")
    with pytest.raises(NotFoundError, match="given up with its server"):
        files.check_there(row)


def test_a_reservation_that_no_agent_has_shown_is_destroyed_without_one(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    row = job(database, "17", "mesh", capacity=0)
    mesh = database.reservation("mesh")
    assert mesh is not None
    mesh = replace(mesh, server="ssd2")
    database.put_reservation(mesh)
    engines.fails = True  # no agent runs there
    files.let_go(mesh)
    run(database, files, row)
    with pytest.raises(StorageError):
        files.let_go(mesh)


def test_one_user_leaves_places_of_a_server_to_others(database: Database, files: JobFiles, engines: Engines) -> None:
    """Each reservation that is shown has a port of its home, and whoever had all kept others' jobs from running."""
    engines.places = 4
    for token in ("11", "12", "13"):
        run(database, files, job(database, token))
    with pytest.raises(NoSpaceError, match="the 1 places that are left are for users who have none"):
        run(database, files, job(database, "14"))
    other = job(database, "15", uid=1001)
    run(database, files, other)
    run(database, files, other)  # what is shown already takes no place
    mesh = job(database, "16", "mesh", capacity=0)
    on_other_server = database.reservation("mesh")
    assert on_other_server is not None
    database.put_reservation(replace(on_other_server, server="ssd2"))
    run(database, files, mesh)


def test_stages_of_a_user_leave_places_of_a_server_to_others_too(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    engines.places = 4

    def stage(name: str, uid: int = 1000) -> None:
        row = database.reservation(name)
        assert row is not None
        files.open_for_stages(row, uid)

    rows = [job(database, token) for token in ("11", "12", "13", "14")]
    stage("job11")
    stage("job12")
    run(database, files, rows[2])
    with pytest.raises(NoSpaceError, match="the 1 places that are left are for users who have none"):
        stage("job14")
    with pytest.raises(NoSpaceError, match="the 1 places that are left"):
        run(database, files, rows[3])
    stage("job14", uid=0)
    stage("job14")  # what is shown already takes no place
    files.close_for_stages(files.id_of("job14"))
    stage("job14", uid=1001)


def test_a_node_that_slurm_did_not_list_gets_nothing(database: Database, files: JobFiles) -> None:
    run(database, files, job(database, "17"))
    with pytest.raises(PermissionDeniedError, match="did not list node n3"):
        files.answer("17", "n3")
    with pytest.raises(NotFoundError):
        files.report("17", 1, "n3", "clean", "")
    with pytest.raises(NotFoundError):
        files.report("17", 2, "n1", "clean", "")  # of another run


def test_jobs_without_a_driver_or_unknown_ones_have_no_files_to_mount(database: Database, files: JobFiles) -> None:
    job(database, "17", pool="plain")
    assert files.answer("17", "n1") == NodeAnswer(NodeAnswerState.NONE)
    assert files.answer("99", "n1") == NodeAnswer(NodeAnswerState.NONE)


def test_after_clean_nodes_the_engine_is_stopped_and_nobody_is_named(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    row = run(database, files, job(database, "17"))
    for node in NODES:
        files.report("17", 1, node, "mounted", "")
        assert files.report("17", 1, node, "clean", "") == NodeReported(fenced=False)
    assert files.settle(row) == []
    assert engines.calls == [("stop", "id-job17")]
    assert files.note_on(row) == ""
    files.end(row)
    assert engines.running == set()
    with pytest.raises(PermissionDeniedError):
        files.answer("17", "n1")


# crash-matrix: A job's nodes after it ran | a node, which never says that it is clean | it is fenced and named, and what it says later changes nothing
def test_a_silent_node_is_fenced_and_named(database: Database, files: JobFiles, engines: Engines) -> None:
    row = run(database, files, job(database, "17"))
    files.report("17", 1, "n1", "clean", "")
    assert files.settle(row) == ["n2"]
    assert "node n2 was fenced" in files.note_on(row)
    assert files.report("17", 1, "n2", "clean", "") == NodeReported(fenced=True)
    assert files.settle(row) == ["n2"]


def test_a_node_that_says_it_is_unclean_is_fenced_at_once(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    row = run(database, files, job(database, "17"))
    assert files.report("17", 1, "n2", "unclean", "target is busy") == NodeReported(fenced=True)
    assert engines.calls == [("fence", "id-job17", "n2")]
    files.report("17", 1, "n1", "clean", "")
    assert files.settle(row) == ["n2"]
    assert "node n2 (target is busy) was fenced" in files.note_on(row)


def test_a_fence_is_one_for_all_jobs_of_the_node(database: Database, files: JobFiles, engines: Engines) -> None:
    first = run(database, files, job(database, "17", "mesh", capacity=0))
    second = run(database, files, job(database, "18", "mesh", capacity=0), {"n2": "10.0.0.2", "n3": "10.0.0.3"})
    files.report("17", 1, "n2", "unclean", "target is busy")
    assert (files.unclean(first), files.unclean(second)) == (["n2"], ["n2"])
    assert "n2 (another job was not clean on this node) was fenced" in files.note_on(second)
    # What its mount was is gone: it cannot know that it is clean.
    assert files.report("18", 1, "n2", "clean", "") == NodeReported(fenced=True)
    assert files.unclean(second) == ["n2"]


def test_a_job_that_is_cancelled_before_its_prolog_asks_has_nothing_to_mount(
    database: Database, files: JobFiles
) -> None:
    row = run(database, files, job(database, "17"))
    JobTable(database).change(row.id, state=JobState.POST_RUN)
    assert files.answer("17", "n1") == NodeAnswer(NodeAnswerState.NONE)


def test_nothing_counts_as_fenced_until_it_is_sure(database: Database, files: JobFiles, engines: Engines) -> None:
    row = run(database, files, job(database, "17"))
    engines.fails = True
    with pytest.raises(StorageError):
        files.settle(row)
    assert files.unclean(row) == []
    engines.fails = False
    assert files.settle(row) == ["n1", "n2"]


def test_a_reservation_of_two_jobs_is_closed_for_the_first_alone(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    first = run(database, files, job(database, "17", "mesh", capacity=0))
    second = run(database, files, job(database, "18", "mesh", capacity=0), {"n2": "10.0.0.2", "n3": "10.0.0.3"})
    assert files.answer("17", "n1").striped == ""
    for node in NODES:
        files.report("17", 1, node, "clean", "")
    assert files.settle(first) == []
    assert engines.calls == [("release", "id-mesh", "n1")]  # n2 has it for the other job
    files.end(first)
    assert engines.running == {"id-mesh"}
    JobTable(database).change(first.id, state=JobState.GONE)
    files.reconcile()
    assert engines.running == {"id-mesh"}
    files.end(second)
    assert engines.running == set()


def test_engines_that_no_job_needs_end(database: Database, files: JobFiles, engines: Engines) -> None:
    row = run(database, files, job(database, "17"))
    files.reconcile()
    assert engines.running == {"id-job17"}
    JobTable(database).change(row.id, state=JobState.KEPT)
    files.reconcile()
    assert engines.running == set()


def test_why_names_a_node_that_has_not_mounted(database: Database, files: JobFiles) -> None:
    row = run(database, files, job(database, "17"))
    files.report("17", 1, "n1", "mounted", "")
    files.report("17", 1, "n2", "failed", "the server does not answer")
    assert files.note_on(row) == "node n2 (the server does not answer) has not mounted its files"


def test_the_doctor_names_an_engine_that_does_not_run(database: Database, files: JobFiles) -> None:
    assert files.findings() == []
    run(database, files, job(database, "17"))
    (finding,) = files.findings()
    assert finding.where == "files of reservation id-job17"


# crash-matrix: A job's node before its prolog | another job of the node, which is not clean | the job has no files there, and the node stays in use
def test_a_node_that_was_fenced_before_a_job_came_is_not_drained_by_its_prolog(
    database: Database, files: JobFiles
) -> None:
    run(database, files, job(database, "17", "mesh", capacity=0))
    run(database, files, job(database, "18", "mesh", capacity=0))
    run(database, files, job(database, "19", "mesh"))
    files.report("17", 1, "n1", "unclean", "target is busy")
    assert files.answer("18", "n1") == NodeAnswer(NodeAnswerState.NONE)
    assert files.answer("18", "n2").state is NodeAnswerState.MOUNT
    # Its own files are there all the same.
    answer = files.answer("19", "n1")
    assert ([mount.id for mount in answer.mounts], answer.striped) == (["id-job19"], "id-job19")


def test_a_sites_engine_makes_its_tree_before_anything_is_staged_in(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    row = job(database, "17", pool="site")
    files.make_trees(row, Directives.from_json(row.directives))
    assert engines.calls == [("make_tree", "id-job17", "/root/job17/files", "1")]
    other = job(database, "18")
    files.make_trees(other, Directives.from_json(other.directives))
    assert len(engines.calls) == 1


def test_a_stage_elsewhere_has_a_sites_tree_made_and_mounts_it_by_its_command(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    job(database, "17", pool="site")
    known = database.reservation("job17")
    assert known is not None
    reservation = replace(known, server="ssd2")
    database.put_reservation(reservation)
    assert files.reaches(reservation)
    wanted = files.open_for_stages(reservation, 1000)
    assert engines.calls == [("make_tree", "id-job17", "/root/job17/files", "1")]
    assert wanted.site == SiteWanted(3, 1, "home:/forebay.stages", "told")
    engines.calls.clear()
    # It may have a tree, whether it was ever shown or not, and the tree goes before the reservation does.
    files.close_for_stages("id-job17")
    engines.running.clear()
    files.let_go(reservation)
    assert engines.calls == [("close", "id-job17")] * 2


def test_the_answer_of_a_sites_engine_has_the_incarnation_and_what_its_commands_keep(
    database: Database, files: JobFiles
) -> None:
    run(database, files, job(database, "17", pool="site"))
    (mount,) = files.answer("17", "n1").mounts
    assert mount.site == SiteMount(3, 1, "told")


def test_the_end_of_a_job_says_which_nodes_need_no_fence(database: Database, files: JobFiles, engines: Engines) -> None:
    row = run(database, files, job(database, "17", pool="site"))
    files.report("17", 1, "n1", "clean", "")
    assert files.settle(row) == ["n2"]
    assert engines.clean == ["n1"]


def test_nothing_is_copied_from_below_a_tree_that_is_not_mounted(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    row = run(database, files, job(database, "17", pool="site"))
    engines.lacks_tree = True
    with pytest.raises(StorageError, match="not mounted here"):
        files.settle(row)


# crash-matrix: Files of a job that a site's commands show | the teardown, killed when the tree is unmounted at the home | the repeated one goes on, although nothing is mounted there any more
def test_a_job_ends_whose_tree_is_half_destroyed(database: Database, files: JobFiles, engines: Engines) -> None:
    row = run(database, files, job(database, "17", pool="site"))
    engines.lacks_tree = True
    files.end(row)
    assert engines.running == set()


def test_the_doctor_names_a_command_that_is_not_there(files: JobFiles, engines: Engines) -> None:
    engines.problems = {"fence": StorageError("another user may change this program", "/opt/fence")}
    (finding,) = files.findings()
    assert finding.where == "[files.commands] fence"
    assert "another user may change" in finding.what


def test_the_doctor_says_whose_memory_daemons_take_and_why(files: JobFiles, engines: Engines) -> None:
    engines.outside = {"": "the cgroup /sys/fs/cgroup/forebay cannot be used: Read-only file system", "ssd2": "so"}
    own, other = files.findings()
    assert (own.severity, own.where, other.where) == (Severity.NOTE, "files on nodes", "server ssd2")
    assert "counts to the manager: the cgroup /sys/fs/cgroup/forebay cannot be used: Read-only" in own.what
    assert "counts to the agent: so." in other.what


def test_each_node_gets_private_scratch_beside_the_striped_one(
    database: Database, files: JobFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = job(database, "17")
    owner = (os.getuid(), os.getgid())
    row = replace(row, owner_uid=owner[0], owner_gid=owner[1])
    info = SimpleNamespace(id="id-job17", files_path=str(tmp_path), files_bytes=1)
    monkeypatch.setattr(files._reservations, "info", lambda _: info)
    make_namespaces(tmp_path, "17", *owner, private=True, prolog=False, shown=True)
    directives = Directives(capacity_bytes=1, private=True)
    files.open(row, directives, NODES)
    files.open(row, directives, NODES)
    assert sorted(path.name for path in (tmp_path / "private").iterdir()) == ["n1", "n2"]
    assert (tmp_path / "private" / "n1").stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "17").iterdir()) == []
    JobTable(database).change(row.id, state=JobState.RUNNING, directives=directives.as_json())
    assert files.answer("17", "n1").private


def test_stages_on_the_managers_node_reach_what_a_driver_shows(database: Database, files: JobFiles) -> None:
    job(database, "17")
    job(database, "18", pool="site")
    job(database, "19", pool="plain")
    rows = [database.reservation(name) for name in ("job17", "job18", "job19")]
    assert [row is not None and files.reaches(row) for row in rows] == [True, True, False]
    assert files.are_shown("job18")


def test_a_sweep_before_the_end_of_a_job_does_not_have_clean_nodes_fenced(
    database: Database, files: JobFiles, engines: Engines
) -> None:
    run(database, files, job(database, "17", pool="site"))
    for node in NODES:
        files.report("17", 1, node, "clean", "")
    files.reconcile()
    assert engines.calls == [("close", "id-job17")]
    assert sorted(engines.clean) == ["n1", "n2"]
