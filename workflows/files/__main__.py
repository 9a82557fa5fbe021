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
from forebay.workflows.files.juicefs import operations as juicefs
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
    if name == "juicefs":
        return juicefs.carry_out(operation, folder, _value("RESERVATION"), incarnation, deadline, _value)
    driver = NfsDriver(folder, _value("RESERVATION"), incarnation, deadline)
    match operation:
        case "prepare":
            first, _, last = _value("PORTS").partition("-")
            ports = range(int(first), int(last) + 1)
            return driver.prepare(Path(_value("TREE")), _value("ADDRESS"), ports, float(_value("LEASE_SECONDS")))
        case "start":
            return driver.start()
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


def _value(name: str) -> str:
    try:
        return os.environ[_PREFIX + name]
    except KeyError:
        raise InvalidArgumentError(f"{_PREFIX}{name} is not set") from None


if __name__ == "__main__":
    sys.exit(main())
