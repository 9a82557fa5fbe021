# SPDX-License-Identifier: Apache-2.0
"""What streams and their readers must look like: the model that the state machine compares the real ones with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay

__all__ = ["FollowerModel", "HeldStep", "StepModel", "StreamModel"]


@dataclass
class StepModel:
    """A committed step: the number that all of its elements have, and the epoch of its commit."""

    value: int
    epoch: int


@dataclass
class HeldStep:
    """A step that a follower holds with a view, which must never change."""

    step: forebay.Step
    view: NDArray[Any]
    value: int

    def check(self) -> None:
        """Is it still what was read?"""
        assert np.all(self.view == self.value), f"the view of step {self.step.number} has changed"


@dataclass
class FollowerModel:
    """A follower: its next step, and what it holds."""

    follower: forebay.Follower
    consumer: str
    position: int
    held: list[HeldStep] = field(default_factory=list)
    given: forebay.Step | None = None  # the last one, which can be acknowledged
    known: bool = True  # to the server, since it was started

    def pinned(self) -> list[forebay.Step]:
        """Steps that retention has to spare."""
        given = [self.given] if self.given is not None and self.given.pinned else []
        return [held.step for held in self.held] + given

    def rewind(self, first: int) -> None:
        """Steps from this one on were withdrawn."""
        self.position = min(self.position, first)


@dataclass
class StreamModel:
    """A stream."""

    address: str
    epoch: int = 1
    next_step: int = 0
    steps: dict[int, StepModel] = field(default_factory=dict)
    last: int | None = None  # retention: this many newest steps
    status: str = "waiting"
    cursors: dict[str, int] = field(default_factory=dict)
    writer: forebay.WritableStream | None = None
    followers: list[FollowerModel] = field(default_factory=list)

    def begin_group(self, writer: forebay.WritableStream, *, after: int | None, last: int | None) -> None:
        """A group has formed that goes on after a step (-1: anew), or after the last one (None)."""
        first = self.next_step if after is None else after + 1
        withdraws = first < self.next_step or (after == -1 and self.next_step > 0)
        if withdraws:
            self.epoch += 1
            self.next_step = first
            self.steps = {number: step for number, step in self.steps.items() if number < first}
            self.cursors = {name: min(position, first) for name, position in self.cursors.items()}
            for follower in self.followers:
                follower.rewind(first)
        if last is not None:
            self.last = last
        self.writer = writer
        self.status = "live"
        self.retain()

    def commit(self, value: int) -> None:
        """One more step."""
        self.steps[self.next_step] = StepModel(value, self.epoch)
        self.next_step += 1
        self.retain()

    def retain(self) -> None:
        """Forgets what retention may have dropped: neither new enough nor held."""
        if self.last is None:
            return
        held = {(step.number, step.epoch) for follower in self.followers for step in follower.pinned()}
        oldest = self.next_step - self.last
        self.steps = {
            number: step for number, step in self.steps.items() if number >= oldest or (number, step.epoch) in held
        }

    def end_group(self, status: str) -> None:
        """The group has closed or was lost."""
        self.writer = None
        self.status = status
        self.retain()

    def follow(self, follower: forebay.Follower, consumer: str) -> FollowerModel:
        """A follower that begins at its cursor, else at the oldest step."""
        oldest = min(self.steps, default=self.next_step)
        position = self.cursors.get(consumer, oldest) if consumer else oldest
        if consumer:
            self.cursors[consumer] = position
        model = FollowerModel(follower, consumer, position)
        self.followers.append(model)
        return model

    def due(self, position: int) -> int | None:
        """The step that a follower at this position gets next, if there is one."""
        return min((number for number in self.steps if number >= position), default=None)
