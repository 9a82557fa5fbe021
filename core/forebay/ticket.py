# SPDX-License-Identifier: Apache-2.0
"""Tickets: small files that stand for a stream or a step where a program or a workflow wants a file.

A ticket is JSON, and its name ends in ``.forebay``. Where Forebay takes an address, it takes the path of a ticket, too.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from forebay import _core
from forebay.admin import Admin
from forebay.errors import InvalidArgumentError, StepGoneError, StepNotFoundError
from forebay.instance import InstanceLike, instance_of
from forebay.new_output import new_output
from forebay.opening import open as open_stream
from forebay.records import TICKET_SUFFIX, Address
from forebay.step import Step

__all__ = ["Ticket", "open_step"]


@dataclass(frozen=True, slots=True)
class Ticket:
    """What stands in the file.

    Attributes
    ----------
    address : Address
        Of a stream, or of one of its steps.
    uuid : str
        The stream's: a stream that was removed and made anew has another one.
    epoch : int or None
        Of a step's ticket: a stream that was rewound or replaced has another one.
    """

    address: Address
    uuid: str
    epoch: int | None = None

    @classmethod
    def of(cls, address: str | Address, *, instance: InstanceLike | None = None) -> Self:
        """A ticket for a stream or step that is there.

        Raises
        ------
        NotFoundError
            There is no such stream.
        StepNotFoundError
            The step is not kept.
        """
        place = address if isinstance(address, Address) else Address.parse(address)
        with Admin(instance_of(place.server, instance)) as admin:
            info = admin.stream(place.path)
            if place.step is None:
                return cls(place, info.uuid)
            for step in admin.steps(place.path):
                if step.number == place.step:
                    return cls(place, info.uuid, step.epoch)
        raise StepNotFoundError("no such step is kept", f"stream {place.path}, step {place.step}")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """InvalidArgumentError where the file is no ticket."""
        reservation, stream, step, server, uuid, epoch = _core.parse_ticket(Path(path).read_bytes(), str(path))
        return cls(Address(reservation, stream, step, server), uuid, epoch)

    def write(self, path: str | os.PathLike[str]) -> None:
        """The file appears whole; its name should end in ``.forebay``."""
        with new_output(Path(path)) as hidden:
            hidden.write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """What stands in the file: one line of JSON."""
        server = f"{self.address.server}/" if self.address.server else ""
        fields = {"forebay": f"forebay://{server}{self.address}", "uuid": self.uuid}
        return json.dumps(fields if self.epoch is None else {**fields, "epoch": self.epoch}) + "\n"


def open_step(
    address: str | os.PathLike[str] | Address,
    *,
    instance: InstanceLike | None = None,
    verify: Any = "auto",
    timeout: float | None = 60.0,
) -> Step:
    """Opens one step, by its address ``"RES/STREAM@17"`` or by a ticket.

    Parameters
    ----------
    address : str, path or Address
        A step's address, or the path of a step's ticket.
    instance, verify, timeout
        As in :func:`forebay.open`.

    Raises
    ------
    StepGoneError
        The step was dropped or withdrawn; or the ticket is for one that has been written anew since.
    StepNotFoundError, StreamNotFoundError
        There is no such step or stream.
    """
    text = address if isinstance(address, Address) else os.fspath(address)
    place = text if isinstance(text, Address) else Address.parse(text)
    if place.step is None:
        raise InvalidArgumentError(f"{place} names a stream, not one of its steps: write {place}@17, or forebay.open")
    ticket = Ticket.read(text) if isinstance(text, str) and text.endswith(TICKET_SUFFIX) else None
    whole = Address(place.reservation, place.stream, None, place.server)
    # The step keeps its stream open.
    step = open_stream(whole, instance=instance, verify=verify, timeout=timeout)[place.step]
    _, uuid, epoch = step.identity
    if ticket is not None and (uuid, epoch) != (ticket.uuid, ticket.epoch):
        step.release()
        raise StepGoneError("the step of this ticket is gone; another was written in its place", str(text))
    return step
