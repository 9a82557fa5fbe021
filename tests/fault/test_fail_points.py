# SPDX-License-Identifier: Apache-2.0
"""The server dies at each of its named places: what survives is what clients were told."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from forebay import Admin
from forebay.errors import DisconnectedError
from tests.fault.instance import Instance
from tests.fault.promises import Ledger
from tests.support.load import until, write

Instances = Callable[..., Instance]

STEPS = 12


@pytest.mark.parametrize("durability", ["committed", "durable"])
@pytest.mark.parametrize(
    "place",
    [
        "server.part.received",
        "server.commit.before_append",
        "server.commit.after_append",
        "server.commit.before_answer",
        "server.flush.before_sync",
        "server.flush.before_journal_sync",
        "server.flush.after_journal_sync",
        "server.deliver.before_answer",
    ],
)
# crash-matrix: committing a step | server, between the parts of two ranks, at `server.part.received` | writers and readers go on after the restart; each step is there once, and each reader gets it once
# crash-matrix: committing a step | server, before the commit record, at `server.commit.before_append` | writers and readers go on after the restart; each step is there once, and each reader gets it once
# crash-matrix: committing a step | server, after the commit record, not synced, at `server.commit.after_append` | writers and readers go on after the restart; each step is there once, and each reader gets it once
# crash-matrix: committing a step | server, before the writers' answer, at `server.commit.before_answer` | writers and readers go on after the restart; each step is there once, and each reader gets it once
# crash-matrix: committing a step | server, before a reader is given it, at `server.deliver.before_answer` | writers and readers go on after the restart; each step is there once, and each reader gets it once
# crash-matrix: making steps durable | server, before the data is synced, at `server.flush.before_sync` | writers and readers go on after the restart; each step is there once, and each reader gets it once
# crash-matrix: making steps durable | server, between the syncs of data and journal, at `server.flush.before_journal_sync` | writers and readers go on after the restart; each step is there once, and each reader gets it once
# crash-matrix: making steps durable | server, after the sync, before the answer, at `server.flush.after_journal_sync` | writers and readers go on after the restart; each step is there once, and each reader gets it once
def test_steps_under_way_are_taken_up_again(
    instances: Instances, chance: random.Random, place: str, durability: str
) -> None:
    """Writers and readers ride the crash out: each step is there once, and each reader gets each step once."""
    instance = instances(flush_interval_ms=20)
    instance.create("r", "64MiB")
    instance.kill()
    # Without anybody who waits for it, one flush takes in several steps: how many there will be is not known.
    hits_max = 2 if place.startswith("server.flush") and durability == "committed" else STEPS - 2
    count = chance.randint(1, hits_max)
    if place == "server.part.received":
        count = 2 * (count // 2 + 1)  # the second part of a step: the other rank's is there
    instance.start(f"{place}:{count}=kill")
    ledger = Ledger("r/flow")
    follower = instance.follow(ledger.address, start="oldest", hold=2)
    writers = instance.group(
        ledger.address, 2, steps=STEPS, durability=durability, readers=1, elements=2000, pause_us=20_000
    )
    assert instance.wait() == -signal.SIGKILL
    instance.start()
    for writer in writers:
        events = writer.succeed()
        assert [event["step"] for event in events if event["event"] == "committed"] == list(range(STEPS))
    assert follower.succeed()[-1]["event"] == "released"
    assert [event["step"] for event in follower.named("step")] == list(range(STEPS))
    assert follower.named("end")[0]["status"] == "ended"
    ledger.note_ended(writers)
    assert sorted(ledger.check(instance)) == list(range(STEPS))
    assert instance.problems() == []


# crash-matrix: making steps durable | server, when a step is committed, but not durable, at `server.commit.before_answer` | the part that is sent again is answered when the step is durable
def test_durable_means_durable_also_for_a_step_sent_again(instances: Instances) -> None:
    """A part that is sent again after a crash is answered when its step is durable, not when it is found committed."""
    instance = instances(flush_interval_ms=-1)
    instance.create("r", "64MiB")
    instance.restart("server.commit.before_answer=kill")
    (writer,) = instance.group("r/flow", 1, steps=1, durability="durable")
    assert instance.wait() == -signal.SIGKILL
    # It finds the step committed, and dies before it could make it durable.
    instance.start("server.flush.before_sync=kill")
    assert instance.wait() == -signal.SIGKILL
    assert not writer.named("committed")
    instance.start()
    writer.wait_for("committed")
    assert instance.stream("r/flow").durable == 0


# crash-matrix: committing a step | server, after the commit record, in the middle of another record | the step, once, to its writer and to readers; the torn record goes
def test_a_torn_record_behind_a_commit_costs_the_commit_nothing(instances: Instances) -> None:
    """The writer comes back and says that it holds the space of the step, which has committed."""
    instance = instances()
    instance.create("r", "64MiB")
    instance.restart("server.commit.after_append=kill")
    (writer,) = instance.group("r/flow", 1, steps=5)
    assert instance.wait() == -signal.SIGKILL
    (journal,) = instance.root.glob("reservations/*/streams/flow/journal.*")
    used = len(journal.read_bytes().rstrip(b"\0"))
    with journal.open("r+b") as file:
        # Behind the padding of the last record.
        file.seek(used + 64)
        file.write(b"torn")
    instance.start()
    events = writer.succeed()
    assert [event["step"] for event in events if event["event"] == "committed"] == list(range(5))
    assert sorted(instance.check("r/flow")) == list(range(5))
    assert instance.problems() == []


@pytest.mark.parametrize("place", ["server.withdraw.after_append", "server.form.before_group"])
# crash-matrix: appending after an earlier step | server, before the record, at `server.form.before_group` | the steps up to there; the group forms after the restart
# crash-matrix: appending after an earlier step | server, after the record, at `server.withdraw.after_append` | the steps up to there; the group forms after the restart, which nobody had been told of
def test_a_group_that_the_crash_kept_from_forming_forms_after_it(instances: Instances, place: str) -> None:
    """Appending after an earlier step, cut off while the group forms: it rides that out, formed or not."""
    instance = instances()
    instance.create("r", "64MiB")
    ledger = Ledger("r/flow")
    for writer in instance.group(ledger.address, 2, steps=10):
        writer.succeed()
        ledger.note(writer)
    instance.restart(f"{place}=kill")
    second = [
        instance.write(ledger.address, rank=rank, ranks=2, mode="a", append_after=4, steps=3) for rank in range(2)
    ]
    assert instance.wait() == -signal.SIGKILL
    instance.start()
    ledger.withdraw(2, 4)
    for writer in second:
        writer.succeed()
        assert writer.named("opened")[0]["next"] == 5
    ledger.note_ended(second)
    assert sorted(ledger.check(instance)) == list(range(8))
    assert instance.problems() == []


@pytest.mark.parametrize("place", ["server.form.before_group", "server.withdraw.after_append"])
# crash-matrix: replacing a stream | server, before the record, at `server.form.before_group` | the old steps, whole; then the replacement goes on
# crash-matrix: replacing a stream | server, after the record, at `server.withdraw.after_append` | an empty stream of the next epoch; then the group goes on
def test_a_replacement_forms_and_withdraws_at_once_or_not_at_all(instances: Instances, place: str) -> None:
    """Mode w replaces the stream by the record that forms the new group: before it the old steps stand, then none."""
    instance = instances()
    instance.create("r", "64MiB")
    ledger = Ledger("r/flow")
    for writer in instance.group(ledger.address, 1, steps=5):
        writer.succeed()
        ledger.note(writer)
    instance.restart(f"{place}=kill")
    writer = instance.write(ledger.address, mode="w", steps=0, commands=True)
    assert instance.wait() == -signal.SIGKILL
    # Before it hears of a server again.
    writer.send(signal.SIGSTOP)
    instance.start()
    if place == "server.form.before_group":
        assert sorted(ledger.check(instance)) == list(range(5))
    else:
        assert instance.check(ledger.address) == {}
        assert instance.stream(ledger.address).epoch == 2
    writer.send(signal.SIGCONT)
    assert writer.wait_for("opened")["next"] == 0
    assert instance.stream(ledger.address).epoch == 2
    writer.ask("step", "committed")
    writer.ask("close", "closed")
    assert sorted(instance.check(ledger.address)) == [0]
    assert instance.problems() == []


# crash-matrix: dropping steps | server, after the record, at `server.drop.after_append` | the steps that retention keeps, whole; the writer goes on
def test_dropped_steps_stay_dropped_or_whole(instances: Instances, chance: random.Random) -> None:
    """Killed right behind the record of a drop: the steps that are left are whole, and writing goes on."""
    instance = instances(flush_interval_ms=20)
    instance.create("r", "64MiB")
    instance.kill()
    instance.start(f"server.drop.after_append:{chance.randint(1, 30)}=kill")
    ledger = Ledger("r/flow")
    (writer,) = instance.group(ledger.address, 1, retention="last:3", steps=60, elements=100_000, pause_us=5_000)
    assert instance.wait() == -signal.SIGKILL
    instance.start()
    writer.succeed()
    ledger.note_ended([writer])
    assert len(ledger.check(instance, keeps_last=3)) == 3
    assert instance.problems() == []


# crash-matrix: recovering | server, when it has read a journal, at `server.recover.after_replay`, three times | the next start finds the same; writers go on
def test_recovery_can_itself_be_cut_off(instance: Instance) -> None:
    """A server that dies while it reads the journals finds the same at the next start."""
    ledger = Ledger("r/flow")
    (writer,) = instance.group(ledger.address, 1, steps=0, pause_us=10_000)
    writer.wait_for("committed", lambda event: event["step"] >= 5)
    instance.kill()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            instance.start("server.recover.after_replay=kill")
    instance.start()
    writer.wait_for("committed", after=writer.count())
    writer.kill()
    ledger.note_ended([writer])
    ledger.check(instance)
    assert instance.problems() == []


# crash-matrix: losing a rank | a rank, and the server while it breaks the group, at `server.group.breaking` | the committed steps; after the restart the others are told, the stream is interrupted, and readers get its end
def test_a_group_that_breaks_while_the_server_dies_is_interrupted(instances: Instances) -> None:
    """The loss of a rank is learnt again after the restart, when it does not come back."""
    instance = instances(restart_grace_ms=1000)
    instance.create("r", "64MiB")
    instance.kill()
    instance.start("server.group.breaking=kill")
    ledger = Ledger("r/flow")
    follower = instance.follow(ledger.address, start="oldest")
    lost, left = instance.group(ledger.address, 2, steps=0, pause_us=5_000, grace_ms=100, readers=1)
    left.wait_for("committed", lambda event: event["step"] >= 3)
    lost.kill()
    assert instance.wait() == -signal.SIGKILL
    instance.start()
    assert "rank 0 of 2 did not come back" in left.fail("group_broken")["what"]
    assert follower.succeed()
    assert follower.named("end")[0]["status"] == "interrupted"
    ledger.note_ended([lost, left])
    ledger.check(instance)
    stream = instance.stream(ledger.address)
    assert stream.status == "interrupted"
    assert not stream.step_open
    assert instance.problems() == []


# crash-matrix: committing a step | a rank, its data written, before its part is sent, at `client.part.before_send` | the steps before; the other rank is told; a new group goes on there
def test_a_rank_that_dies_before_its_part_is_sent_leaves_no_step(instance: Instance) -> None:
    """All its data lies in the segments, and the other rank has sent its part: without the part there is no step."""
    ledger = Ledger("r/flow")
    environment = {**instance.environment, "FOREBAY_FAIL_POINT": "client.part.before_send:3=kill"}
    with write(environment, ledger.address, rank=0, ranks=2, steps=STEPS) as lost:
        left = instance.write(ledger.address, rank=1, ranks=2, steps=STEPS)
        assert lost.finish() == -signal.SIGKILL
        assert "rank 0 of 2" in left.fail("group_broken")["what"]
        ledger.note_ended([lost, left])
    assert sorted(ledger.check(instance)) == [0, 1]
    again = instance.group(ledger.address, 2, mode="a", steps=2)
    for writer in again:
        assert writer.succeed()
        assert [event["step"] for event in writer.named("committed")] == [2, 3]
    ledger.note_ended(again)
    assert sorted(ledger.check(instance)) == [0, 1, 2, 3]
    assert instance.problems() == []


# crash-matrix: ending a stream | server, after the record of the end, at `server.close.before_answer` | the stream has ended; writer and readers are told so
def test_a_close_that_was_not_answered_has_ended_the_stream(instances: Instances) -> None:
    """Killed between the record of the end and its answer: the writer asks again and is told."""
    instance = instances()
    instance.create("r", "64MiB")
    instance.kill()
    instance.start("server.close.before_answer=kill")
    ledger = Ledger("r/flow")
    follower = instance.follow(ledger.address, start="oldest")
    (writer,) = instance.group(ledger.address, 1, steps=STEPS, readers=1)
    assert instance.wait() == -signal.SIGKILL
    instance.start()
    writer.succeed()
    follower.succeed()
    assert follower.named("end")[0]["status"] == "ended"
    assert instance.stream(ledger.address).status == "ended"
    ledger.note_ended([writer])
    assert sorted(ledger.check(instance)) == list(range(STEPS))
    assert instance.problems() == []


# crash-matrix: making a stream | server, between its folder and its journal, at `server.stream.before_journal` | nothing; it can be made anew
def test_a_stream_without_a_journal_was_never_made(instances: Instances) -> None:
    """Killed between the stream's folder and its journal: nobody was told of it, and it can be made anew."""
    instance = instances()
    instance.create("r", "64MiB")
    instance.kill()
    instance.start("server.stream.before_journal=kill")
    ledger = Ledger("r/flow")
    writer = instance.write(ledger.address, steps=STEPS)
    assert instance.wait() == -signal.SIGKILL
    writer.send(signal.SIGSTOP)
    instance.start()
    with instance.admin() as admin:
        assert admin.streams("r") == []
    assert instance.problems() == []
    writer.send(signal.SIGCONT)
    writer.succeed()
    ledger.note_ended([writer])
    assert sorted(ledger.check(instance)) == list(range(STEPS))


