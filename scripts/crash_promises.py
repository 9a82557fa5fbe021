# SPDX-License-Identifier: Apache-2.0
"""What docs/crash-matrix.md promises, in the words of a user, and which operations of the tests try each promise."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["INTRODUCTION", "OTHER", "PROMISES", "Promise", "promise_of"]

INTRODUCTION = """# What survives

This page says what is left when something fails, whatever it is and whenever. First comes what is promised; then, for
each promise, the failures that the tests cause, and the test that causes each.

| who fails | what is left, and what happens next |
|---|---|
| a producer's rank, at any moment | all committed steps. The open step does not exist. The other ranks' next call fails; readers are told and wait for a restart as long as the stream says |
| a consumer | its cursor. The next process of that name continues there; a step that was not finished is given again. The writer notices nothing |
| the staging server | all committed steps, cursors and pins. Clients wait, reconnect when it is back, and continue |
| the manager | what was asked for. A reservation that was being created or destroyed is created or destroyed; stages are taken up where they were |
| a stage-out, or its destination | what is finished, verified. The same command does the rest. An unfinished output never appears under its name |
| the machine (power, kernel) | all durable steps, perhaps more; never a torn step |
| the disk: full | all steps. The call that needs space fails and says who holds the space; destroying still works |
| the disk: I/O errors, failed syncs | what was durable. The stream says `failed`; a failed sync is never retried as success |
| the disk: flipped bits | every other step. Reading the damaged one is an error, not wrong data, where checksums are on |

## How to read the rows

A row names who fails and where, what survives, the test, and when the test runs:

- *always*: by every `./run test`.
- *by share*: the test starts an instance of its own. Every `./run test` runs a fifth of these, which the seed chooses;
  three seeds in a row, `./run test integration fault` and `./run test all` run them all.
- *by stride*: the test sweeps over all operations of a disk, all messages, records or changes. Every `./run test` tries
  at least one in 32 of these points, and of the tests of `tests/fault` that sweep one in four; the seed chooses. The
  shards of `./run test deep` try all points, and `./run test sweeps` tries them all at once.
- *in a shard*: by a shard of `./run test deep`, and by `./run test all`.

"Killed" means SIGKILL; "before" and "after" mean just before and just after. [Concepts](concepts/index.md) explains
incarnation, epoch and pin; [the journal's format](formats/journal.md) explains a roll. Names such as
`server.commit.before_append` are fail points: places in the code where `FOREBAY_FAIL_POINT=NAME[:COUNT]=kill` ends the
process at the COUNT-th passing. Tests at random moments print their seed; `FOREBAY_TEST_SEED` replays it, and
`FOREBAY_TEST_COUNT` sets how many there are. A test that needs root, such as those of full disks, says so when it is
skipped.

The page is made from comments in the tests by `scripts/crash_matrix.py --write`; `./run check` compares them.
"""


@dataclass(frozen=True)
class Promise:
    """A promise, and a pattern that the operations match whose rows try it."""

    title: str
    text: str
    operations: str


PROMISES = (
    Promise(
        "Steps are whole",
        "A reader never sees half a step. A step is there for all ranks and readers, or for none, whoever dies and when. A "
        "restart takes back what it names and nothing else.",
        r"a step of two|answering|committing|put of|ending a stream|forming|losing a rank|appending after|withdrawal|replacing|"
        r"making a stream|removing a stream|dropping|writing",
    ),
    Promise(
        "What is durable survives power loss",
        "After a loss of power a stream is its durable steps or more, in order, each as it was written. Nobody was told that a "
        "step is durable before it was.",
        r"making steps durable|sync of|power loss|recover|append, sync, roll|rolling|.*power is lost|.*loss of power",
    ),
    Promise(
        "A full or failing disk costs no committed step",
        "An operation that the disk refuses is an error that says so. What was committed before stays, and work continues as "
        "soon as the disk does.",
        r".*of the disk fails|the disk is full|waiting for space|making room|no memory",
    ),
    Promise(
        "Damage is noticed",
        "Flipped bits and lost ends are reported where they are. They cost the step or the stream that they hit, no other.",
        r"a bit flips|a journal that lost|the table of pins|the manager's database",
    ),
    Promise(
        "Readers keep what they hold, and their place",
        "What a reader has pinned stays as it is until it lets go, over every death and restart. A named consumer is given "
        "every kept step, whole.",
        r"holding|dask|map_steps",
    ),
    Promise(
        "Creating, destroying and staging can be repeated",
        "Whatever dies on the way, the same command finishes the work. What stage-out calls finished matches its checksums.",
        r"create|creating|destroying|stages|starting the manager|the manager's work|forebay |the server's own files",
    ),
    Promise(
        "All at once",
        "Every message, record and request is cut off once, and everything fails together at random, against a model of what "
        "everybody was told.",
        r"any|every",
    ),
)

#: Where an operation goes that no promise names.
OTHER = Promise("Other operations", "Tried as well.", r"")


def promise_of(operation: str) -> Promise:
    """The promise that the rows of an operation try."""
    return next((promise for promise in PROMISES if re.match(promise.operations, operation, re.IGNORECASE)), OTHER)
