# SPDX-License-Identifier: Apache-2.0
"""Operations of the driver `juicefs`, with their values: what `python -m forebay.workflows.files OPERATION` carries out
for it. Those of a part run on the part's server, `mount` and `unmount` on nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgumentError
from forebay.workflows.files.juicefs.driver import JuicefsDriver
from forebay.workflows.files.juicefs.node_mount import NodeMount

__all__ = ["carry_out"]


def carry_out(
    operation: str, folder: Path, reservation: str, incarnation: int, deadline: float, value: Callable[[str], str]
) -> dict[str, Any]:
    """Carries it out. ``value`` gives a value by its name, and raises InvalidArgumentError if it is not set."""
    if operation in ("mount", "unmount"):
        node = NodeMount(folder, deadline)
        place = Path(value("PLACE"))
        if operation == "mount":
            return node.mount(place, json.loads(value("TICKET")), squash=value("SQUASH") != "0")
        return node.unmount(place, lazy=value("LAZY") != "0")
    driver = JuicefsDriver(folder, reservation, int(value("PART")), incarnation, deadline)
    match operation:
        case "prepare":
            first, _, last = value("PORTS").partition("-")
            return driver.prepare(
                Path(value("TREE")),
                value("ADDRESS"),
                range(int(first), int(last) + 1),
                int(value("CAPACITY_BYTES")),
                int(value("PARTS_COUNT")),
                value("KEY"),
            )
        case "start":
            return driver.start(json.loads(value("PARTS")))
        case "ready":
            return driver.ready()
        case "admit":
            return driver.admit(json.loads(value("NODES")))
        case "release":
            return driver.release(json.loads(value("NODES")))
        case "fence":
            return driver.fence(json.loads(value("NODES")))
        case "usage":
            return driver.usage()
        case "stop":
            return driver.stop()
        case "destroy":
            return driver.destroy()
    raise InvalidArgumentError(f"there is no operation {operation[:40]}")
