# SPDX-License-Identifier: Apache-2.0
"""What is special where bytes of steps travel by libfabric: that they do, which library, and who may hold up whom."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from forebay.errors import InvalidArgumentError
from tests.remote.nodes import PORT, Nodes
from tests.remote.programs import Programs
from tests.remote.test_remote_faults import check_clean, committed
from tests.support.staging_server import StagingServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nodes-fabric")]

TokenMaker = Callable[..., Path]
STEPS = 3
ESTABLISHED = "01"
#: The libfabric in the Python package mpich, which is newer than the one of Debian 12.
WHEEL = Path(sys.prefix, "lib", "mpich", "libfabric.so.1")

fabric = pytest.mark.parametrize("transport", ["fabric"], indirect=True)


def other_ports(pid: int) -> set[int]:
    """The ports, beside the server's, that sockets of this process's node are connected to."""
    ports = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, *_ = line.split()
        if state == ESTABLISHED:
            ports.add(int(remote.rsplit(":", 1)[1], 16))
    return ports - {PORT}


@pytest.fixture
def two_libraries() -> Path:
    """The second libfabric beside the system's."""
    assert WHEEL.is_file(), f"{WHEEL} is missing: `scripts/build --suite remote` installs it"
    return WHEEL


@pytest.mark.parametrize(("transport", "by_fabric"), [("tcp", False), ("fabric", True)], indirect=["transport"])
def test_bytes_travel_as_the_transport_says(programs: Programs, token: TokenMaker, by_fabric: bool) -> None:
    with programs.writer(1, token("write")) as writer:
        writer.succeed()
    with programs.python_reader(token("read")) as reader:
        assert reader.line() == "0"
        assert bool(other_ports(reader.pid)) == by_fabric
        reader.tell()
        reader.succeed()


@fabric
@pytest.mark.parametrize("newer", ["server", "clients", "both"])
def test_libraries_of_different_versions_understand_one_another(
    programs: Programs, token: TokenMaker, server: StagingServer, two_libraries: Path, newer: str
) -> None:
    named = {"FOREBAY_LIBFABRIC": str(two_libraries)}
    if newer != "clients":
        server.stop()
        server.start(environment=named)
    if newer != "server":
        programs = programs.with_environment(**named)
    with programs.writer(STEPS, token("write")) as writer:
        writer.succeed()
    assert committed(server) == STEPS
    with programs.python_reader(token("read")) as reader:
        for _ in range(STEPS):
            reader.tell()
        assert reader.succeed().split() == [*map(str, range(STEPS)), "end"]


@fabric
def test_fabric_that_the_server_does_not_offer_is_refused(programs: Programs, nodes: Nodes, tmp_path: Path) -> None:
    quiet = StagingServer(
        tmp_path / "quiet", options=("--listen", f"0.0.0.0:{PORT}"), prefix=nodes.prefix_of("server"), capacity="1GiB"
    )
    with quiet:
        with forebay.Admin(quiet.root) as admin:
            admin.create("run1", "256MiB")
            text = admin.create_token("run1", rights=("write",), lifetime=600)
        file = tmp_path / "quiet.token"
        file.touch(0o600)
        file.write_text(text + "\n")
        with programs.writer(1, file) as writer:
            status, _, errors = writer.finish()
            assert status != 0
            assert "--fabric tcp" in errors
            assert "FOREBAY_TRANSPORT=tcp" in errors


@fabric
@pytest.mark.parametrize("whose", ["client", "server"])
def test_libfabric_that_cannot_be_loaded_is_refused(
    programs: Programs, token: TokenMaker, server: StagingServer, whose: str
) -> None:
    named = {"FOREBAY_LIBFABRIC": "/nonexistent/libfabric.so"}
    if whose == "server":
        server.stop()
        server.start(environment=named)
    else:
        programs = programs.with_environment(**named)
    with programs.writer(1, token("write")) as writer:
        status, _, errors = writer.finish()
        assert status != 0
        assert "FOREBAY_LIBFABRIC names no library" in errors
        assert ("on the server's node" in errors) == (whose == "server")


def test_transport_without_a_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FOREBAY_SERVER", "FOREBAY_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    for transport in ("tcp", "fabric"):
        monkeypatch.setenv("FOREBAY_TRANSPORT", transport)
        with pytest.raises(InvalidArgumentError, match="set FOREBAY_SERVER"):
            forebay.open("run1/flow")
    monkeypatch.setenv("FOREBAY_TRANSPORT", "carrier-pigeon")
    with pytest.raises(InvalidArgumentError, match="auto, local, tcp or fabric"):
        forebay.open("run1/flow")


@fabric
def test_stopped_reader_takes_nothing_from_another(programs: Programs, token: TokenMaker) -> None:
    with programs.writer(STEPS, token("write")) as writer:
        writer.succeed()
    # It stops itself with memory offered that the server is about to write.
    with programs.python_reader(token("read"), "stopped", "client.fabric.after_offer:7=stop") as stopped:
        for _ in range(STEPS):
            stopped.tell()
        with programs.python_reader(token("read"), "other") as other:
            for _ in range(STEPS):
                other.tell()
            assert other.succeed().split() == [*map(str, range(STEPS)), "end"]
        stopped.send(signal.SIGCONT)
        assert stopped.succeed().split() == [*map(str, range(STEPS)), "end"]


# crash-matrix: write a step from another node | the writer, at `client.fabric.after_offer` | the committed steps, whole; run again, it replaces them
@fabric
@pytest.mark.parametrize("passing", [1, 22])
def test_writer_that_offered_memory_is_killed(
    programs: Programs, token: TokenMaker, server: StagingServer, passing: int
) -> None:
    with programs.writer(STEPS, token("write"), fail_point=f"client.fabric.after_offer:{passing}=kill") as writer:
        status, output, _ = writer.finish()
        assert status == -signal.SIGKILL
    assert committed(server) >= len(output.split())
    with programs.writer(STEPS, token("write")) as again:
        again.succeed()
    assert committed(server) == STEPS
    check_clean(server)


# crash-matrix: read a step from another node | the reader, at `client.fabric.after_offer` | its cursor: the next of its name goes on there
@fabric
@pytest.mark.parametrize("passing", [2, 30])
def test_reader_that_offered_memory_is_killed(
    programs: Programs, token: TokenMaker, server: StagingServer, passing: int
) -> None:
    with programs.writer(STEPS, token("write")) as writer:
        writer.succeed()
    with programs.python_reader(token("read"), fail_point=f"client.fabric.after_offer:{passing}=kill") as reader:
        for _ in range(STEPS):
            reader.tell()
        status, output, _ = reader.finish()
        assert status == -signal.SIGKILL
    with programs.python_reader(token("read")) as again:
        for _ in range(STEPS):
            again.tell()
        seen = again.succeed().split()
    assert seen[-1] == "end"
    first = int(seen[0])
    assert max(0, len(output.split()) - 1) <= first <= len(output.split())
    assert seen[:-1] == [str(number) for number in range(first, STEPS)]
    check_clean(server)
