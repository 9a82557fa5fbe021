# SPDX-License-Identifier: Apache-2.0
"""A file that says what one driver remembers of a reservation: replaced as a whole, under a lock on its folder, and
owned by the newest incarnation that came.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import Field, asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from forebay.errors import CorruptError, NotFoundError, RefusedError
from forebay.workflows.staging.publication import write_whole

__all__ = ["STATE_NAME", "StateFile"]

STATE_NAME = "state"
_VERSION = 1


class _State(Protocol):
    incarnation: int
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_S = TypeVar("_S", bound=_State)


@dataclass(frozen=True, slots=True)
class StateFile(Generic[_S]):
    """How the state of one kind of driver is written."""

    format: str
    make: Callable[[dict[str, Any]], _S]  #: from the document's fields
    what: str  #: it is the state of, for errors
    missing: str  #: what is said where nothing was prepared

    def read(self, folder: Path, incarnation: int) -> _S:
        """The state, which from now on belongs to this incarnation.

        Raises
        ------
        NotFoundError
            Nothing was prepared here.
        RefusedError
            A newer incarnation was here: whoever asks has been replaced.
        CorruptError
            It is no state.
        """
        state = self.peek(folder / STATE_NAME)
        if state.incarnation > incarnation:
            raise RefusedError("a newer manager has taken over; this operation does nothing", str(folder))
        if state.incarnation < incarnation:
            state.incarnation = incarnation
            self.write(folder, state)
        return state

    def peek(self, path: Path) -> _S:
        """As it stands there, whoever's; raises NotFoundError and CorruptError as `read`."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if (fields.pop("format"), fields.pop("version")) != (self.format, _VERSION):
                raise ValueError("of another version")
            return self.make(fields)
        except FileNotFoundError:
            raise NotFoundError(self.missing, str(path.parent)) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptError(f"this is no state of {self.what} ({error})", str(path)) from None

    def write(self, folder: Path, state: _S) -> None:
        """Replaces it; durable, and root's alone."""
        document = {"format": self.format, "version": _VERSION, **asdict(state)}
        write_whole(folder / STATE_NAME, json.dumps(document, indent=1) + "\n", mode=0o600)
