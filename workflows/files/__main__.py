# SPDX-License-Identifier: Apache-2.0
"""One operation of a driver: ``python -m forebay.workflows.files OPERATION``, with values by environment.

It prints a JSON object and ends with status 0, or 1 with ``{"error": …}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from forebay.errors import ForebayError, InvalidArgumentError
from forebay.workflows.files.driver_state import check_incarnation
from forebay.workflows.files.juicefs.driver import JuicefsDriver
from forebay.workflows.files.juicefs.node_mount import NodeMount
from forebay.workflows.files.nfs import NfsDriver

_PREFIX = "FOREBAY_FILES_"


def main() -> int:
    """Carries it out."""
    os.umask(0o077)
    try:
        answer = _carry_out(sys.argv[1] if len(sys.argv) == 2 else "")
    except ForebayError as error:
        print(json.dumps({"error": {"code": error.code.value, "what": error.what, "where": error.where}}))
        return 1
    except OSError as error:
        what = f"{error.strerror or error}"
        print(json.dumps({"error": {"code": "io_error", "what": what, "where": str(error.filename or "")}}))
        return 1
    print(json.dumps(answer))
    return 0


def _carry_out(operation: str) -> dict[str, Any]:
    name = _value("DRIVER")
    if name not in ("nfs", "juicefs"):
        raise InvalidArgumentError(f"there is no driver {name[:40]}")
    folder = Path(_value("FOLDER"))
    incarnation = int(_value("INCARNATION"))
    check_incarnation(folder.parent, incarnation)
    deadline = time.monotonic() + float(_value("SECONDS"))
    reservation = _value("RESERVATION")
    driver: NfsDriver | JuicefsDriver
    if name == "nfs":
        driver = NfsDriver(folder, reservation, incarnation, deadline)
    elif operation in ("mount", "unmount"):
        return _on_node(operation, NodeMount(folder, deadline))
    else:
        driver = JuicefsDriver(folder, reservation, int(_value("PART")), incarnation, deadline)
    match operation:
        case "prepare":
            return _prepare(driver)
        case "start":
            return driver.start() if isinstance(driver, NfsDriver) else driver.start(json.loads(_value("PARTS")))
        case "ready":
            return driver.ready()
        case "admit":
            return driver.admit(json.loads(_value("NODES")))
        case "release":
            return driver.release(json.loads(_value("NODES")))
        case "fence":
            return driver.fence(json.loads(_value("NODES")))
        case "usage":
            return driver.usage()
        case "stop":
            return driver.stop()
        case "destroy":
            return driver.destroy()
    raise InvalidArgumentError(f"there is no operation {operation[:40]}")


def _prepare(driver: NfsDriver | JuicefsDriver) -> dict[str, Any]:
    first, _, last = _value("PORTS").partition("-")
    tree, address, ports = Path(_value("TREE")), _value("ADDRESS"), range(int(first), int(last) + 1)
    if isinstance(driver, NfsDriver):
        return driver.prepare(tree, address, ports, float(_value("LEASE_SECONDS")))
    capacity_bytes, parts_count = int(_value("CAPACITY_BYTES")), int(_value("PARTS_COUNT"))
    return driver.prepare(tree, address, ports, capacity_bytes, parts_count, _value("KEY"))


def _on_node(operation: str, node: NodeMount) -> dict[str, Any]:
    place = Path(_value("PLACE"))
    if operation == "mount":
        return node.mount(place, json.loads(_value("TICKET")), squash=_value("SQUASH") != "0")
    return node.unmount(place, lazy=_value("LAZY") != "0")


def _value(name: str) -> str:
    try:
        return os.environ[_PREFIX + name]
    except KeyError:
        raise InvalidArgumentError(f"{_PREFIX}{name} is not set") from None


if __name__ == "__main__":
    sys.exit(main())
