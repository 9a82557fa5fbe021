# SPDX-License-Identifier: Apache-2.0
"""A reader by ADIOS2's engine, as a process that tells what it sees: ``python -m tests.soak.adios2_reader STREAM``."""

from __future__ import annotations

import json
import os
import sys
import time

import adios2

import forebay.adios2
from tests.soak.content import wrong_in_step
from tests.support.time_limits import seconds

_STATUS = adios2.bindings.StepStatus


def say(event: str, **fields: object) -> None:
    """One line, written at once, as ``forebay_load`` does."""
    line = json.dumps({"event": event, "told_ns": time.monotonic_ns(), **fields}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())


def follow(address: str) -> None:
    """Follows the stream from its oldest step until it ends."""
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, address, Start="oldest", OpenTimeoutSecs=30)
    say("opening")
    with adios2.Stream(io, "stream", "r") as stream:
        say("opened")
        while (status := stream.begin_step(timeout=seconds(60.0))) == _STATUS.OK:
            number = stream.current_step()
            try:
                told, epoch, incarnation, wrong = wrong_in_step(address.partition("/")[2], stream.read)
            except (RuntimeError, ValueError) as error:
                # Without a pin a step may go while it is read; the judge knows whether this one might.
                say("gone", step=number, what=str(error))
            else:
                say("step", step=told, epoch=epoch, incarnation=incarnation)
                if wrong:
                    say("violation", what=f"step {told}: {wrong}")
            stream.end_step()
        # ADIOS2 has one word for every end that is not a good one.
        say("end", status="ended" if status == _STATUS.EndOfStream else str(status))


def main(arguments: list[str]) -> int:
    """Exit status 0 at an end of the stream, 1 where the engine gave up."""
    try:
        follow(arguments[0])
    except (RuntimeError, ValueError) as error:
        say("refused", what=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
