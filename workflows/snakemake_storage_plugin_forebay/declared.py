# SPDX-License-Identifier: Apache-2.0
"""The reservation that a workflow declares: made before the first question about it, and kept for this process."""

from __future__ import annotations

import os
import sys

from snakemake_interface_common.exceptions import WorkflowError

import forebay
from forebay.errors import ForebayError
from forebay.manager.client import ManagerClient

__all__ = ["LIFETIMES", "DeclaredReservation"]

LIFETIMES = ("workflow", "persistent")


class DeclaredReservation:
    """Nothing happens until :meth:`prepare`.

    Parameters
    ----------
    instance : Instance, optional
        Whose manager makes it; not given: the one that the environment names.
    name, capacity, files : str
        As for ``forebay create``.
    lifetime : {"workflow", "persistent"}
        Until this process has ended, however it ends, or until it is destroyed.
    """

    def __init__(self, instance: forebay.Instance | None, name: str, capacity: str, files: str, lifetime: str) -> None:
        self._instance = instance
        self._name = name
        self._capacity = capacity
        self._files = files
        self._lifetime = lifetime
        self._prepared = False

    def prepare(self, reservation: str) -> None:
        """Makes the reservation and attaches this process, if it is this one and nobody has yet.

        Raises
        ------
        WorkflowError
            The pool does not have what is asked for, the manager is not running, or a setting is wrong.
        """
        if reservation != self._name or self._prepared or _is_of_a_rule():
            return
        if not self._capacity:
            raise WorkflowError(f"the storage declares reservation {self._name} without a capacity: add capacity=…")
        if self._lifetime not in LIFETIMES:
            raise WorkflowError(f"a reservation's lifetime is {' or '.join(LIFETIMES)}, not {self._lifetime!r}")
        try:
            with ManagerClient(self._instance or forebay.Instance.current()) as manager:
                manager.create(
                    self._name,
                    forebay.parse_size(self._capacity),
                    files=forebay.parse_size(self._files),
                    persistent=self._lifetime == "persistent",
                )
                manager.attach(self._name, f"snakemake {os.getpid()}", pid=os.getpid())
        except ForebayError as error:
            raise WorkflowError(f"reservation {self._name} of the workflow: {error}") from None
        self._prepared = True


def _is_of_a_rule() -> bool:
    """A rule with ``run:`` is a Snakemake of its own, below the one that has the reservation."""
    return "--mode" in sys.argv
