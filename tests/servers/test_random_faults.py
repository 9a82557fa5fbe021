# SPDX-License-Identifier: Apache-2.0
"""A few short runs of random faults; `./run test server-faults` has longer ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server_faults.faulty_pool import actions, faulty_pool, run_seed
from tests.support.munged import Munged
from tests.support.randomness import TEST_SEED, times

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("random faults")]

_ACTIONS = 4


def test_short_histories_of_a_pool_keep_every_promise(tmp_path: Path, munged: Munged, nodes_possible: None) -> None:
    with faulty_pool(tmp_path, munged) as nodes:
        for seed in range(TEST_SEED, TEST_SEED + times(2)):
            print(run_seed(nodes, seed, actions(_ACTIONS)))
