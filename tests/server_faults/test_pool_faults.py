# SPDX-License-Identifier: Apache-2.0
"""Servers, nodes, disks and clients of a pool fail at random; the history of what everybody was told keeps promises.

FOREBAY_SOAK_SECONDS is how long, FOREBAY_TEST_SEED the first seed of those that are run one after another. Histories
are left in build/server-faults/SEED/.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.server_faults.faulty_pool import actions, faulty_pool, run_seed
from tests.soak.test_soak import SECONDS
from tests.support.munged import Munged
from tests.support.randomness import TEST_SEED

_ACTIONS = 16


@pytest.mark.timeout(2 * SECONDS + 600)
# crash-matrix: everything at once on a pool of servers, at random | ranks, readers, stages, servers, manager killed, stopped or cut off; a server's power, a full or read-only disk, an old copy of a root | no durable step is lost, and of the others only what went with a server's power; order, epochs, cursors and the turns of reader groups are as everybody was told
def test_histories_of_a_pool_keep_every_promise(
    tmp_path: Path, munged: Munged, nodes_possible: None, capfd: pytest.CaptureFixture[str]
) -> None:
    limit = time.monotonic() + SECONDS
    seed = TEST_SEED
    with faulty_pool(tmp_path, munged) as nodes:
        while True:
            told = run_seed(nodes, seed, actions(_ACTIONS))
            with capfd.disabled():
                print(f"\n{told}")
            seed += 1
            if time.monotonic() > limit:
                return
