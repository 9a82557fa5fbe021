# SPDX-License-Identifier: Apache-2.0
"""The name of the manager's own server."""

from __future__ import annotations

import os
import socket

__all__ = ["server_name"]


def server_name() -> str:
    """What this instance's server is called in tables: $FOREBAY_SERVER_NAME, which `forebay up --name` gives to the
    manager, else as its node.
    """
    return os.environ.get("FOREBAY_SERVER_NAME") or socket.gethostname().partition(".")[0]
