# SPDX-License-Identifier: Apache-2.0
"""A server whose memory has run out: it says so and ends, and nothing is lost."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path

from tests.fault.instance import Instance


# crash-matrix: no memory | forebayd, at its limit of address space, with many steps kept | it ends and says what to do; every step once, to clients that go on with the next server
def test_a_server_out_of_memory_says_so_and_ends(instances: Callable[..., Instance]) -> None:
    """Its address space may not grow any more while every step takes some."""
    instance = instances()
    instance.create("r", "128MiB")
    reader = instance.follow("r/flow", start="oldest")
    (writer,) = instance.group("r/flow", 1, steps=4_000, elements=100, readers=1)
    reader.wait_for("step")
    mapped = re.search(r"^VmSize:\s+(\d+) kB$", Path(f"/proc/{instance.pid}/status").read_text(), re.MULTILINE)
    assert mapped is not None
    limit = int(mapped[1]) * 1024
    resource.prlimit(instance.pid, resource.RLIMIT_AS, (limit, limit))
    assert instance.wait() == 1
    assert "forebayd: out of memory, ending; committed steps are safe" in instance.log()
    instance.start()
    writer.succeed()
    reader.succeed()
    assert [event["step"] for event in reader.named("step")] == list(range(4_000))
    assert sorted(instance.check("r/flow")) == list(range(4_000))
    assert instance.problems() == []
