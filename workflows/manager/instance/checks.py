# SPDX-License-Identifier: Apache-2.0
"""What the manager adds to `forebay doctor`."""

from __future__ import annotations

from pathlib import Path

from forebay.errors import DisconnectedError
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.records import Finding, Severity
from forebay.workflows.manager.instance.running_daemons import strangers_text

__all__ = ["check"]


def check(root: Path) -> list[Finding]:
    """Does the manager run, and does what was asked for exist?"""
    instance = Instance(root)
    strangers = strangers_text(instance)
    return [*_of_manager(instance), *([Finding(Severity.PROBLEM, "processes", strangers)] if strangers else [])]


def _of_manager(instance: Instance) -> list[Finding]:
    try:
        with ManagerClient(instance) as manager:
            if manager.health().server_pid is None:
                return [Finding(Severity.PROBLEM, "manager", "it cannot reach the server; see ROOT/log/manager.log")]
            return manager.findings()
    except DisconnectedError as error:
        # A server that was started by hand never had a manager, and that is nobody's mistake.
        severity = Severity.PROBLEM if instance.manager_endpoint.exists() else Severity.NOTE
        return [Finding(severity, "manager", error.what)]
