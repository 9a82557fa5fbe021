# SPDX-License-Identifier: Apache-2.0
"""One run on a pool of servers: a reservation over all of them, streams with everybody who works on them, and the
actions of a plan. In the end everything is healed, must go on, come to its end and leave nothing.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from tests.server_faults.cast import PoolCast, StreamOfPool
from tests.server_faults.checker import check_history
from tests.server_faults.plan import SERVERS, Action
from tests.server_faults.pool_nodes import COMPUTES, PoolNodes
from tests.soak.history import HistoryLog, read_history
from tests.soak.stages import StageOuts
from tests.soak.timeline import Breach
from tests.support.frail_disk import DiskMode
from tests.support.load import until
from tests.support.time_limits import seconds

__all__ = ["PoolRun"]

_RESERVATION = "run1"
#: A home looks at its members each second: so long after a member is back, a commit may count what it has lost.
_NOTICED_NS = 3_000_000_000
#: What is written is synced half a second later (`--flush-interval-ms`).
_SYNCED_SECONDS = 5
#: Of a server that does not answer this is known only then (docs/operations/servers.md).
_SETTLED_SECONDS_MAX = seconds(60)


class PoolRun:
    """``folder`` keeps the history and what is staged out. A context manager."""

    def __init__(self, nodes: PoolNodes, folder: Path, seed: int) -> None:
        self._nodes = nodes
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        self.log = HistoryLog(folder / "history.jsonl")
        self.actions: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._copy: tuple[int, Path, int] | None = None

    def __enter__(self) -> Self:
        nodes = self._nodes
        nodes.ask_on(COMPUTES, "create", _RESERVATION, "--servers", str(len(SERVERS)), "--capacity", "192MiB")
        shown = nodes.ask_on(1, "show", _RESERVATION, "--members")["members"]
        assert isinstance(shown, list)
        self._home, *self._members = (int(member["server"].removeprefix("node")) for member in shown)
        nodes.await_pool(_RESERVATION, self._home)
        self._free = self._used_bytes()
        self._casts = [
            PoolCast(
                nodes,
                self.log,
                StreamOfPool.drawn(f"{_RESERVATION}/s{number}", self._chance, durable=number == 0),
                self._home,
            )
            for number in range(2)
        ]
        self._stages = StageOuts(nodes, self._folder / "out", self._chance)
        return self

    def __exit__(self, *_: object) -> None:
        for cast in self._casts:
            cast.kill_all()
        for node in SERVERS:
            self._nodes.disk(node).set_mode(DiskMode.SOUND)
            self._nodes.send_server(node, signal.SIGCONT)
            self._nodes.bring_back(node)
        self._nodes.run_on(1, "destroy", _RESERVATION, "--force")
        shutil.rmtree(self._folder / "copy", ignore_errors=True)
        self.log.close()

    def run(self, plan: list[Action]) -> list[Breach]:
        """Does all of it, and judges what everybody was told."""
        for cast in self._casts:
            cast.mend()
            cast.go_on(seconds(20))
        for number, action in enumerate(plan):
            self.log.tell("director", "action", number=number, what=str(action))
            self._act(action)
            self.actions[action.kind] += 1
            for cast in self._casts:
                cast.look()
                cast.mend()
            self._casts[action.stream].go_on(action.progress)
        self._come_to_rest()
        self.log.close()
        return check_history(read_history(self.log.path))

    def summary(self) -> str:
        """What was done."""
        lines = list(read_history(self.log.path))
        told = Counter(line["event"] for line in lines)
        done = ", ".join(f"{count} {name}" for name, count in sorted(self.actions.items()))
        return (
            f"{done}; {told['committed']} commits told, {told['step']} steps given, {told['unavailable']} unavailable"
        )

    # Actions

    def _act(self, action: Action) -> None:
        cast = self._casts[action.stream]
        member = self._members[action.member]
        deeds: dict[str, Callable[[], object]] = {
            "kill rank": lambda: cast.kill_rank(action.rank),
            "stop rank": lambda: cast.stand_still(cast.writers, action.rank, action.seconds),
            "withdraw": lambda: cast.withdraw(action.rank),
            "kill reader": lambda: cast.kill_reader(action.rank),
            "stop reader": lambda: cast.stand_still(cast.readers, action.rank, action.seconds),
            "stage out": lambda: self._stages.submit(cast),  # type: ignore[arg-type]
            "kill stager": self._stages.kill,
            "kill server": lambda: self._end_server(action.node, signal.SIGKILL),
            "restart server": lambda: self._end_server(action.node, signal.SIGTERM),
            "stop server": lambda: self._stop_server(action),
            "cut node": lambda: self._cut(action.node, action.seconds),
            "cut client": lambda: self._cut(COMPUTES, action.seconds),
            "kill node": lambda: self._kill_node(action.node),
            "two servers": lambda: self._end_two(action),
            "kill manager": self._kill_manager,
            "lose power": lambda: self._lose_power(member, action),
            "full disk": lambda: self._break_disk(member, DiskMode.FULL, action.seconds),
            "read-only disk": lambda: self._break_disk(member, DiskMode.READ_ONLY, action.seconds),
            "failing disk": lambda: self._break_disk(member, DiskMode.FAILING, action.seconds),
            "copy root": lambda: self._copy_root(member),
            "old root": self._put_back,
        }
        deeds[action.kind]()

    @contextlib.contextmanager
    def _away(self, *nodes: int) -> Iterator[int]:
        """These are not there, or do not answer, meanwhile: since when. They are there at the end."""
        since = time.monotonic_ns()
        yield since
        for node in nodes:
            if node in SERVERS:
                self._nodes.bring_back(node)
        self._nodes.await_pool(_RESERVATION, self._home)
        self.log.tell("director", "away", since_ns=since, nodes=nodes)

    def _end_server(self, node: int, sent: signal.Signals) -> None:
        with self._away(node):
            self._nodes.send_server(node, sent)

    def _stop_server(self, action: Action) -> None:
        with self._away(action.node), self._nodes.standing_still(action.node):
            time.sleep(action.seconds)

    def _cut(self, node: int, duration: float) -> None:
        with self._away(node):
            self._nodes.cluster.cut(node)
            time.sleep(duration)
            self._nodes.cluster.heal(node)

    def _kill_node(self, node: int) -> None:
        with self._away(node):
            self._nodes.kill_node(node)

    def _end_two(self, action: Action) -> None:
        """They come back one after the other."""
        with self._away(action.node, action.other):
            self._nodes.send_server(action.node, signal.SIGKILL)
            self._nodes.send_server(action.other, signal.SIGKILL)
            time.sleep(action.seconds)

    def _kill_manager(self) -> None:
        self._nodes.kill_manager()
        self._nodes.bring_back(1)

    def _lose_power(self, node: int, action: Action) -> None:
        with self._away(node) as since:
            self._nodes.kill_node(node)
            pages = self._nodes.disk(node).lose_power(random.Random(action.seed))
            self.log.tell("director", "power", node=node, pages=pages)
        self._tell_loss(since, since)

    def _tell_loss(self, kept_ns: int, since_ns: int, *, copy: bool = False) -> None:
        until_ns = time.monotonic_ns() + _NOTICED_NS
        self.log.tell("director", "lost power", kept_ns=kept_ns, since_ns=since_ns, until_ns=until_ns, copy=copy)

    def _break_disk(self, node: int, mode: DiskMode, duration: float) -> None:
        since = time.monotonic_ns()
        disk = self._nodes.disk(node)
        disk.set_mode(mode)
        time.sleep(duration)
        disk.set_mode(DiskMode.SOUND)
        self.log.tell("director", "disk", node=node, mode=mode.name, since_ns=since)

    def _copy_root(self, node: int) -> None:
        copy = self._folder / "copy"
        kept = time.monotonic_ns()
        self._nodes.copy_root(node, copy)
        self._copy = (node, copy, kept)

    def _put_back(self) -> None:
        assert self._copy is not None
        node, copy, kept = self._copy
        self._copy = None
        # Where nothing is synced meanwhile, nothing is written.
        with contextlib.suppress(AssertionError):
            until(lambda: self._nodes.is_older(node, copy), "the server has synced since", _SYNCED_SECONDS)
        with self._away(node) as since:
            self._nodes.put_back(node, copy)
        self._tell_loss(kept, since, copy=True)

    # The end

    def _come_to_rest(self) -> None:
        """All servers are there. Everybody goes on, then comes to an end; nothing is left."""
        self._nodes.await_pool(_RESERVATION, self._home)
        for cast in self._casts:
            if not cast.has_failed():
                cast.must_go_on()
        for cast in self._casts:
            cast.close()
        self._stages.finish()
        for cast in self._casts:
            cast.look()
            cast.read_all()
            cast.await_no_pins()
        for node in SERVERS:
            with self._nodes.admin(node) as admin:
                problems = [each for each in admin.audit(read_data=True) if each.severity == "problem"]
            for problem in problems:
                self._breach("audit", f"node {node}, {problem.where}", problem.what)
        doctor = self._nodes.run_on(1, "doctor")
        if doctor.returncode != 0:
            self._breach("audit", "doctor", doctor.stdout + doctor.stderr)
        with self._nodes.admin(self._home) as admin:
            for cast in self._casts:
                admin.remove_stream(cast.address, force=True)
        self._await("space", lambda: self._used_bytes() <= self._free, "space is accounted for that nobody holds")
        self._nodes.ask_on(COMPUTES, "destroy", _RESERVATION)
        self._await("left", lambda: not self._nodes.leftovers(), "something is left")

    def _used_bytes(self) -> int:
        with self._nodes.admin(self._home) as admin:
            return admin.reservation(_RESERVATION).used_bytes

    def _await(self, rule: str, condition: Callable[[], bool], what: str) -> None:
        try:
            until(condition, what, _SETTLED_SECONDS_MAX)
        except AssertionError:
            self._breach(rule, _RESERVATION, f"{what}: {self._nodes.leftovers()}")

    def _breach(self, rule: str, where: str, what: str) -> None:
        self.log.tell(where, "breach", rule=rule, what=what)
