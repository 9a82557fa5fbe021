# SPDX-License-Identifier: Apache-2.0
"""A workflow as a user would script it: killed anywhere and run again, it ends as if nothing had happened.

Run as a program it goes through the phases that are left, for ``python -m tests.fault.rerun_workflow PROGRESS_FILE``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay.errors import DisconnectedError

__all__ = ["PHASES", "outcome", "run"]

FLOW = "r/flow"
OTHER = "r/other"
CONSUMER = "archive"
RECONNECT_SECONDS = 60.0


def field(step: int, epoch: int) -> NDArray[np.float64]:
    """What a step holds, of 2000 elements."""
    return np.arange(2000, dtype=np.float64) + 10_000 * step + 1e6 * epoch


def admin() -> forebay.Admin:
    """A connection that rides out restarts of the server."""
    return forebay.Admin(reconnect_timeout=RECONNECT_SECONDS)


def write_up_to(address: str, end: int, **options: Any) -> None:
    """Appends steps until ``end - 1`` is there."""
    with forebay.open(address, "a", **options) as stream:
        while stream.next_step < end:
            with stream.step() as step:
                step["T"] = field(stream.next_step, stream.epoch)


def consume_up_to(end: int, epochs: Callable[[int], int]) -> None:
    """The consumer takes and acknowledges each step after its cursor; it holds all views to the end."""
    with admin() as asking:
        positions = [known.position for known in asking.stream(FLOW).consumers if known.name == CONSUMER]
    due = positions[0] if positions else 0
    views: list[tuple[int, NDArray[np.float64]]] = []
    with forebay.open(FLOW) as stream, stream.follow(consumer=CONSUMER, ack="manual") as steps:
        while due < end:
            step = next(steps)
            # An acknowledgement that was sent may count although it was not answered.
            assert step.number in (due, due + 1) if not views else step.number == due, f"{step.number} instead of {due}"
            views.append((step.number, step["T"][...]))
            assert step.epoch == epochs(step.number)
            steps.ack(step)
            due = step.number + 1
    for number, view in views:
        np.testing.assert_array_equal(view, field(number, epochs(number)))


def create_reservations() -> None:
    with admin() as asking:
        asking.create("r", "64MiB")
        asking.create("spare", "8MiB")


def write_the_first_steps() -> None:
    write_up_to(FLOW, 6, retention=f"last:2,consumers:{CONSUMER},precious:3")


def consume_the_first_steps() -> None:
    consume_up_to(6, lambda _: 1)


def look_after_the_stream() -> None:
    with admin() as asking:
        asking.set_retention(FLOW, "last:4")
        asking.mark_staged(FLOW, 1, [3], "the receipt of step 3")
        asking.set_precious(FLOW, [0], False)


def go_back_and_write_again() -> None:
    with admin() as asking:
        rewinds = asking.stream(FLOW).epoch == 1
    options: dict[str, Any] = {"append_after": 3} if rewinds else {}
    write_up_to(FLOW, 8, durability="durable", retention="last:5,precious:6", **options)


def consume_what_was_written_again() -> None:
    consume_up_to(8, lambda step: 1 if step < 4 else 2)


def replace_another_stream() -> None:
    for _ in range(2):
        with forebay.open(OTHER, "w", checksums=False) as stream:
            for number in range(3):
                with stream.step() as step:
                    step["T"] = field(number, stream.epoch)


def remove_what_is_not_needed() -> None:
    with admin() as asking:
        asking.remove_stream(OTHER)
        with contextlib.suppress(forebay.NotFoundError):
            asking.remove_consumer(FLOW, CONSUMER)
        asking.set_retention(FLOW, "all")
        asking.destroy("spare")


PHASES: list[Callable[[], None]] = [
    create_reservations,
    write_the_first_steps,
    consume_the_first_steps,
    look_after_the_stream,
    go_back_and_write_again,
    consume_what_was_written_again,
    replace_another_stream,
    remove_what_is_not_needed,
]


def run(progress: Path) -> None:
    """Goes through the phases that ``progress`` does not have yet; each is begun again when the server is lost."""
    done = int(progress.read_text()) if progress.exists() else 0
    for number, phase in enumerate(PHASES[done:], start=done + 1):
        while True:
            try:
                phase()
                break
            except DisconnectedError:
                admin().close()
        progress.write_text(str(number))


def outcome() -> dict[str, Any]:
    """All that is left in the end and does not tell of the accidents."""
    with admin() as asking:
        stream = asking.stream(FLOW)
        reader = forebay.open(FLOW)
        return {
            "reservations": [info.name for info in asking.reservations()],
            "streams": [info.name for info in asking.streams("r")],
            "status": str(stream.status),
            "retention": str(stream.retention),
            "consumers": stream.consumers,
            "steps": [
                (step.number, step.epoch, step.durable, step.staged, step.precious, step.pins)
                for step in asking.steps(FLOW)
            ],
            "content": [float(reader[step.number]["T"][...].sum()) for step in asking.steps(FLOW)],
            "problems": [
                finding for finding in asking.audit(read_data=True) if finding.severity is forebay.Severity.PROBLEM
            ],
        }


if __name__ == "__main__":
    run(Path(sys.argv[1]))
