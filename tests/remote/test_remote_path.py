# SPDX-License-Identifier: Apache-2.0
"""Producer, server and consumer on nodes of their own: what arrives, and what happens when one of them is lost."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from forebay.errors import PermissionDeniedError
from tests.remote.nodes import PORT, Nodes
from tests.remote.programs import Programs, both_transports
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nodes-path")]

TokenMaker = Callable[..., Path]

# docs/formats/remote.md
CLAIMS_BYTES = 80
EXPIRES_AT = 24


def decoded(text: str) -> bytes:
    """What follows the prefix of a token or of a key."""
    _, _, encoded = text.strip().partition("-1.")
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


def expire(file: Path, key: Path) -> None:
    """Makes a token one that the server made, and that ended a second ago."""
    claims = bytearray(decoded(file.read_text())[:CLAIMS_BYTES])
    (before,) = struct.unpack_from("<q", claims, EXPIRES_AT)
    assert 0 < before - time.time_ns() <= 3600 * 10**9
    struct.pack_into("<q", claims, EXPIRES_AT, time.time_ns() - 10**9)
    secret = hashlib.blake2b(claims, digest_size=32, key=decoded(key.read_text())[8:]).digest()
    file.write_text("forebay-token-1." + base64.urlsafe_b64encode(claims + secret).decode().rstrip("=") + "\n")


@both_transports
def test_adios2_writes_and_reads_across_nodes(programs: Programs, token: TokenMaker, server: StagingServer) -> None:
    with programs.adios2_reader(token("read")) as reader, programs.writer(4, token("write")) as writer:
        for number in range(4):
            assert reader.line() == str(number)
            reader.tell()
        assert reader.line() == "end"
        reader.succeed()
        assert writer.succeed().split() == ["0", "1", "2", "3"]
    with forebay.open("run1/flow", instance=server.root) as stream:
        for summary in stream.steps():
            stream[summary.number]["T"].verify()
    with forebay.Admin(server.root) as admin:
        assert not [finding for finding in admin.audit(read_data=True) if finding.severity == "problem"]


def test_appending_looks_at_the_server_that_it_writes_to(
    programs: Programs, token: TokenMaker, server: StagingServer
) -> None:
    # As SST's programs limit their queue: each step asks first how far the readers are.
    with programs.writer(4, token("write"), QueueLimit="2") as writer:
        writer.succeed()
    with programs.writer(2, token("write"), mode="a", AppendAfterSteps="-2") as writer:
        writer.succeed()
    with forebay.open("run1/flow", instance=server.root) as stream:
        assert [step.number for step in stream.steps()] == [0, 1, 2, 3, 4]


@both_transports
def test_killed_reader_goes_on_at_its_cursor(programs: Programs, token: TokenMaker) -> None:
    with programs.writer(5, token("write"), Retention="consumers:render") as writer:
        with programs.python_reader(token("read")) as reader:
            for number in range(2):
                assert reader.line() == str(number)
                reader.tell()
            assert reader.line() == "2"  # not acknowledged
            reader.kill()
        with programs.python_reader(token("read")) as again:
            for number in range(2, 5):
                assert again.line() == str(number)
                again.tell()
            assert again.line() == "end"
            again.succeed()
        writer.succeed()


@both_transports
def test_reader_goes_on_after_a_restart_of_the_server(
    programs: Programs, token: TokenMaker, server: StagingServer
) -> None:
    with programs.writer(3, token("write")) as writer:
        writer.succeed()
    with programs.python_reader(token("read")) as reader:
        assert reader.line() == "0"
        server.kill()
        server.start()
        for number in range(1, 3):
            reader.tell()
            assert reader.line() == str(number)
        reader.tell()
        assert reader.line() == "end"
        reader.succeed()


@both_transports
def test_server_that_is_cut_off_is_noticed_and_found_again(programs: Programs, token: TokenMaker, nodes: Nodes) -> None:
    with programs.writer(3, token("write")) as writer:
        writer.succeed()
    with programs.python_reader(token("read")) as reader:
        assert reader.line() == "0"
        nodes.cut_off("consumer")
        reader.tell()
        nodes.bring_back("consumer")
        for number in range(1, 3):
            assert reader.line() == str(number)
            reader.tell()
        assert reader.line() == "end"
        reader.succeed()


@both_transports
def test_stopped_server_is_noticed(programs: Programs, token: TokenMaker, server: StagingServer) -> None:
    with programs.writer(1, token("write")) as writer:
        writer.succeed()
    with programs.impatient_reader(token("read")) as reader:
        assert reader.line() == "open"
        server.send(signal.SIGSTOP)
        try:
            reader.tell()
            assert reader.line() == "DisconnectedError"
        finally:
            server.send(signal.SIGCONT)
        reader.succeed()


def test_no_port_is_open_unless_it_was_configured(nodes: Nodes, tmp_path: Path) -> None:
    with StagingServer(tmp_path / "quiet", prefix=nodes.prefix_of("server")) as quiet:
        sockets = Path(f"/proc/{quiet.pid}/net/tcp").read_text().splitlines()[1:]
        assert sockets == []


def test_client_without_a_token_is_refused(programs: Programs, server: StagingServer) -> None:
    with programs.python_reader(None) as reader:
        status, _, errors = reader.finish()
        assert status != 0
        assert "FOREBAY_TOKEN_FILE" in errors
    with programs.writer(1, None) as writer:
        status, _, errors = writer.finish()
        assert status != 0
        assert "token" in errors


@pytest.mark.parametrize(
    ("rights", "reservation", "lifetime", "said"),
    [
        (("write",), "run1", 3600, "no right"),
        (("read",), "other", 3600, "no reservation of this name"),
    ],
)
def test_token_of_others_is_refused(
    programs: Programs, token: TokenMaker, rights: tuple[str, ...], reservation: str, lifetime: float, said: str
) -> None:
    with programs.python_reader(token(*rights, reservation=reservation, lifetime=lifetime)) as reader:
        status, _, errors = reader.finish()
        assert status != 0
        assert PermissionDeniedError.__name__ in errors
        assert said in errors


def test_expired_token_is_refused(programs: Programs, token: TokenMaker, server: StagingServer) -> None:
    file = token("read")
    expire(file, server.root / "token-key")
    with programs.python_reader(file) as reader:
        status, _, errors = reader.finish()
        assert status != 0
        assert "expired" in errors


def test_forged_token_is_refused(programs: Programs, token: TokenMaker) -> None:
    file = token("read")
    text = file.read_text().strip()
    place = len("forebay-token-1.") + 12  # in the uid
    changed = "A" if text[place] != "A" else "B"
    file.write_text(text[:place] + changed + text[place + 1 :])
    with programs.python_reader(file) as reader:
        status, _, errors = reader.finish()
        assert status != 0
        assert "do not belong together" in errors or "not made by this server" in errors


def test_token_that_others_may_read_is_refused(programs: Programs, token: TokenMaker) -> None:
    file = token("read")
    file.chmod(0o644)
    with programs.python_reader(file) as reader:
        status, _, errors = reader.finish()
        assert status != 0
        assert "chmod 600" in errors


def test_server_that_was_told_not_to_encrypt(nodes: Nodes, programs: Programs, tmp_path: Path) -> None:
    options = ("--listen", f"0.0.0.0:{PORT}", "--control-encryption", "off")
    open_server = StagingServer(tmp_path / "open", options=options, prefix=nodes.prefix_of("server"))
    with open_server:
        with forebay.Admin(open_server.root) as admin:
            admin.create("run1", "64MiB")
            made = admin.create_token("run1", rights=("read", "write"))
            assert [finding.severity for finding in admin.audit() if "control_encryption" in finding.what] == ["note"]
        token = tmp_path / "open.token"
        token.touch(0o600)
        token.write_text(made)
        # Steps inside messages, and larger ones by the data path.
        with programs.small("write", 3, token) as writer:
            writer.succeed()
        with programs.small("read", 3, token) as reader:
            reader.succeed()
        with programs.writer(2, token) as writer:
            writer.succeed()
        with programs.python_reader(token, consumer="late") as reader:
            for number in range(2):
                assert reader.line() == str(number)
                reader.tell()
            assert reader.line() == "end"
            reader.succeed()


def test_revoked_token_is_refused(programs: Programs, token: TokenMaker, server: StagingServer) -> None:
    file = token("read")
    others = token("read", "write")
    command = [sys.executable, "-m", "forebay", "token", "revoke", str(file)]
    subprocess.run(command, env=os.environ | server.environment, timeout=seconds(60), check=True)
    with programs.python_reader(file) as reader:
        status, _, errors = reader.finish()
        assert status != 0
        assert "revoked" in errors
    with programs.writer(1, others) as writer:
        writer.succeed()
