# SPDX-License-Identifier: Apache-2.0
"""One rank of a reader group as a process, which follows a stream a turn at a time, when it is told to."""

from __future__ import annotations

import json

from tests.support.processes import PythonProcess

__all__ = ["GroupReader"]

_PROGRAM = """
import json, sys, forebay

address, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
open_options, options = map(json.loads, sys.argv[4:])
try:
    stream = forebay.open(address, rank=rank, ranks=ranks, **{"group": "job-1"} | open_options)
    follower = stream.follow(**options)
except forebay.ForebayError as error:
    sys.exit(f"{type(error).__name__}: {error}")
print("open", stream.steps().numbers, flush=True)
for line in sys.stdin:
    try:
        step = next(follower)
        number, value = step.number, int(step["n"])
        if line == "release\\n":
            step.release()
        print("step", number, value, flush=True)
    except StopIteration:
        print("end", flush=True)
    except forebay.StepTimeoutError:
        print("not ready", flush=True)
    except forebay.ForebayError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
follower.close()
stream.close()
"""


class GroupReader(PythonProcess):
    """Prints ``open NUMBERS`` once its group is there; for each turn that it is told to ask for, what that brought."""

    def __init__(
        self,
        address: str,
        rank: int,
        ranks: int = 2,
        *,
        open_options: dict[str, object] | None = None,
        options: dict[str, object] | None = None,
    ) -> None:
        super().__init__(
            _PROGRAM, address, str(rank), str(ranks), json.dumps(open_options or {}), json.dumps(options or {})
        )

    def ask(self, *, release: bool = False) -> None:
        """For its next turn. ``release``: lets the step go at once."""
        self.tell("release" if release else "next")
