# SPDX-License-Identifier: Apache-2.0
"""Calls of the manager to agents of other servers, and which of them an agent carries out."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from forebay.errors import (
    DeadlineExceededError,
    DisconnectedError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    RefusedError,
    StorageError,
)
from forebay.instance import Instance
from forebay.manager.pool_membership import PoolMembership
from forebay.workflows.files import agent as agent_module
from forebay.workflows.files import agent_calls
from forebay.workflows.files.agent import Agent, agent_lock, check_owned
from forebay.workflows.files.agent_calls import AgentAwayError, AgentCalls, Turn
from forebay.workflows.files.agent_proof import agent_proof, check_agent_proof
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.engines import FilesEngines, NodeMount
from forebay.workflows.files.pool_engines import PoolEngines
from forebay.workflows.files.settings import FilesSettings

_ID = "5b25bf15-3fd4-42c1-84d2-f10c33f12f0e"
_ROOT = "root-of-ssd2"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


@pytest.fixture
def calls() -> AgentCalls:
    def root_uuid(server: str) -> str:
        if server != "ssd2":
            raise DisconnectedError(f"server {server} is not in the pool any more")
        return _ROOT

    return AgentCalls(root_uuid)


def say(calls: AgentCalls, agent: str = "a", wait_seconds: float = 0.0, **said: Any) -> dict[str, Any]:
    """One request of the agent's."""
    return calls.turn(Turn("ssd2", _ROOT, agent, wait_seconds=wait_seconds, **said))


def turn(
    calls: AgentCalls,
    agent: str = "a",
    answers: dict[int, dict[str, Any]] | None = None,
    under_way: frozenset[int] = frozenset(),
) -> list[dict[str, Any]]:
    """What the agent is to do, once there is something."""
    while True:
        said = say(calls, agent, 10.0, answers=answers or {}, under_way=under_way)
        if said["calls"] or answers:
            given: list[dict[str, Any]] = said["calls"]
            return given


def asked(threads: ThreadPoolExecutor, calls: AgentCalls, operation: str, seconds: float = 60.0) -> Future[Any]:
    return threads.submit(calls.ask, "ssd2", operation, _ID, {}, seconds)


def test_a_call_is_taken_and_its_answer_returned(threads: ThreadPoolExecutor, calls: AgentCalls) -> None:
    asking = asked(threads, calls, "stop")
    (call,) = turn(calls)
    assert (call["operation"], call["reservation"]) == ("stop", _ID)
    answering = threads.submit(turn, calls, "a", {call["number"]: {"result": "done", "error": None}})
    assert asking.result() == "done"
    asking = asked(threads, calls, "fence")  # which ends the agent's wait
    (call,) = answering.result() or turn(calls)
    failure = {"code": "io_error", "what": "its disk does not answer", "where": ""}
    threads.submit(turn, calls, "a", {call["number"]: {"error": failure}})
    with pytest.raises(StorageError, match="does not answer"):
        asking.result()
    asked(threads, calls, "stop").cancel()


# crash-matrix: Files of a home on another server | `forebay agent`, killed with a call that it has taken | the next agent of that server gets the call
def test_what_a_killed_agent_has_taken_goes_to_the_next_one_in_order(
    threads: ThreadPoolExecutor, calls: AgentCalls
) -> None:
    first = asked(threads, calls, "open")
    (opened,) = turn(calls)
    second = asked(threads, calls, "fence")
    (fenced,) = turn(calls, under_way=frozenset({opened["number"]}))
    again = turn(calls, "b")
    assert again == [opened, fenced]
    done = {call["number"]: {"result": call["operation"], "error": None} for call in again}
    say(calls, "b", answers=done)
    assert (first.result(), second.result()) == ("open", "fence")


def test_what_was_lost_on_the_way_to_the_agent_is_given_again(threads: ThreadPoolExecutor, calls: AgentCalls) -> None:
    asking = asked(threads, calls, "open")
    (opened,) = turn(calls)
    # The agent asks anew: it has not got the answer.
    assert turn(calls) == [opened]
    number = opened["number"]
    assert say(calls, under_way=frozenset({number}))["calls"] == []
    say(calls, answers={number: {"result": "opened"}})
    # It has not heard that this has come.
    assert say(calls, answers={number: {"result": "opened"}})["calls"] == []
    assert asking.result() == "opened"


