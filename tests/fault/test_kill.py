# SPDX-License-Identifier: Apache-2.0
"""kill -9 of anybody at random moments, many times in a row, under load."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from tests.fault.instance import Instance
from tests.fault.scene import Scene

Instances = Callable[..., Instance]

ACCIDENTS = ["rank", "rank", "follower", "consumer", "server", "server", "server and rank", "shutdown"]


def kill_something(instance: Instance, scenes: list[Scene], chance: random.Random) -> None:
    """One accident; afterwards everybody is at work again."""
    scene = chance.choice(scenes)
    accident = chance.choice(ACCIDENTS)
    print(f"{accident} ({scene.address}, {scene.ledger.newest()} steps)")
    if accident == "rank":
        scene.end_writers(chance)
        scene.restart_writers(chance)
    elif accident == "follower":
        scene.replace_follower()
    elif accident == "consumer":
        scene.replace_consumer()
    elif accident == "server":
        instance.restart()
    elif accident == "shutdown":
        assert instance.stop(signal.SIGTERM) == 0
        instance.start()
    else:
        instance.kill()
        lost = chance.choice(scene.writers)
        lost.kill()
        instance.start()
        # The others wait for the lost one until the grace time for restarts is over.
        for writer in scene.writers:
            if writer is not lost:
                writer.fail("group_broken")
        scene.ledger.note_ended(scene.writers)
        scene.restart_writers(chance)


@pytest.mark.timeout(900)
# crash-matrix: anything | ranks, readers, consumers and server, at random moments, one or together | every committed step that is to be kept, once, whole and in order; cursors
def test_promises_hold_whoever_is_killed(
    instances: Instances, chance: random.Random, rounds: Callable[[int], int]
) -> None:
    """Several streams and readers at once; the promises are checked in between and at the end."""
    instance = instances(restart_grace_ms=10_000)
    instance.create("r", "96MiB")
    scenes = [
        Scene(instance, "r/flow", ranks=2, retention="last:30", keeps_last=30, elements=20_000),
        Scene(instance, "r/probe", ranks=1, retention="last:5,consumers:render", keeps_last=5, elements=3_000),
    ]
    for _ in range(rounds(12)):
        kill_something(instance, scenes, chance)
        for scene in scenes:
            scene.go_on()
            for process in scene.processes():
                assert not process.named("violation"), f"{process}"
    instance.check_disk_use("r")
    for scene in scenes:
        kept = scene.rest()
        assert kept
    assert instance.problems() == []
    instance.restart()
    for scene in scenes:
        scene.ledger.check(instance, keeps_last=scene.keeps_last)
    assert instance.problems() == []
