# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands take, and what the shell completes them with: names of reservations and streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

import forebay
from forebay.cli.chosen import chosen
from forebay.errors import ForebayError

__all__ = [
    "ConsumerArgument",
    "ReservationArgument",
    "StepArgument",
    "StreamArgument",
    "reservation_names",
    "stream_names",
]

_SCHEME = "forebay://"


def reservation_names(incomplete: str) -> Iterable[str]:
    """The reservations that the user may see."""
    try:
        with forebay.Admin(chosen()) as admin:
            return [info.name for info in admin.reservations(count_files=False)]
    except (ForebayError, OSError):  # A shell that completes shows no errors.
        return []


def stream_names(incomplete: str) -> Iterable[str]:
    """``RES/`` up to the slash, behind it the streams of that reservation."""
    scheme = _SCHEME if incomplete.startswith(_SCHEME) else ""
    reservation, slash, _ = incomplete.removeprefix(scheme).partition("/")
    try:
        with forebay.Admin(chosen()) as admin:
            if slash:
                return [f"{scheme}{reservation}/{info.name}" for info in admin.streams(reservation)]
            return [f"{scheme}{info.name}/" for info in admin.reservations(count_files=False)]
    except (ForebayError, OSError):
        return []


def _consumer_names(context: typer.Context, incomplete: str) -> Iterable[str]:
    """Of the stream that stands before it."""
    try:
        with forebay.Admin(chosen()) as admin:
            return [known.name for known in admin.stream(context.params["stream"]).consumers]
    except (ForebayError, OSError, KeyError):
        return []


ReservationArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The reservation's name.", autocompletion=reservation_names)
]
StreamArgument = Annotated[
    str, typer.Argument(metavar="RES/STREAM", help="The stream, for example run1/flow.", autocompletion=stream_names)
]
StepArgument = Annotated[
    str,
    typer.Argument(
        metavar="RES/STREAM[@STEP]",
        help="A step, for example run1/flow@17; default: the newest.",
        autocompletion=stream_names,
    ),
]
ConsumerArgument = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="The consumer's name.", autocompletion=_consumer_names)
]