def test_a_request_whose_agent_asks_anew_is_given_nothing(threads: ThreadPoolExecutor, calls: AgentCalls) -> None:
    lost = threads.submit(say, calls, "a", 10.0)
    while not calls._waiting:
        pass
    assert say(calls)["calls"] == []
    assert lost.result()["calls"] == []
    asked(threads, calls, "stop", 0.0)
    assert [call["operation"] for call in turn(calls)] == ["stop"]


def test_an_agent_that_was_replaced_is_given_nothing(threads: ThreadPoolExecutor, calls: AgentCalls) -> None:
    old = threads.submit(say, calls, "a", 10.0)
    while not calls._waiting:
        pass
    new = threads.submit(say, calls, "b", 10.0)
    assert old.result()["calls"] == []
    asking = asked(threads, calls, "stop")
    (call,) = new.result()["calls"]
    say(calls, "b", answers={call["number"]: {"result": None}})
    assert asking.result() is None


def test_a_call_without_an_agent_fails_and_is_forgotten(calls: AgentCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_calls, "_TAKEN_SECONDS_MAX", 0.01)
    with pytest.raises(AgentAwayError, match="forebay agent"):
        calls.ask("ssd2", "open", _ID, {}, 10.0)
    assert say(calls)["calls"] == []


def test_a_call_whose_agent_is_never_heard_again_fails(
    threads: ThreadPoolExecutor, calls: AgentCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_calls, "_AWAY_SECONDS", 0.2)
    asking = asked(threads, calls, "open", 600.0)
    turn(calls)
    with pytest.raises(AgentAwayError, match="forebay agent"):
        asking.result()


def test_a_late_answer_is_for_nobody(threads: ThreadPoolExecutor, calls: AgentCalls) -> None:
    asking = asked(threads, calls, "open", 0.0)
    (call,) = turn(calls)
    with pytest.raises(DeadlineExceededError):
        asking.result()
    later = asked(threads, calls, "stop")
    (stop,) = turn(calls, answers={call["number"]: {"result": None}}) or turn(calls)
    assert (stop["operation"], later.done()) == ("stop", False)
    say(calls, answers={stop["number"]: {"result": "stopped"}})
    assert later.result() == "stopped"


def test_an_agent_of_another_root_or_server_is_refused(calls: AgentCalls) -> None:
    with pytest.raises(RefusedError, match="another root"):
        calls.turn(Turn("ssd2", "an old copy", "a"))
    with pytest.raises(DisconnectedError):
        calls.turn(Turn("ssd9", _ROOT, "a"))


def test_only_so_many_agents_wait_with_the_manager(calls: AgentCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_calls, "_WAITING_MAX", 0)
    said = say(calls, "a", 10.0)
    assert said["calls"] == []
    assert said["pause_seconds"] > 0


def test_what_is_left_of_a_reservation_that_is_gone_is_asked_of_the_agent_that_shows_it(
    threads: ThreadPoolExecutor, calls: AgentCalls, tmp_path: Path
) -> None:
    engines = PoolEngines(FilesEngines(tmp_path, FilesSettings()), calls, lambda _: None)
    engines.close(_ID)  # nobody has it
    say(calls, shown=frozenset({_ID}), ended=frozenset({_ID}))
    assert (engines.reservations(), engines.ended()) == ([_ID], [_ID])
    closing = threads.submit(engines.close, _ID)
    shown = frozenset({_ID})
    while not (taken := say(calls, "a", 10.0, shown=shown, ended=shown)["calls"]):
        pass
    (call,) = taken
    assert call["operation"] == "close"
    say(calls, answers={call["number"]: {"result": None}})
    closing.result()
    assert engines.reservations() == []


@pytest.mark.parametrize(
    ("failure", "kind", "match"),
    [
        ({"code": "of a newer version", "what": "w", "where": ""}, ProtocolError, "run the same"),
        ({"what": "without a code"}, ProtocolError, "run the same"),
        # Of its own server, to the agent: not of the manager's.
        ({"code": "disconnected", "what": "nobody answers", "where": ""}, AgentAwayError, "server ssd2: nobody"),
    ],
)
def test_an_agents_error_is_one_of_the_managers_whatever_it_says(
    threads: ThreadPoolExecutor, calls: AgentCalls, failure: dict[str, str], kind: type[Exception], match: str
) -> None:
    asking = asked(threads, calls, "stop")
    (given,) = turn(calls)
    say(calls, answers={given["number"]: {"result": None, "error": failure}})
    with pytest.raises(kind, match=match):
        asking.result()


