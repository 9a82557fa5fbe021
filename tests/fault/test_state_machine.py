# SPDX-License-Identifier: Apache-2.0
"""A Hypothesis state machine of reservations, streams, steps, cursors and crashes against the real daemon."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import forebay
from tests.fault.instance import Instance
from tests.fault.stream_model import FollowerModel, HeldStep, StreamModel
from tests.support.load import until
from tests.support.randomness import TEST_SEED, times
from tests.support.time_limits import seconds

RESERVATIONS = ("r1", "r2")
STREAMS = ("flow", "probe")
CONSUMERS = ("", "render", "plot")
#: Elements of a step's array; some of them fill whole segments' worth of pages, some share a page.
SIZES = (1, 700, 40_000)


class Staging(RuleBasedStateMachine):
    """The real system and its model, side by side. All clients live in the test's process."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="forebay-machine-")
        self.environment = pytest.MonkeyPatch()
        self.instance = Instance(Path(self.folder.name) / "root", flush_interval_ms=50)
        self.instance.start()
        self.environment.setenv("FOREBAY_ROOT", str(self.instance.root))
        self.streams: dict[str, StreamModel] = {}
        self.reservations: set[str] = set()
        self.values = 0

    def teardown(self) -> None:
        for stream in self.streams.values():
            self.leave(stream)
        self.instance.stop()
        self.environment.undo()
        self.folder.cleanup()

    # What the rules choose from

    def named(self, data: st.DataObject, *, writing: bool | None = None) -> StreamModel | None:
        """One of the streams, with or without a writer."""
        found = [model for model in self.streams.values() if writing is None or (model.writer is not None) == writing]
        return data.draw(st.sampled_from(found), label="stream") if found else None

    def follower(self, data: st.DataObject) -> tuple[StreamModel, FollowerModel] | None:
        """One of the followers, with its stream."""
        found = [(stream, follower) for stream in self.streams.values() for follower in stream.followers]
        return data.draw(st.sampled_from(found), label="follower") if found else None

    def part(self, stream: StreamModel, follower: FollowerModel) -> None:
        """A follower lets go of all and leaves."""
        follower.held.clear()
        follower.given = None
        follower.follower.close()
        stream.followers.remove(follower)

    def leave(self, stream: StreamModel) -> None:
        """All clients of a stream let go of it."""
        for follower in list(stream.followers):
            self.part(stream, follower)
        if stream.writer is not None:
            stream.writer.abandon()
            stream.writer = None

    def has_writer(self) -> bool:
        """Is any stream being written?"""
        return any(stream.writer is not None for stream in self.streams.values())

    def has_follower(self) -> bool:
        """Is any stream being followed?"""
        return any(stream.followers for stream in self.streams.values())

    # Reservations

    @initialize()
    def begin(self) -> None:
        """Most runs need one."""
        self.create(RESERVATIONS[0])

    @rule(name=st.sampled_from(RESERVATIONS))
    def create(self, name: str) -> None:
        """Made, or there already: the same answer."""
        with self.instance.admin() as admin:
            assert admin.create(name, "64MiB").name == name
        self.reservations.add(name)

    @precondition(lambda self: self.reservations)
    @rule(data=st.data())
    def destroy(self, data: st.DataObject) -> None:
        """Refused while somebody writes; with force all of it goes."""
        name = data.draw(st.sampled_from(sorted(self.reservations)))
        mine = [stream for address, stream in self.streams.items() if address.startswith(f"{name}/")]
        with self.instance.admin() as admin:
            if any(stream.writer is not None for stream in mine):
                with pytest.raises(forebay.RefusedError):
                    admin.destroy(name)
            admin.destroy(name, force=True)
            admin.destroy(name)
        for stream in mine:
            for follower in stream.followers:
                follower.held.clear()
            self.leave(stream)
            del self.streams[stream.address]
        self.reservations.discard(name)

    # Writers

    @precondition(lambda self: self.reservations)
    @rule(data=st.data(), stream=st.sampled_from(STREAMS), mode=st.sampled_from(["w", "a", "a", "after"]))
    def open_writer(self, data: st.DataObject, stream: str, mode: str) -> None:
        """Replaces, goes on, or goes on after an earlier step; a second writer is turned away."""
        address = f"{data.draw(st.sampled_from(sorted(self.reservations)))}/{stream}"
        model = self.streams.setdefault(address, StreamModel(address))
        last = data.draw(st.sampled_from([None, 1, 3]), label="retention last")
        options = {"retention": None if last is None else f"last:{last}", "rank": 0, "ranks": 1}
        if model.writer is not None:
            # After a restart the server waits for the writer that it knows, which comes back with its next call.
            with pytest.raises((forebay.BusyError, forebay.DeadlineExceededError)):
                forebay.open(address, mode="a", rank=0, ranks=1, timeout=0.2)
            return
        after = None
        if mode == "w":
            after = -1
        elif mode == "after" and model.next_step > 0:
            after = data.draw(st.integers(0, model.next_step - 1), label="append after")
            options["append_after"] = after
        writer = forebay.open(address, mode="w" if mode == "w" else "a", **options)  # type: ignore[call-overload]
        model.begin_group(writer, after=after, last=last)
        assert (writer.next_step, writer.epoch) == (model.next_step, model.epoch)

    @precondition(lambda self: self.has_writer())
    @rule(data=st.data(), size=st.sampled_from(SIZES), steps=st.integers(1, 4))
    def write(self, data: st.DataObject, size: int, steps: int) -> None:
        """Some steps, each full of a number of its own."""
        model = self.named(data, writing=True)
        if model is None:
            return
        assert model.writer is not None
        for _ in range(steps):
            self.values += 1
            with model.writer.step() as step:
                step["T"] = np.full(size, self.values)
            model.commit(self.values)

    @precondition(lambda self: self.has_writer())
    @rule(data=st.data(), size=st.sampled_from(SIZES))
    def abort(self, data: st.DataObject, size: int) -> None:
        """A step that is given up leaves nothing."""
        model = self.named(data, writing=True)
        if model is None:
            return
        assert model.writer is not None
        step = model.writer.step()
        step["T"] = np.full(size, -1)
        step.abort()

    @precondition(lambda self: self.has_writer())
    @rule(data=st.data(), cleanly=st.booleans())
    def end_writer(self, data: st.DataObject, cleanly: bool) -> None:
        """Closes, or is lost."""
        model = self.named(data, writing=True)
        if model is None:
            return
        assert model.writer is not None
        if cleanly:
            model.writer.close()
        else:
            # After a restart the server gives a writer that it has not seen time to come back: so it calls before.
            model.writer.step().abort()
            model.writer.step()["T"] = np.zeros(1)
            model.writer.abandon()
            until(lambda: self.instance.stream(model.address).status == "interrupted", "the writer's loss is noticed")
        model.end_group("ended" if cleanly else "interrupted")

    # Readers

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), consumer=st.sampled_from(CONSUMERS))
    def follow(self, data: st.DataObject, consumer: str) -> None:
        """One holder for each name; after a restart the first that calls."""
        model = self.named(data)
        if model is None or len(model.followers) >= 3:
            return
        stream = forebay.open(model.address)
        holder = next((found for found in model.followers if consumer and found.consumer == consumer), None)
        if holder is not None and holder.known:
            with pytest.raises(forebay.BusyError):
                stream.follow(consumer)
            return
        model.follow(stream.follow(consumer, timeout=seconds(60), ack="manual"), consumer)
        if holder is not None:
            with pytest.raises(forebay.BusyError):
                holder.follower.seek(holder.position)
            self.part(model, holder)
            self.settle(model)

    @precondition(lambda self: self.has_follower())
    @rule(data=st.data(), hold=st.booleans())
    def next_step(self, data: st.DataObject, hold: bool) -> None:
        """The step that is due, with its content; kept with a view or let go."""
        chosen = self.follower(data)
        if chosen is None:
            return
        stream, follower = chosen
        due = stream.due(follower.position)
        if due is None:
            return
        step = next(follower.follower)
        follower.known = True
        expected = stream.steps[due]
        assert (step.number, step.epoch) == (due, expected.epoch)
        view = step["T"][...]
        assert np.all(view == expected.value)
        follower.position = due + 1
        follower.given = step
        if hold and step.pinned:
            follower.held.append(HeldStep(step, view, expected.value))
        self.settle(stream)

    @precondition(lambda self: self.has_follower())
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """Only of the stream as it is now: what was withdrawn says nothing about what replaces it."""
        chosen = self.follower(data)
        if chosen is None or chosen[1].given is None or not chosen[1].consumer:
            return
        stream, follower = chosen
        assert follower.given is not None
        follower.follower.ack(follower.given)
        follower.known = True
        number, epoch = follower.given.number, follower.given.epoch
        known = stream.steps.get(number)
        withdrawn = number >= stream.next_step or (known is not None and known.epoch != epoch)
        if not withdrawn and (known is not None or epoch == stream.epoch):
            stream.cursors[follower.consumer] = max(stream.cursors[follower.consumer], number + 1)
        else:
            stream.cursors[follower.consumer] = self.cursor(stream, follower.consumer)

    def cursor(self, stream: StreamModel, consumer: str) -> int:
        """Where the server has it: for acknowledgements whose step is too old to be sure of."""
        position = next(
            found.position for found in self.instance.stream(stream.address).consumers if found.name == consumer
        )
        assert stream.cursors[consumer] <= position <= stream.next_step
        return position

    @precondition(lambda self: self.has_follower())
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        """Anywhere that exists."""
        chosen = self.follower(data)
        if chosen is None:
            return
        stream, follower = chosen
        follower.position = data.draw(st.integers(0, stream.next_step), label="seek to")
        follower.follower.seek(follower.position)
        follower.known = True
        if follower.consumer:
            stream.cursors[follower.consumer] = follower.position

    @precondition(lambda self: self.has_follower())
    @rule(data=st.data(), everything=st.booleans())
    def let_go(self, data: st.DataObject, everything: bool) -> None:
        """Of the oldest view, or of everything by leaving."""
        chosen = self.follower(data)
        if chosen is None:
            return
        stream, follower = chosen
        follower.given = None
        if everything:
            self.part(stream, follower)
        elif follower.held:
            follower.held.pop(0)
        self.settle(stream)

    def settle(self, stream: StreamModel) -> None:
        """Retention drops what was let go of once the server has read that; until then others may still get it."""
        stream.retain()
        with self.instance.admin() as admin:
            until(
                lambda: {step.number for step in admin.steps(stream.address)} <= stream.steps.keys(),
                "released steps are dropped",
            )

    # Crashes

    @rule(sent=st.sampled_from([signal.SIGKILL, signal.SIGTERM]))
    def restart(self, sent: signal.Signals) -> None:
        """Writers and followers come back by themselves."""
        self.instance.stop(sent)
        self.instance.start()
        for stream in self.streams.values():
            for follower in stream.followers:
                follower.known = False

    # What holds all the time

    @invariant()
    def views_do_not_change(self) -> None:
        """Whatever happened since."""
        for stream in self.streams.values():
            for follower in stream.followers:
                for held in follower.held:
                    held.check()

    @rule()
    def compare_everything(self) -> None:
        """The steps that are kept, their content, the states, the cursors, the space."""
        with self.instance.admin() as admin:
            assert {found.name for found in admin.reservations()} == self.reservations
            for stream in self.streams.values():
                self.compare(admin, stream)
            problems = [finding for finding in admin.audit(read_data=True) if finding.severity == "problem"]
            assert problems == []

    def compare(self, admin: forebay.Admin, model: StreamModel) -> None:
        """One stream with its model."""
        kept = {step.number: step.epoch for step in admin.steps(model.address)}
        assert kept == {number: step.epoch for number, step in model.steps.items()}
        info = admin.stream(model.address)
        assert (info.status, info.epoch) == (model.status, model.epoch)
        assert info.committed == (model.next_step - 1 if model.next_step else None)
        assert {found.name: found.position for found in info.consumers} == model.cursors
        with forebay.open(model.address, verify="read") as stream:
            for number, step in model.steps.items():
                assert np.all(stream[number]["T"][...] == step.value), f"step {number}"


@pytest.mark.timeout(900)
# crash-matrix: anything | server and clients, in random sequences of operations, against a model | what the model says
def test_reservations_streams_steps_and_cursors_follow_the_model() -> None:
    """FOREBAY_TEST_COUNT is the number of runs; a hundred take about half a minute."""
    run_state_machine_as_test(
        hypothesis.seed(TEST_SEED)(Staging),
        settings=settings(
            max_examples=times(50),
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
