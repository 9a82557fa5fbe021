# SPDX-License-Identifier: Apache-2.0
"""Numbers the names that appear in a folder, and says at each look which of them are to be taken now."""

from __future__ import annotations

from dataclasses import dataclass, field

from forebay.files.appearing_names import AppearingNames, SeenName
from forebay.files.follow_log import FollowLog
from forebay.files.name_choice import NameChoice

__all__ = ["ChosenNames", "Look"]


@dataclass(slots=True)
class Look:
    """What one look at the folder brought; the oldest modification first."""

    ready: list[SeenName] = field(default_factory=list)  #: chosen, complete, and no version that is done
    incomplete: list[SeenName] = field(default_factory=list)  #: chosen, and not complete yet
    ended_by: str = ""  #: a name that ends the following
    refused: str = ""  #: a name that matches, and is neither file nor folder


class ChosenNames:
    """What the log remembers decides. Used by one thread at a time."""

    def __init__(self, names: AppearingNames, choice: NameChoice, log: FollowLog) -> None:
        self._names = names
        self._choice = choice
        self._log = log

    def look(self) -> Look:
        """Looks at the whole folder; what has appeared gets its number, durably.

        Raises
        ------
        NotFoundError, RefusedError, InvalidArgumentError, PermissionDeniedError
            See `AppearingNames.scan`.
        """
        scan = self._names.scan()
        self._log.add_names(seen.name for seen in scan.names)
        there = {seen.name for seen in scan.names}
        for name in self._log.names:
            if name not in there and self._is_chosen(name) and not self._log.versions(name):
                self._log.add_missed(name)
        look = Look(ended_by=scan.ended_by, refused=scan.refused)
        for seen in scan.names:
            if self._is_chosen(seen.name) and self._log.done_version(seen.name) != seen.version:
                (look.ready if seen.is_complete else look.incomplete).append(seen)
        return look

    def _is_chosen(self, name: str) -> bool:
        number = self._log.number(name)
        return number is not None and self._choice.is_chosen(name, number)
