# SPDX-License-Identifier: Apache-2.0
"""What clients were told, and whether the server keeps to it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.fault.instance import Instance
from tests.support.load import LoadProcess

__all__ = ["Ledger"]


class Ledger:
    """The commits of one stream that its writers and readers know of, group after group."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._commits: dict[tuple[int, int], int] = {}  # incarnation by (step, epoch)
        self._withdrawals: list[tuple[int, int]] = []  # epoch that began, and the step that it goes on after
        self._sent = -1  # newest step that a rank has tried to publish
        self._sent_ever = -1  # the same, with withdrawn steps

    def note(self, *processes: LoadProcess) -> None:
        """Takes in what these have been told by now: writers of commits, readers of steps."""
        for process in processes:
            for event in (*process.named("committed"), *process.named("step")):
                self._commits[event["step"], event["epoch"]] = event["incarnation"]
            if process.arguments[0] == "write" and process.running():
                self._sent = max([self._sent, *(event["step"] for event in process.named("ending"))])

    def note_ended(self, writers: Iterable[LoadProcess]) -> None:
        """Takes in the last words of a group."""
        for writer in writers:
            self.note(writer)
            self._sent = max([self._sent, *(event["step"] for event in writer.named("ending"))])

    def withdraw(self, epoch: int, after: int) -> None:
        """A group has begun ``epoch`` after this step (-1: anew)."""
        self._withdrawals.append((epoch, after))
        self._sent_ever = max(self._sent_ever, self._sent)
        self._sent = after

    def told(self) -> dict[int, int]:
        """Incarnation by step, of all steps that somebody knows to be committed and that were not withdrawn."""
        return {
            step: incarnation
            for (step, epoch), incarnation in sorted(self._commits.items(), key=lambda item: item[0][1])
            if not any(epoch < begun and step > after for begun, after in self._withdrawals)
        }

    def newest(self) -> int:
        """The newest such step, or -1."""
        return max(self.told(), default=-1)

    def check(self, instance: Instance, *, keeps_last: int | None = None) -> dict[int, int]:
        """Reads all that is kept and compares; the stream must be at rest.

        ``keeps_last``: retention may have dropped all but so many. Returns the incarnation of each kept step.
        """
        told = self.told()
        kept = instance.check(self.address)
        numbers = sorted(kept)
        newest_told = max(told, default=-1)
        newest = numbers[-1] if numbers else -1
        assert numbers == list(range(newest - len(numbers) + 1, newest + 1)), f"holes among the kept steps: {numbers}"
        assert newest >= newest_told, f"step {newest_told} was committed and is lost; the newest is {newest}"
        assert newest <= max(self._sent, newest_told), f"step {newest} appeared, which nobody has ended"
        if keeps_last is None:
            assert not numbers or numbers[0] == 0, f"steps before {numbers[0]} are gone, although all are to be kept"
        else:
            # What was dropped before a withdrawal does not come back.
            reached = max(newest, self._sent_ever)
            oldest_due = max(0, reached - keeps_last + 1)
            if oldest_due <= newest:
                assert numbers[0] <= oldest_due, f"only {numbers} are kept of the last {keeps_last} up to {reached}"
        for step in numbers:
            assert kept[step] == told.get(step, kept[step]), f"step {step} is not of the incarnation that was told"
        incarnations = [kept[step] for step in numbers]
        assert incarnations == sorted(incarnations), f"an older incarnation comes after a newer one: {kept}"
        return kept