@pytest.mark.parametrize("place", ["server.roll.before", "server.roll.after"])
# crash-matrix: rolling the journal | server, before a new file begins, at `server.roll.before` | everything; the writer goes on
# crash-matrix: rolling the journal | server, when the new file is in use, at `server.roll.after` | everything; the writer goes on
def test_a_journal_that_is_rolled_loses_nothing(instances: Instances, place: str) -> None:
    """Small steps that come and go make the journal grow until it begins a new file with a checkpoint."""
    instance = instances(flush_interval_ms=20)
    instance.create("r", "16MiB")
    instance.kill()
    instance.start(f"{place}=kill")
    ledger = Ledger("r/flow")
    (writer,) = instance.group(ledger.address, 1, retention="last:5", steps=0, elements=10)
    assert instance.wait(90) == -signal.SIGKILL
    instance.start()
    writer.wait_for("committed", after=writer.count())
    writer.kill()
    ledger.note_ended([writer])
    until(lambda: instance.stream(ledger.address).status == "interrupted", "the writer is gone")
    ledger.check(instance, keeps_last=5)
    instance.check_disk_use("r")
    assert instance.problems() == []


# crash-matrix: creating a reservation | server, when it is whole on disk, at `server.reservation.created` | the reservation; creating it again succeeds
def test_a_creation_that_was_not_answered_can_be_asked_for_again(instances: Instances) -> None:
    """It is there after the restart, once."""
    instance = instances()
    instance.restart("server.reservation.created=kill")
    with instance.admin() as admin, pytest.raises(DisconnectedError):
        admin.create("r", "64MiB")
    assert instance.wait() == -signal.SIGKILL
    instance.start()
    with instance.admin() as admin:
        assert [info.name for info in admin.reservations()] == ["r"]
        admin.create("r", "64MiB")
        assert admin.server().reserved_bytes == admin.reservation("r").capacity_bytes
    assert instance.problems() == []


