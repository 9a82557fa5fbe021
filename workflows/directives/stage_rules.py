# SPDX-License-Identifier: Apache-2.0
"""Rules that come with a reservation: which steps of its streams the manager copies out while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterable

from forebay.errors import InvalidArgumentError
from forebay.manager.jobs import StepsJob
from forebay.workflows.directives.directive_parsing import parse_stream_stage

__all__ = ["stage_of_rule", "stages_of_rules"]


def stages_of_rules(reservation: str, texts: Iterable[str], *, folder: str | None = None) -> list[StepsJob]:
    """The stages of several rules. They follow their streams, each in a destination of its own.

    Raises
    ------
    InvalidArgumentError
        As `stage_of_rule`; or two that differ have one destination, where the second would wait for the first's stream.
    """
    stages: dict[str, StepsJob] = {}
    for text in texts:
        stage = stage_of_rule(reservation, text, folder=folder)
        if stages.setdefault(stage.destination, stage) != stage:
            raise InvalidArgumentError(
                f"two rules have the destination {stage.destination[:200]}, where one stage works at a time; give each "
                "one of its own"
            )
    return list(stages.values())


def stage_of_rule(reservation: str, text: str, *, folder: str | None = None) -> StepsJob:
    """The stage that `stream=flow every=10 destination=DIR` asks for: until the stream ends.

    Parameters
    ----------
    folder : str, optional
        Where a relative destination lies; not given: this process's.

    Raises
    ------
    InvalidArgumentError
        It is no rule, or one for another reservation.
    """
    place, equals, directory = text.partition("destination=")
    if equals and not directory.startswith(("/", "%")):
        text = f"{place}destination={folder or os.path.abspath('.')}/{directory}"
    rule = parse_stream_stage(text)
    of, slash, _ = rule.stream.partition("/")
    if slash and of != reservation:
        raise InvalidArgumentError(f"stream={rule.stream} lies in another reservation than {reservation}")
    if "%" in rule.destination:
        raise InvalidArgumentError(f"destination={rule.destination[:200]}: symbols are Slurm's; write the folder")
    return StepsJob(
        stream=rule.stream if slash else f"{reservation}/{rule.stream}",
        destination=rule.destination,
        every=rule.every,
        steps=rule.steps,
        format=rule.format,
        follow=True,
    )