@pytest.mark.parametrize("result", [None, {}, {"n1": {"source": "home:/n1"}}, {"n1": 5}, [1]])
def test_an_agent_that_does_not_say_what_nodes_mount_has_shown_nothing(
    threads: ThreadPoolExecutor, calls: AgentCalls, tmp_path: Path, result: Any
) -> None:
    engines = PoolEngines(FilesEngines(tmp_path, FilesSettings()), calls, lambda _: "ssd2")
    opening = threads.submit(engines.open, _ID, tmp_path, {"n1": "10.0.0.1"})
    (given,) = turn(calls)
    say(calls, answers={given["number"]: {"result": result, "error": None}})
    with pytest.raises(ProtocolError, match="what nodes mount"):
        opening.result()


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_nothing_is_shown_at_an_address_that_is_no_servers(tmp_path: Path, address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="nodes cannot mount"):
        FilesEngines(tmp_path, FilesSettings(address=address)).open(_ID, tmp_path, {})


class Engines:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.hold = threading.Event()
        self.hold.set()
        self.begun = threading.Event()

    def open(self, reservation: str, tree: Path, nodes: dict[str, str]) -> dict[str, NodeMount]:
        self.begun.set()
        assert self.hold.wait(60)
        self.calls.append(f"open {tree.name}")
        return {node: NodeMount(f"home:/{node}", 700) for node in nodes}

    def stop(self, reservation: str, clean: Sequence[str] = ()) -> None:
        self.calls.append(" ".join(["stop", *clean]))

    def make_tree(self, reservation: str, tree: Path, capacity_bytes: int) -> None:
        self.calls.append(f"make_tree {tree.name} {capacity_bytes}")

    def check_tree(self, reservation: str) -> None:
        self.calls.append("check_tree")

    def site_state(self, reservation: str) -> str:
        return "port 17"

    def begin(self) -> None:
        self.calls.append("begin")

    def reservations(self) -> list[str]:
        return []

    def ended(self) -> list[str]:
        return []

    def cgroup_problem(self) -> str:
        return ""

    def start_ended(self) -> None:
        """Nothing has."""

    def forget_all_but(self, reservations: set[str]) -> None:
        """Nothing is kept."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Agent, list[Engines]]:
    """An agent whose server is the home of one reservation and has a share of another; its engines, each run's."""
    engines: list[Engines] = []

    def make(*_: object) -> Engines:
        engines.append(Engines())
        return engines[-1]

    class Admin:
        def __init__(self, *_: object, **__: object) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def server(self) -> SimpleNamespace:
            return SimpleNamespace(uuid=_ROOT)

        def reservations(self, *, count_files: bool) -> list[SimpleNamespace]:
            assert not count_files
            return [
                SimpleNamespace(
                    id=_ID,
                    home=True,
                    files_path=files,
                    files_bytes=4096,
                    owner_uid=os.geteuid(),
                    owner_gid=os.getegid(),
                ),
                SimpleNamespace(id=_ID.replace("5b", "6c"), home=False, files_path="/ssd/share"),
            ]

    files = str(tmp_path / "files")
    (tmp_path / "files").mkdir()

    monkeypatch.setattr(agent_module, "FilesEngines", make)
    monkeypatch.setattr(agent_module, "Admin", Admin)
    (tmp_path / "drivers").mkdir()
    key = tmp_path / "pool.key"
    key.write_text("0123\n")
    return Agent(
        Instance(tmp_path), PoolMembership("ssd2", "ssd2:7460", str(key), "ssd1:7460"), FilesSettings()
    ), engines


def call(operation: str, number: int = 1, reservation: str = _ID) -> dict[str, Any]:
    return {"number": number, "operation": operation, "reservation": reservation, "nodes": {"n1": "10.0.0.1"}}


def carry_out(agent: Agent, wanted: dict[str, Any]) -> dict[str, Any]:
    work = agent._work_for("manager", 1)
    work.latest[wanted["reservation"]] = wanted["number"]
    work.under_way.add(wanted["number"])
    agent._carry_out(wanted, work)
    return work.answers.pop(wanted["number"])


