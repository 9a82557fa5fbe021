# SPDX-License-Identifier: Apache-2.0
"""The show: kills what is to be killed when its moment has come, brings it back, and watches the stream meanwhile.

The moments are committed steps, as a follower of the stream without a name sees them; nothing goes by the clock.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Iterator

from cast import STREAM, Cast
from course import Course, Pause, RankKill, ServerKill, Told
from instance import Instance
from plan import CHECKPOINT_EVERY, Plan
from programs import DemoError, Programs
from screen import Screen

import forebay
from forebay.errors import StepTimeoutError, StreamNotFoundError
from forebay.records import Notice, StreamInfo, StreamStatus

_KILLED_RANK = 1
_LOOK_SECONDS = 0.1
#: How many steps the late consumer finds at least, and for how many rendering stands still.
_REPLAYED_STEPS = 2
_PAUSED_STEPS = 2
#: Nothing that the demo waits for takes longer, unless something is broken.
_STANDSTILL_SECONDS_MAX = 180.0


class Show:
    """One run over a cast; ``course`` is what happened in it."""

    def __init__(self, plan: Plan, cast: Cast, instance: Instance, programs: Programs, screen: Screen) -> None:
        self._plan, self._cast = plan, cast
        self._instance, self._programs, self._screen = instance, programs, screen
        self._committed = -1
        self._acts = self._choose_acts()
        self._kills_shown = False
        self._state: object = None
        self._moved_at = time.monotonic()
        self.course = Course()

    def run(self) -> None:
        """Runs it to the end of the stream and of everyone who reads it."""
        self._cast.start_consumers()
        self._cast.start_undisturbed()
        self.course.started_at = time.time()
        self._cast.start_simulation()
        with self._open_stream() as stream:
            self._watch(stream)
            self.course.ended_at = time.time()
            if not self._kills_shown:
                raise DemoError("the stream has ended before everyone was killed that was to be")
            self._screen.tell("the stream has ended; its readers finish")
            while self._programs.running:
                self._tick(stream)
                time.sleep(_LOOK_SECONDS)
            self.course.final = self._look(stream)
            self._screen.show(self.course.final, {})

    def _watch(self, stream: forebay.Stream) -> None:
        with stream.follow(timeout=_LOOK_SECONDS, on_notice=self._notice) as follower:
            while True:
                waiting_since = time.time()
                try:
                    step = next(follower)
                except StepTimeoutError:
                    pass
                except StopIteration:
                    return
                else:
                    with step:
                        self._take(step, waiting_since)
                self._tick(stream)

    def _tick(self, stream: forebay.Stream) -> None:
        """A look at everything, and time for the acts."""
        self._info = self._look(stream)
        for act in self._acts:
            next(act, None)

    def _take(self, step: forebay.Step, waiting_since: float) -> None:
        """A step has come."""
        course = self.course
        if step.time > waiting_since:
            course.latencies_ms.append(1000 * (time.time() - step.time))
        if step.rewound:
            course.rewound_to.append(step.number)
            course.commits = {number: moment for number, moment in course.commits.items() if number < step.number}
        course.commits[step.number] = step.time
        self._committed = step.number

    def _notice(self, notice: Notice) -> None:
        self.course.told.append(Told(time.time(), notice.status))
        reason = f": {notice.text}" if notice.text else ""
        self._screen.tell(f"followers are told that the stream is {notice.status}{reason}")

    def _look(self, stream: forebay.Stream) -> StreamInfo:
        """Looks after everyone, and shows the stream."""
        self._programs.check()
        info = stream.info
        self.course.sample(info)
        running = self._programs.running
        state = (info, [(program.name, program.log.stat().st_size) for program in running])
        if state != self._state:
            self._state, self._moved_at = state, time.monotonic()
        elif time.monotonic() - self._moved_at > _STANDSTILL_SECONDS_MAX:
            names = ", ".join(program.name for program in running)
            raise DemoError(f"nothing has moved for {_STANDSTILL_SECONDS_MAX:g} s; still running: {names}")
        if self._screen.is_due:
            assert self._cast.undisturbed is not None
            undisturbed = self._cast.undisturbed.log.read_text().count("\nstep ")
            self._screen.show(info, {"undisturbed run": f"{undisturbed} of {self._plan.steps}"})
        return info

    def _open_stream(self) -> forebay.Stream:
        while True:
            try:
                return forebay.open(STREAM, timeout=1.0)
            except StreamNotFoundError:
                self._programs.check()
                if time.monotonic() - self._moved_at > _STANDSTILL_SECONDS_MAX:
                    raise DemoError("the simulation has not begun to write; see its logs") from None

    def _choose_acts(self) -> tuple[Iterator[None], ...]:
        return self._kills(), self._late_consumer()

    # --- The acts; each yield waits for the next look at the stream ---

    def _kills(self) -> Iterator[None]:
        """A rank is killed, and the simulation restarted; later the server."""
        while self._committed < self._plan.rank_killed_at:
            yield
        kill = yield from self._kill_rank()
        yield from self._restart(kill)
        while self._committed < max(self._plan.server_killed_at, kill.at_step):
            yield
        kill.caught_up_s = self._seconds_until_step(kill.at_step, kill.killed_at)
        yield from self._kill_server()
        self._kills_shown = True

    def _late_consumer(self) -> Iterator[None]:
        """Rendering stands still for a while, so that steps are kept for it; who joins now, replays them."""
        while not self.course.rewound_to or self._committed < self._plan.renderer_paused_at:
            yield
        renderer = self._cast.renderer
        assert renderer is not None
        renderer.pause()
        paused = Pause(self._committed)
        self._screen.tell("rendering is paused; the simulation does not wait for it")
        while self._info.oldest is None or self._committed < self._info.oldest + _REPLAYED_STEPS:
            yield
        self._cast.start_latecomer()
        latecomer = self._cast.latecomer
        assert latecomer is not None
        self._screen.tell("a late consumer joins")
        while not (joined := latecomer.log.read_text()):
            yield
        self._screen.tell(joined.splitlines()[0])
        while self._committed < paused.at_step + _PAUSED_STEPS:
            yield
        renderer.go_on()
        paused.steps = self._committed - paused.at_step
        self.course.pause = paused
        self._screen.tell(f"rendering goes on, after {paused.steps} steps")

    def _kill_rank(self) -> Generator[None, None, RankKill]:
        """Kills one of the two ranks; returns when the group is gone and a checkpoint to go on from is staged."""
        victim, other = self._cast.ranks[_KILLED_RANK], self._cast.ranks[1 - _KILLED_RANK]
        for rank in (victim, other):
            self._programs.may_fail(rank)
        killed_at = time.time()
        victim.kill()
        self._screen.tell(f"rank {_KILLED_RANK} of the simulation is killed; step {self._committed} is committed")
        status = other.wait(_STANDSTILL_SECONDS_MAX)
        ended_s = time.time() - killed_at
        victim.wait(_STANDSTILL_SECONDS_MAX)
        self._screen.tell(f"the other rank has ended by itself after {ended_s:.2f} s with status {status}")
        while not (told := [told for told in self.course.told if told.status is StreamStatus.INTERRUPTED]):
            yield
        assert self._info.committed is not None
        checkpoint = self._info.committed // CHECKPOINT_EVERY * CHECKPOINT_EVERY
        while self._info.staged is None or self._info.staged < checkpoint:
            yield
        self.course.rank_kill = RankKill(
            rank=_KILLED_RANK,
            at_step=self._info.committed,
            killed_at=killed_at,
            other_rank_status=status,
            other_rank_ended_s=ended_s,
            followers_told_s=told[0].at - killed_at,
            checkpoint=checkpoint,
            withdrawn=self._info.committed - checkpoint,
        )
        return self.course.rank_kill

    def _restart(self, kill: RankKill) -> Iterator[None]:
        """Starts the simulation again from the checkpoint; returns when it has written a step."""
        restarted_at = time.time()
        self._cast.start_simulation(kill.checkpoint)
        kill.restarted_s = restarted_at - kill.killed_at
        self._screen.tell(f"restart from the staged step {kill.checkpoint}; {kill.withdrawn} steps are withdrawn")
        while not self.course.rewound_to:
            yield
        kill.first_step_s = self._seconds_until_commit(restarted_at, kill.killed_at)
        self._screen.tell(f"its first step was committed {kill.first_step_s:.1f} s after the kill")

    def _kill_server(self) -> Iterator[None]:
        """Kills the staging server and starts it again; returns when the next step has been written."""
        kill = ServerKill(self._instance.server_pid(), self._committed, time.time())
        self.course.server_kill = kill
        os.kill(kill.pid, signal.SIGKILL)
        self._screen.tell(f"the staging server is killed; step {kill.at_step} is committed")
        begin = time.monotonic()
        self._instance.up()
        kill.up_s = time.monotonic() - begin
        kill.new_pid = self._instance.server_pid()
        self._screen.tell(f"`forebay up` has started it again within {kill.up_s:.1f} s")
        while self.course.first_commit_after(kill.killed_at) is None:
            yield
        kill.first_step_s = self._seconds_until_commit(kill.killed_at, kill.killed_at)
        self._screen.tell(f"all go on; the next step was committed {kill.first_step_s:.1f} s after the kill")

    def _seconds_until_commit(self, moment: float, since: float) -> float:
        """From `since` to the first commit after the moment."""
        committed = self.course.first_commit_after(moment)
        assert committed is not None
        return committed - since

    def _seconds_until_step(self, number: int, since: float) -> float:
        """From `since` to the commit of this step, or of the first later one that was seen."""
        return min(moment for step, moment in self.course.commits.items() if step >= number) - since