@pytest.mark.parametrize("place", ["server.reservation.retired", "server.stream.retired"])
# crash-matrix: destroying a reservation | server, when it lies in quarantine, at `server.reservation.retired` | nothing; its space is free, and destroying it again succeeds
# crash-matrix: removing a stream | server, when it lies in quarantine, at `server.stream.retired` | the other streams; its space is free, and removing it again succeeds
def test_a_removal_that_was_not_answered_is_done(instances: Instances, place: str) -> None:
    """What was removed is gone from disk too, soon after the restart."""
    instance = instances()
    for name in ("r", "other"):
        instance.create(name, "64MiB")
    ledger = Ledger("r/flow")
    for address in (ledger.address, "r/gone", "other/gone"):
        (writer,) = instance.group(address, 1, steps=3)
        writer.succeed()
        if address == ledger.address:
            ledger.note_ended([writer])
    instance.restart(f"{place}=kill")

    def remove(admin: Admin) -> None:
        if place == "server.stream.retired":
            admin.remove_stream("r/gone")
        else:
            admin.destroy("other")

    with instance.admin() as admin, pytest.raises(DisconnectedError):
        remove(admin)
    assert instance.wait() == -signal.SIGKILL
    instance.start()
    with instance.admin() as admin:
        remove(admin)
        assert [info.name for info in admin.streams("r")][:1] == ["flow"]
        assert len(admin.reservations()) + len(admin.streams("r")) == 3
    until(lambda: not list((instance.root / "quarantine").iterdir()), "the quarantine is empty")
    assert sorted(ledger.check(instance)) == [0, 1, 2]
    assert instance.problems() == []