def test_an_agent_shows_the_tree_that_its_own_server_says(made: tuple[Agent, list[Engines]]) -> None:
    agent, engines = made
    wanted = call("open") | {"tree": "/etc"}
    assert carry_out(agent, wanted) == {"result": {"n1": {"source": "home:/n1", "port": 700}}}
    assert engines[-1].calls == ["begin", "open files"]


def test_an_agent_makes_the_folders_of_a_jobs_scratch_in_that_tree(
    made: tuple[Agent, list[Engines]], tmp_path: Path
) -> None:
    agent, _ = made
    of_job = {"operation": "make_namespaces", "job": "17", "private": True}
    of_nodes = {"operation": "make_private_folders", "nodes": ["n1", "n2"]}
    for wanted in (of_job, of_nodes, of_job, of_nodes):
        assert carry_out(agent, call("") | wanted) == {"result": None}
    found = {str(path.relative_to(tmp_path / "files")): path for path in (tmp_path / "files").rglob("*")}
    modes = {name: oct(path.stat().st_mode & 0o777) for name, path in found.items()}
    assert modes == {"17": "0o770", "private": "0o711", "private/n1": "0o700", "private/n2": "0o700"}


@pytest.mark.parametrize("name", ["", ".", "..", "../17", "private/n1", "/etc", "17\n"])
def test_an_agent_makes_no_folder_elsewhere(made: tuple[Agent, list[Engines]], tmp_path: Path, name: str) -> None:
    agent, _ = made
    carry_out(agent, call("") | {"operation": "make_namespaces", "job": "17", "private": True})
    for wanted in (
        {"operation": "make_namespaces", "job": name, "private": False},
        {"operation": "make_private_folders", "nodes": [name]},
    ):
        answer = carry_out(agent, call("") | wanted)
        assert answer["error"]["code"] == InvalidArgumentError("").code.value
    assert sorted(path.name for path in (tmp_path / "files").rglob("*")) == ["17", "private"]


def test_an_agent_follows_no_link_in_place_of_a_folder(made: tuple[Agent, list[Engines]], tmp_path: Path) -> None:
    agent, _ = made
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "files" / "17").symlink_to(tmp_path / "elsewhere")
    answer = carry_out(agent, call("") | {"operation": "make_namespaces", "job": "17", "private": False})
    assert answer["error"]["code"] == StorageError("").code.value
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o700


def test_an_agent_has_a_sites_tree_made_as_its_own_server_says(made: tuple[Agent, list[Engines]]) -> None:
    agent, engines = made
    for operation in ("make_tree", "check_tree"):
        assert carry_out(agent, call(operation) | {"tree": "/etc", "capacity_bytes": 1}) == {"result": None}
    assert carry_out(agent, call("site_state")) == {"result": "port 17"}
    assert carry_out(agent, call("stop") | {"clean": ["n1"]}) == {"result": None}
    assert engines[-1].calls == ["begin", "make_tree files 4096", "check_tree", "stop n1"]
    for elsewhere in ("make_tree", "open"):
        answer = carry_out(agent, call(elsewhere, reservation=_ID.replace("5b", "6c")))
        assert answer["error"]["code"] == NotFoundError("").code.value


def test_calls_about_a_sites_engine_have_as_long_as_its_commands(calls: AgentCalls, tmp_path: Path) -> None:
    lists = dict.fromkeys(("mount", "unmount", "fence", "destroy"), ("/bin/true",))
    plain = FilesEngines(tmp_path, FilesSettings())
    site = FilesEngines(tmp_path, FilesSettings(commands=SiteCommands(lists, {"fence": 300.0})))
    assert (plain.call_seconds_max("fence", 4), plain.call_seconds_max("open", 4)) == (35.0, 140.0)
    assert site.call_seconds_max("fence", 4) == 4 * 300.0 + 5.0
    assert site.call_seconds_max("make_namespaces", 1) == plain.call_seconds_max("make_namespaces", 1) == 35.0


@pytest.mark.parametrize("reservation", [_ID.replace("5b", "6c"), _ID.replace("5b", "7d")])
def test_an_agent_shows_nothing_of_which_its_server_is_not_the_home(
    made: tuple[Agent, list[Engines]], reservation: str
) -> None:
    agent, engines = made
    answer = carry_out(agent, call("open", reservation=reservation))
    assert answer["error"]["code"] == NotFoundError("").code.value
    assert engines[-1].calls == ["begin"]


