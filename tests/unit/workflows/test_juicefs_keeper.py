# SPDX-License-Identifier: Apache-2.0
"""What `juicefs gc` says, and how large the parts are, without the engine."""

from __future__ import annotations

import pytest

from forebay.workflows.files.juicefs.engine_commands import LoopbackNet
from forebay.workflows.files.juicefs.forwarder import ways_of
from forebay.workflows.files.juicefs.keeper import gave_something_up
from forebay.workflows.files.juicefs.room_plan import files_max, image_bytes

_NOTHING = """\
<INFO>: Compacted 0 chunks (0 slices, 0 bytes). [gc@gc.go:180]
<INFO>: using 1 slices (67108864 bytes) [gc@gc.go:259]
<INFO>: Deleted 0 pending slices [gc@gc.go:373]
<INFO>: scanned 16 objects, 0 valid, 0 pending delete (0 bytes), 0 compacted (0 bytes), 0 leaked (0 bytes), \
0 delslices (0 bytes), 0 delfiles (0 bytes), 16 skipped (67108864 bytes) [gc@gc.go:386]
"""


def test_a_run_that_gave_nothing_up_is_the_last() -> None:
    assert not gave_something_up(_NOTHING)
    for word in (
        "Compacted 0 chunks",
        "Deleted 0 pending",
        "0 pending delete",
        "0 leaked",
        "0 delslices",
        "0 delfiles",
    ):
        assert gave_something_up(_NOTHING.replace(word, word.replace("0", "3")))


@pytest.mark.parametrize("parts", [2, 3, 250])
def test_all_parts_together_have_a_quarter_more_than_the_capacity(parts: int) -> None:
    capacity = 100 << 30
    sizes = [image_bytes(part, parts, capacity) for part in range(parts)]
    assert sum(sizes) > capacity * 5 // 4
    assert sizes[0] > sizes[1] == sizes[-1]
    assert files_max(capacity) == 32768 * 100


def test_a_forwarder_has_a_way_to_each_part_and_to_redis() -> None:
    gates = [{"address": f"10.0.0.{part}", "port": 700 + part} for part in range(3)]
    ways = ways_of(LoopbackNet(300, 700), gates)
    assert [way["address"] for way in ways] == ["127.65.44.0", "127.65.44.1", "127.65.44.2", "127.65.44.254"]
    assert [(way["gate_address"], way["gate_port"], way["target"]) for way in ways] == [
        ("10.0.0.0", 700, 0),
        ("10.0.0.1", 701, 0),
        ("10.0.0.2", 702, 0),
        ("10.0.0.0", 700, 1),
    ]
    assert {way["port"] for way in ways} == {700}
