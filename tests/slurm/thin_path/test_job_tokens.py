# SPDX-License-Identifier: Apache-2.0
"""Jobs that read and write streams over TCP, with the token that they are given."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay.errors import PermissionDeniedError
from tests.slurm.centre import Centre, needs_slurm, programs, slurm_centre
from tests.slurm.cluster import wait_for

pytestmark = needs_slurm

# As on a node that sees files alone: neither the server's socket nor its root as an instance.
_REMOTE = """\
#!/bin/bash
{directive}
set -e
export FOREBAY_TRANSPORT=tcp FOREBAY_ROOT=/nonexistent FOREBAY_SOCKET=/nonexistent/socket
"""

_WRITE = """\
cat > {home}/write-$SLURM_JOB_ID.py <<'END'
import numpy as np, forebay
with forebay.open("flow-{stream}", "w") as stream:
    for number in range(3):
        with stream.step() as step:
            step["T"] = np.full((512, 512), number, dtype=np.float64)
END
{python} {home}/write-$SLURM_JOB_ID.py
"""

_READ = """\
cat > {home}/read-$SLURM_JOB_ID.py <<'END'
import forebay
with forebay.open("flow-{stream}", verify="read") as stream:
    print([float(stream[number]["T"][...].mean()) for number in range(3)])
END
{python} {home}/read-$SLURM_JOB_ID.py
install -m 600 "$FOREBAY_TOKEN_FILE" {home}/kept.token
stat -c '%a %U' "$FOREBAY_TOKEN_FILE"
"""


_MESH = "capacity=64MiB access=striped type=scratch"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def remote_centre(folder: Path, home: Path, python: Path) -> Iterator[Centre]:
    """A centre whose server listens for clients of other nodes, and whose tokens are short-lived.

    They are renewed at every sweep, so that a job sees several.
    """
    below = folder / "remote"
    below.mkdir(mode=0o755)
    begin = below / "begin"
    begin.write_text(
        f"#!/bin/sh\nexport FOREBAY_CONFIG={below}/forebay.toml\n"
        f"exec {programs()}/forebay-job begin >> {below}/begin.log 2>&1\n"
    )
    begin.chmod(0o755)
    server = f"127.0.0.1:{_free_port()}"
    with slurm_centre(
        below,
        python,
        settings=f'server = "{server}"\ntoken_days = 0.001\nsweep_seconds = 1.0',
        up_options=("--listen", server),
        node_folder=below / "node",
        more=f"Prolog={below}/begin\nPrologFlags=Alloc",
    ) as running:
        yield running


def _token_files(centre: Centre) -> list[Path]:
    folder = centre.instance.root / "slurm" / "tokens"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _refused(centre: Centre, token: Path, address: str) -> bool:
    """True if the server takes this token no more."""
    server = f"forebay://{_server(centre)}"
    before = {name: os.environ.get(name) for name in ("FOREBAY_TOKEN_FILE", "FOREBAY_TRANSPORT")}
    os.environ.update({"FOREBAY_TOKEN_FILE": str(token), "FOREBAY_TRANSPORT": "tcp"})
    try:
        forebay.open(address, instance=server).close()
    except PermissionDeniedError:
        return True
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    return False


def _server(centre: Centre) -> str:
    text = (centre.instance.root.parent / "forebay.toml").read_text()
    return text.partition('server = "')[2].partition('"')[0]


def test_a_job_writes_and_reads_over_tcp_with_its_token(remote_centre: Centre, home: Path, python: Path) -> None:
    centre = remote_centre
    directive = "#DW jobdw capacity=64MiB access_mode=striped type=scratch"
    names = {"home": home, "python": python, "directive": directive, "stream": "own"}
    script = (_REMOTE + _WRITE + _READ).format(**names)
    job = centre.cluster.submit(script)
    centre.wait_until_gone(job)
    assert centre.cluster.output(job).split("\n")[:2] == ["[0.0, 1.0, 2.0]", "640 root"]
    # Its secret is nowhere but in the file, which is gone with the job.
    secret = (home / "kept.token").read_text().strip()
    assert secret.startswith("forebay-token-1.")
    assert _token_files(centre) == []
    for place in (centre.cluster.folder / "state", centre.instance.root / "slurm"):
        for file in place.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes(), file
    assert secret not in centre.cluster.ask("scontrol", "show", "job", str(job))


def test_a_running_jobs_token_is_renewed(remote_centre: Centre, home: Path, python: Path) -> None:
    centre = remote_centre
    waiting = home / "waiting"
    waiting.unlink(missing_ok=True)
    directive = "#DW jobdw capacity=64MiB access_mode=striped type=scratch"
    names = {"home": home, "python": python, "directive": directive, "stream": "long"}
    script = (_REMOTE + f"until [ -e {waiting} ]; do sleep 0.1; done\n" + _WRITE + _READ).format(**names)
    job = centre.cluster.submit(script)
    wait_for(lambda: centre.states().get(str(job)) == "running", f"job {job} to run", 120)
    file = centre.instance.root / "slurm" / "tokens" / str(job)
    status = file.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o640, 0)  # a list lets the person read it
    first = file.read_text()
    # Its time is 86 s; it is renewed when half of that is over.
    wait_for(lambda: file.read_text() != first, "a newer token", 120)
    waiting.touch()
    centre.wait_until_gone(job)
    assert centre.cluster.output(job).startswith("[0.0, 1.0, 2.0]\n")


def test_jobs_that_share_a_reservation_lose_their_own_token_alone(
    remote_centre: Centre, home: Path, python: Path
) -> None:
    centre = remote_centre
    waiting = home / "waiting"
    waiting.unlink(missing_ok=True)
    centre.cluster.submit(f"#!/bin/bash\n#BB create_persistent name=mesh {_MESH}\ntrue\n")
    wait_for(lambda: "Name=mesh" in centre.cluster.buffers(), "Slurm to know the reservation", 120)
    names = {"home": home, "python": python, "directive": "#DW persistentdw name=mesh", "stream": "shared"}
    one = centre.cluster.submit((_REMOTE + _WRITE + _READ).format(**names), "--cpus-per-task=1")
    other = centre.cluster.submit(
        (_REMOTE + f"until [ -e {waiting} ]; do sleep 0.1; done\n" + _READ).format(**names), "--cpus-per-task=1"
    )
    wait_for(lambda: centre.states().get(str(other)) == "running", f"job {other} to run", 120)
    centre.wait_until_gone(one)
    assert _refused(centre, home / "kept.token", "mesh/flow-shared")
    waiting.touch()
    centre.wait_until_gone(other)
    assert centre.cluster.output(other).startswith("[0.0, 1.0, 2.0]\n"), centre.cluster.output(other)
    assert _refused(centre, home / "kept.token", "mesh/flow-shared")
    centre.cluster.submit("#!/bin/bash\n#BB destroy_persistent name=mesh\ntrue\n")
    wait_for(lambda: centre.instance.ask("ls")["reservations"] == [], "the reservation to go", 120)
    centre.must_be_clean()
