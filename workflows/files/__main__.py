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
from forebay.workflows.files.commands.driver import CommandsDriver
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.daemon_cgroup import DaemonCgroup
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
    folder = Path(_value("FOLDER"))
    incarnation = int(_value("INCARNATION"))
    check_incarnation(folder.parent, incarnation)
    deadline = time.monotonic() + float(_value("SECONDS"))
    reservation = _value("RESERVATION")
    cgroup = DaemonCgroup(os.environ.get(f"{_PREFIX}CGROUP", ""), reservation)
    match name:
        case "nfs":
            return _of_nfs(operation, NfsDriver(folder, reservation, incarnation, deadline, cgroup))
        case "juicefs" if operation in ("mount", "unmount"):
            return _on_node(operation, NodeMount(folder, deadline, cgroup))
        case "juicefs":
            part = int(_value("PART"))
            driver = JuicefsDriver(folder, reservation, part, incarnation, deadline, cgroup)
            return _of_juicefs(operation, driver)
        case "commands":
            commands = SiteCommands.from_json(_value("COMMANDS"))
            return _of_commands(operation, CommandsDriver(folder, reservation, incarnation, deadline, commands))
    raise InvalidArgumentError(f"there is no driver {name[:40]}")


def _of_nfs(operation: str, driver: NfsDriver) -> dict[str, Any]:
    match operation:
        case "prepare":
            return driver.prepare(
                Path(_value("TREE")), _value("ADDRESS"), _port_range(), float(_value("LEASE_SECONDS"))
            )
        case "start":
            return driver.start()
        case "stop":
            return driver.stop()
    return _of_any(operation, driver)


def _of_juicefs(operation: str, driver: JuicefsDriver) -> dict[str, Any]:
    match operation:
        case "prepare":
            capacity_bytes, parts_count = int(_value("CAPACITY_BYTES")), int(_value("PARTS_COUNT"))
            tree, address = Path(_value("TREE")), _value("ADDRESS")
            return driver.prepare(tree, address, _port_range(), capacity_bytes, parts_count, _value("KEY"))
        case "start":
            return driver.start(json.loads(_value("PARTS")))
        case "stop":
            return driver.stop()
    return _of_any(operation, driver)


def _of_commands(operation: str, driver: CommandsDriver) -> dict[str, Any]:
    match operation:
        case "prepare":
            return driver.prepare(Path(_value("TREE")), int(_value("CAPACITY_BYTES")))
        case "start":
            return driver.start()
        case "mount":
            return driver.mount()
        case "stop":
            return driver.stop(json.loads(_value("CLEAN")))
    return _of_any(operation, driver)


def _of_any(operation: str, driver: NfsDriver | JuicefsDriver | CommandsDriver) -> dict[str, Any]:
    match operation:
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
        case "destroy":
            return driver.destroy()
    raise InvalidArgumentError(f"there is no operation {operation[:40]}")


def _port_range() -> range:
    first, _, last = _value("PORTS").partition("-")
    return range(int(first), int(last) + 1)


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
