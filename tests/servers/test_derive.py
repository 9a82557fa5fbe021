# SPDX-License-Identifier: Apache-2.0
"""A stream over three servers, derived on the home's node: the parts of other members are fetched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.servers.test_thin_path import written_bytes
from tests.servers.three_servers import far_environment, three_servers
from tests.support.time_limits import seconds

ELEMENTS = 2 << 20
STEPS = 2
WRITE = f"""
import forebay, numpy as np
with forebay.open("run1/flow", "w") as stream:
    for number in range({STEPS}):
        stream.write("a", np.arange({ELEMENTS}, dtype=np.float32) + number)
"""


@pytest.mark.timeout(300)
def test_a_stream_over_several_servers_is_derived_at_its_home(tmp_path: Path) -> None:
    with three_servers(tmp_path) as pool:
        environment = far_environment(pool, tmp_path)
        subprocess.run([sys.executable, "-c", WRITE], env=environment, check=True, timeout=seconds(100))
        assert all(written_bytes(server.root) for server in pool.servers)
        at_home = os.environ | {"FOREBAY_ROOT": str(pool.servers[0].root)}
        line = [sys.executable, "-m", "forebay", "derive", "run1/flow", "run1/double", "--expr", "d = 2*a"]
        for _ in range(2):  # the second finds all done
            subprocess.run(line, env=at_home, check=True, timeout=seconds(100))
        with forebay.open("run1/double", instance=pool.servers[0].root, verify="read", timeout=0) as stream:
            assert stream.steps().numbers == list(range(STEPS))
            for number in range(STEPS):
                expected = 2 * (np.arange(ELEMENTS, dtype=np.float32) + number)
                np.testing.assert_array_equal(stream[number]["d"][...], expected)