@pytest.mark.parametrize("wanted", [call("remove"), call("stop", reservation="../../etc")])
def test_an_agent_does_nothing_else(made: tuple[Agent, list[Engines]], wanted: dict[str, Any]) -> None:
    agent, engines = made
    assert carry_out(agent, wanted)["error"]["code"] == InvalidArgumentError("").code.value
    assert engines[-1].calls == ["begin"]


# crash-matrix: Files of a home on another server | the manager, killed and started again while a call of it is under way | its agent does nothing more of what the earlier run said
def test_an_older_manager_says_nothing_to_an_agent(made: tuple[Agent, list[Engines]]) -> None:
    agent, engines = made
    before = agent._work_for("manager", 4)
    assert agent._work_for("manager", 4) is before
    assert agent._work_for("manager", 5) is not before
    assert engines[-1].calls == ["begin"]  # operations of the engines before are refused from now on
    with pytest.raises(RefusedError, match="was here"):
        agent._work_for("manager", 4)
    assert agent._work_for("another", 1) is not before


def test_the_next_agent_goes_on_for_the_same_manager(made: tuple[Agent, list[Engines]]) -> None:
    agent, engines = made
    agent._work_for("manager", 4)
    membership = PoolMembership("ssd2", "ssd2:7460", "", "ssd1:7460")
    work = Agent(agent._instance, membership, FilesSettings())._work_for("manager", 4)
    assert (work.manager, work.incarnation) == ("manager", 4)
    assert engines[-1].calls == []  # it has begun with its start


def test_a_manager_that_counts_anew_is_told_what_to_do(made: tuple[Agent, list[Engines]]) -> None:
    agent, _ = made
    agent._work_for("manager", 4)
    with pytest.raises(RefusedError, match=r"start 4 of .* what start 1 says .*remove this file") as refused:
        agent._work_for("manager", 1)
    assert refused.value.where.endswith("drivers/agent.manager")