# crash-matrix: forming a group | server, after the record, before the ranks are told; then another program opens the stream | the group that had formed; the other program is turned away
def test_a_group_that_was_not_told_keeps_its_place(instances: Instances) -> None:
    """It is known by its Open, not by its name: another program of the same name does not get its place."""
    instance = instances()
    instance.create("r", "64MiB")
    instance.restart("server.record.after_append=kill")
    ledger = Ledger("r/flow")
    # They write until the others were answered: one that came when they have ended would wait for a group.
    writers = [instance.write(ledger.address, rank=rank, ranks=2, steps=0, pause_us=10_000) for rank in range(2)]
    assert instance.wait() == -signal.SIGKILL
    for writer in writers:
        writer.send(signal.SIGSTOP)
    instance.start()
    others = [instance.write(ledger.address, rank=rank, ranks=2, steps=1) for rank in range(2)]
    for other in others:
        other.wait_for("opening")
    for writer in writers:
        writer.send(signal.SIGCONT)
    for other in others:
        other.fail("busy")
    for writer in writers:
        writer.wait_for("committed")
        assert writer.named("opened")[0]["incarnation"] == 1
    for writer in writers:
        writer.kill()
    until(lambda: instance.stream(ledger.address).status == "interrupted", "the writers are gone")
    ledger.note_ended(writers)
    assert set(ledger.check(instance).values()) == {1}
    assert instance.problems() == []
