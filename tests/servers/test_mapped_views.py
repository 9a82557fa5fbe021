# SPDX-License-Identifier: Apache-2.0
"""Views that map what a member has, on its node: what happens to the home must not change their bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.servers.three_servers import SHARE, problems, wait_until_present
from tests.support.load import until
from tests.support.relay import Relay
from tests.support.server_pool import ServerPool

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: other nodes' servers are hidden by mounts"),
]

#: Elements of a block of 2 MB: more than what goes to the home.
LENGTH = 250_000

WRITER = f"""
import sys, numpy as np, forebay
with forebay.open("run1/flow", "w", retention="last:2") as stream:
    print("ready", flush=True)
    for line in sys.stdin:
        for number in eval(line):
            with stream.step() as step:
                step.write("T", np.full({LENGTH}, float(number)))
        print("done", flush=True)
"""

READER = """
import sys, numpy as np, forebay
def mapped():
    return sum("/segments/" in line for line in open("/proc/self/maps"))
stream = forebay.open("run1/flow")
views = {}
print("ready", flush=True)
for line in sys.stdin:
    what, number = line.split()
    if what == "view":
        views[int(number)] = stream[int(number)]["T"].view()
        print("mapped" if mapped() > 0 else "copied", flush=True)
    elif what == "read":
        print("right" if np.all(stream[int(number)]["T"].read() == float(number)) else "wrong", flush=True)
    elif what == "drop":
        del views[int(number)]
        print("dropped", flush=True)
    else:
        wrong = [number for number, view in views.items() if not np.all(view == float(number))]
        print("same" if not wrong else f"changed: {wrong}", flush=True)