def test_a_manager_that_could_not_be_written_down_begins_anew(
    made: tuple[Agent, list[Engines]], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, engines = made
    before = agent._work_for("manager", 1)
    before.under_way.add(1)  # a number that the next start of the manager gives again
    with monkeypatch.context() as full:
        full.setattr(Engines, "begin", fail)
        with pytest.raises(OSError, match="disk is full"):
            agent._work_for("manager", 2)
    work = agent._work_for("manager", 2)
    assert (work.manager, work.incarnation, work.has(1)) == ("manager", 2, False)
    assert engines[-1].calls == ["begin"]


def fail(*_: object) -> None:
    raise OSError("the disk is full")


def fail_silently(*_: object) -> None:
    raise KeyError


def test_an_agent_goes_on_after_whatever_a_turn_raises(
    made: tuple[Agent, list[Engines]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent, _ = made
    agent._away = ""  # it has the manager
    for failure in (fail, fail_silently):
        monkeypatch.setattr(agent, "_take_turn", failure)
        with ThreadPoolExecutor(1) as workers:
            for _ in range(2):
                assert agent._try_turn(workers) > 0
    assert caplog.text.count("Traceback") == 2
    assert "the disk is full" in caplog.text


def test_what_waits_does_nothing_once_another_start_of_the_manager_was_here(made: tuple[Agent, list[Engines]]) -> None:
    agent, engines = made
    before = agent._work_for("manager", 1)
    before.latest[_ID] = 1
    agent._work_for("manager", 2)
    agent._carry_out(call("stop", 1), before)
    assert "another manager" in before.answers[1]["error"]["what"]
    assert "stop" not in [name for one in engines for name in one.calls]


def test_an_agent_that_fails_says_so_in_words_that_the_manager_knows(
    made: tuple[Agent, list[Engines]], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = made
    monkeypatch.setattr(Engines, "stop", fail)
    error = carry_out(agent, call("stop"))["error"]
    assert error["code"] == StorageError("").code.value
    assert "see its log" in error["what"]


def test_an_agent_of_root_works_in_no_root_that_others_can_change(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    os.chown(tmp_path, os.getuid(), -1)
    if os.getuid() == 0:
        check_owned(tmp_path)
        os.chown(tmp_path, 1000, -1)
    with pytest.raises(PermissionDeniedError, match="somebody else"):
        check_owned(tmp_path)
    if os.getuid() == 0:
        os.chown(tmp_path, 0, -1)
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionDeniedError, match="somebody else"):
        check_owned(tmp_path)


def test_only_who_has_the_key_is_an_agent(tmp_path: Path) -> None:
    keys = [tmp_path / "key", tmp_path / "another"]
    for key in keys:
        key.write_text(f"{key.name}\n")
    proofs = [agent_proof(str(key), "ssd2", _ROOT, "a") for key in keys]
    check_agent_proof(proofs[0], str(keys[0]), "ssd2", _ROOT, "a")
    for proof, server, agent in (
        (proofs[1], "ssd2", "a"),
        (proofs[0], "ssd3", "a"),
        (proofs[0], "ssd2", "b"),
        ("", "ssd2", "a"),
    ):
        with pytest.raises(PermissionDeniedError, match="pool's key"):
            check_agent_proof(proof, str(keys[0]), server, _ROOT, agent)


def test_a_call_that_comes_to_its_turn_after_a_later_one_does_nothing(
    made: tuple[Agent, list[Engines]], threads: ThreadPoolExecutor
) -> None:
    agent, engines = made
    work = agent._work_for("manager", 1)
    engines[-1].hold.clear()
    work.latest[_ID] = 1
    first = threads.submit(agent._carry_out, call("open", 1), work)
    assert engines[-1].begun.wait(60)
    work.latest[_ID] = 3  # 2 waits for its turn, as 3 does
    engines[-1].hold.set()
    first.result()
    agent._carry_out(call("stop", 3), work)
    agent._carry_out(call("open", 2), work)
    assert engines[-1].calls == ["begin", "open files", "stop"]
    assert "later call" in work.answers[2]["error"]["what"]


def test_an_agent_tells_what_it_has_done_at_its_next_turn(
    made: tuple[Agent, list[Engines]], threads: ThreadPoolExecutor
) -> None:
    agent, engines = made
    turns: list[dict[str, Any]] = []

    class Client:
        def agent_turn(self, said: dict[str, Any]) -> dict[str, Any]:
            turns.append(said)
            calls = [call("stop", 7)] if len(turns) == 1 else []
            return {"manager": "manager", "incarnation": 1, "calls": calls, "pause_seconds": 0.0}

        def close(self) -> None: ...

    agent._connect = cast(Callable[[], Any], Client)
    with ThreadPoolExecutor(1) as workers:
        agent._take_turn(workers)
    agent._take_turn(threads)
    assert (turns[0]["server"], turns[0]["root_uuid"], turns[0]["answers"]) == ("ssd2", _ROOT, [])
    assert turns[1]["answers"] == [{"number": 7, "result": None}]
    assert (turns[1]["manager"], turns[1]["incarnation"], turns[1]["under_way"]) == ("manager", 1, [])
    agent._take_turn(threads)
    assert turns[2]["answers"] == []
    assert engines[-1].calls == ["begin", "stop"]


def test_a_call_that_comes_again_while_it_is_under_way_is_carried_out_once(
    made: tuple[Agent, list[Engines]], threads: ThreadPoolExecutor
) -> None:
    agent, engines = made
    agent._work_for("manager", 1)
    engines[-1].hold.clear()

    class Client:
        def agent_turn(self, said: dict[str, Any]) -> dict[str, Any]:
            return {"manager": "manager", "incarnation": 1, "calls": [call("open", 7)], "pause_seconds": 0.0}

        def close(self) -> None: ...

    agent._connect = cast(Callable[[], Any], Client)
    with ThreadPoolExecutor(2) as workers:
        agent._take_turn(workers)
        assert engines[-1].begun.wait(60)
        agent._take_turn(workers)
        engines[-1].hold.set()
    assert engines[-1].calls == ["begin", "open files"]
    assert "error" not in agent._work.answers[7]


def test_there_is_one_agent_for_a_server(tmp_path: Path) -> None:
    with (
        agent_lock(tmp_path / "drivers"),
        pytest.raises(Exception, match="another agent"),
        agent_lock(tmp_path / "drivers"),
    ):
        pass
    with agent_lock(tmp_path / "drivers"):
        pass
