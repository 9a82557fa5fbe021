# SPDX-License-Identifier: Apache-2.0
"""Hours, or a minute and a half, of random producers, consumers, kills and stage-outs; then the history is judged.

FOREBAY_SOAK_SECONDS is how long, FOREBAY_TEST_SEED what is drawn. Histories, figures and a picture of the resources are
left in build/soak/SEED/; ``python -m tests.soak.history LOG`` judges a history again.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.soak.director import Soak
from tests.support.instance import CommandLineInstance
from tests.support.randomness import TEST_SEED
from tests.support.staging_server import forebayd

SECONDS = float(os.environ.get("FOREBAY_SOAK_SECONDS") or 60)
#: How long writer groups have to come back after a restart of the server.
_RESTART_GRACE_MS = 3000
_BREACHES_TOLD_MAX = 40


def impatient_server(folder: Path) -> Path:
    """A forebayd that waits a short time for groups, since many of a soak never come back."""
    program = folder / "forebayd"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(str(forebayd()))} "$@" --restart-grace-ms {_RESTART_GRACE_MS}\n')
    program.chmod(0o755)
    return program


@pytest.mark.timeout(SECONDS * 2 + 300)
# crash-matrix: everything at once, at random | clients and stages at any moment; server and manager in the first quarter of the time and in the last round | steps, their order, epochs, cursors, watermarks, retention and stages are as everybody was told
def test_history_of_a_soak_keeps_every_promise_and_resources_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    instance = CommandLineInstance(tmp_path / "root", capacity="512MiB")
    instance.environment["FOREBAY_SERVER_BINARY"] = str(impatient_server(tmp_path))
    monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
    folder = Path("build/soak") / str(TEST_SEED)
    with instance:
        soak = Soak(instance, folder.absolute(), seed=TEST_SEED, seconds=SECONDS)
        with capfd.disabled():
            soak.run()
            print(
                f"\nsoak with FOREBAY_TEST_SEED={TEST_SEED}: {soak.summary()}\n{(folder / 'resources.txt').read_text()}"
            )
        if soak.breaches:
            told = "\n".join(str(breach) for breach in soak.breaches[:_BREACHES_TOLD_MAX])
            head = f"FOREBAY_TEST_SEED={TEST_SEED}, {len(soak.breaches)} breaches, histories in {folder}"
            pytest.fail(f"{head}:\n{told}", pytrace=False)
        assert min(soak.steps, soak.reads, soak.kills, soak.staged, soak.actions["kill server"]) > 0, soak.summary()
        instance.ask("destroy", "standing", "--force")
        assert instance.ask("doctor", "--read-data")["clean"] is True
        assert not [path for path in (instance.root / "reservations").iterdir() if path.is_dir()]