"""


class Program:
    """A Python program on the node of one server: it cannot reach the sockets of the others."""

    def __init__(self, pool: ServerPool, server: int, source: str) -> None:
        others = [one.root for number, one in enumerate(pool.servers) if number != server]
        hide = "".join(f"mount -t tmpfs none '{root}' && " for root in others)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_ROOT")}
        self._process = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private"),
                *("sh", "-c", hide + 'exec "$@"', "sh"),
                *(sys.executable, "-c", source),
            ],
            env=kept | {"FOREBAY_ROOT": str(pool.servers[server].root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def tell(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> int:
        """At the end of what it is told; its status."""
        self._process.communicate()
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()


@pytest.fixture
def way() -> Iterator[list[Relay]]:
    """The way to the home from other nodes, once there is one."""
    relays: list[Relay] = []
    yield relays
    for relay in relays:
        relay.__exit__(None, None, None)


@pytest.fixture
def pool(tmp_path: Path, way: list[Relay]) -> Iterator[ServerPool]:
    options = ("--flush-interval-ms", "20", "--cut-grace-ms", "50", "--restart-grace-ms", "4000")
    with ServerPool(tmp_path / "pool", 3, options=options) as made:
        way.append(Relay(made.addresses[0]))
        made.addresses[0] = way[0].address
        made.create("run1", [(0, SHARE), (1, SHARE), (2, SHARE)])
        wait_until_present(made, 2)
        yield made


def used_bytes(pool: ServerPool) -> int:
    with pool.admin(0) as admin:
        (reservation,) = admin.reservations()
        return reservation.used_bytes


def kill_home(pool: ServerPool, way: list[Relay]) -> None:
    pool.servers[0].kill()
    pool.servers[0].start()
    pool.tell()


def lose_power_of_home(pool: ServerPool, way: list[Relay]) -> None:
    home = pool.servers[0]
    home.kill()
    (home.root / "boot-id").write_text("another boot\n")
    home.start()
    pool.tell()


def cut_home(pool: ServerPool, way: list[Relay]) -> None:
    way[0].cut()
    way[0].heal()


Event = Callable[[ServerPool, list[Relay]], None]


def test_what_a_member_has_is_mapped_on_its_node_and_copied_elsewhere(pool: ServerPool) -> None:
    with Program(pool, 1, WRITER) as writer:
        assert writer.tell("range(2)") == "done"
        for server, what in ((1, "mapped"), (2, "copied"), (0, "copied")):
            with Program(pool, server, READER) as reader:
                assert [reader.tell(f"view {number}") for number in (0, 1)] == [what, what]
                assert reader.tell("look -") == "same"
                assert reader.end() == 0
        assert writer.end() == 0
    assert problems(pool) == []


# crash-matrix: bytes on another member of the reservation, mapped there | the home is killed, loses power, or the connection is cut | not one byte of a view changes, and what the reader held is free once it is gone
@pytest.mark.parametrize("event", [kill_home, lose_power_of_home, cut_home])
def test_mapped_bytes_stay_whatever_becomes_of_the_home(pool: ServerPool, way: list[Relay], event: Event) -> None:
    with Program(pool, 1, WRITER) as writer, Program(pool, 1, READER) as reader:
        assert writer.tell("range(2)") == "done"
        assert [reader.tell(f"view {number}") for number in (0, 1)] == ["mapped", "mapped"]
        writer.kill()
        # The reader does nothing, so that it does not come back to its home.
        event(pool, way)
        # More than there is, so that all space is used again that may be.
        with Program(pool, 1, WRITER) as again:
            assert again.tell("range(2, 80)") == "done"
            assert reader.tell("look -") == "same"
            with Program(pool, 1, READER) as other:
                # After a boot nobody knows what is mapped there, so nothing new lies there.
                is_closed = event is lose_power_of_home
                assert other.tell("view 77") == ("copied" if is_closed else "mapped")
                assert other.end() == 0
            before = used_bytes(pool)
            reader.kill()
            assert again.tell("range(80, 82)") == "done"
            if event is not lose_power_of_home:  # then nobody knew what it held, and nothing of the member was given
                until(lambda: used_bytes(pool) <= before - 2 * 8 * LENGTH, "the space of what it held is free")
            assert again.tell("range(82, 160)") == "done"
            assert again.end() == 0
    assert problems(pool) == []


def test_what_is_here_is_copied_where_its_member_cannot_note_who_maps(pool: ServerPool) -> None:
    with Program(pool, 1, WRITER) as writer, Program(pool, 1, READER) as reader:
        assert writer.tell("range(2)") == "done"
        assert reader.tell("read 0") == "right"  # it has the segment from now on
        pool.servers[1].kill()
        assert reader.tell("view 0") == "copied"
        assert reader.tell("look -") == "same"
        pool.servers[1].start()
        pool.tell()
        wait_until_present(pool, 3)
        assert reader.tell("view 1") == "mapped"
        assert reader.end() == 0
        writer.kill()


def test_a_reader_that_comes_back_holds_what_it_had_and_maps_more(pool: ServerPool, way: list[Relay]) -> None:
    with Program(pool, 1, WRITER) as writer, Program(pool, 1, READER) as reader:
        assert writer.tell("range(2)") == "done"
        assert reader.tell("view 0") == "mapped"
        writer.kill()
        for event in (kill_home, cut_home, kill_home):
            event(pool, way)
            assert reader.tell("view 1") == "mapped"
            assert reader.tell("look -") == "same"
            assert reader.tell("drop 1") == "dropped"
        event(pool, way)
        with Program(pool, 1, WRITER) as again:
            assert again.tell("range(2, 60)") == "done"
            assert reader.tell("look -") == "same"
            assert again.end() == 0
        assert reader.end() == 0
    assert problems(pool) == []


def test_what_a_home_without_power_could_not_keep_is_not_written_over(pool: ServerPool, way: list[Relay]) -> None:
    with Program(pool, 1, WRITER) as writer, Program(pool, 1, READER) as reader:
        assert writer.tell("range(3)") == "done"
        assert reader.tell("view 1") == "mapped"
        writer.kill()
        lose_power_of_home(pool, way)
        # It comes back, and its home knows nothing of step 1, which it drops.
        assert reader.tell("view 2") == "mapped"
        with Program(pool, 1, WRITER) as again:
            assert again.tell("range(3, 60)") == "done"
            assert reader.tell("look -") == "same"
            kill_home(pool, way)
            assert again.tell("range(60, 120)") == "done"
            assert reader.tell("look -") == "same"
            assert again.end() == 0
        assert reader.end() == 0
    assert problems(pool) == []
