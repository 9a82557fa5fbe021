# SPDX-License-Identifier: Apache-2.0
"""Directs a soak: rounds of random actions on one real instance, each ended by a quiet point at which all is compared.

Everything is drawn from one seed. In a round, reservations and streams of random shape come and go; one reservation
stands through all of them. Server and manager are killed only in the rounds of the first quarter and in the last one,
so that in between one life of each grows old, and shows by its resources whether anything leaks. A soak that has done
too little by its end to judge that, or anything else, goes on.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import forebay
from tests.soak.cast import Cast
from tests.soak.history import HistoryLog, judge, read_history
from tests.soak.progress import progress_line
from tests.soak.resources import Holding, draw, growths, measure, table, unjudged
from tests.soak.shape import StreamShape, random_shape
from tests.soak.stages import StageOuts
from tests.soak.timeline import Breach
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.time_limits import seconds

__all__ = ["Soak"]

#: Of the time; rounds that begin in it are violent.
_VIOLENT_PART = 0.25
#: And twice its time: after this a soak ends, though it has done too little.
_LATE_SECONDS = seconds(60)
_STANDING = "standing"
#: Histories of rounds without a breach that are kept.
_LOGS_KEPT_MAX = 20

STANDING_SHAPE = StreamShape(
    ranks=2,
    retention="last:50,consumers:render",
    last=50,
    consumers=("render",),
    precious_every=0,
    drops_oldest=False,
    durable=False,
    checksums=True,
    variables=2,
    elements=3000,
    # Slow, since its history grows as long as the soak.
    pause_us=400_000,
)


class Soak:
    """One soak. ``folder`` keeps the histories, figures and the picture; ``instance`` runs when it begins."""

    def __init__(self, instance: CommandLineInstance, folder: Path, *, seed: int, seconds: float) -> None:
        self.instance = instance
        self.folder = folder
        self.seconds = seconds
        self.chance = random.Random(seed)
        self.actions: Counter[str] = Counter()
        self.breaches: list[Breach] = []
        self.holdings: list[Holding] = []
        self.steps = 0
        self.reads = 0
        self.kills = 0
        self.rounds = 0
        self.staged = 0
        self._begun = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        self._create(_STANDING, "48MiB", persistent=True)
        self._standing_log = HistoryLog(folder / "standing.jsonl")
        self._standing = Cast(instance, self._standing_log, f"{_STANDING}/flow", STANDING_SHAPE, self.chance)
        self._casts: list[Cast] = []
        self._reservations: list[str] = []

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    def run(self) -> None:
        """Rounds until the time is over and enough was done, or a promise is broken."""
        round_seconds = min(60.0, max(3.0, self.seconds / 12))
        with progress_line(self.seconds) as show:
            last = False
            while not self.breaches and not last:
                # A round takes longer than its actions: by as much as it has until now.
                usual_seconds = self.elapsed() / self.rounds if self.rounds else round_seconds
                end = self.elapsed() + usual_seconds
                last = end >= self.seconds and (self._is_enough() or end >= 2 * self.seconds + _LATE_SECONDS)
                early = self.rounds == 0 or self.elapsed() < self.seconds * _VIOLENT_PART
                self._round(round_seconds, show, violent=last or early)
                self.rounds += 1
        self._standing_log.close()
        self._judge(self._standing_log)
        self.breaches += [Breach("resources", "quiet points", what) for what in growths(self.holdings)]
        if not self.breaches:
            what = "all its lives were too short to tell whether its memory grows"
            self.breaches += [Breach("resources", process, what) for process in unjudged(self.holdings)]
        (self.folder / "resources.txt").write_text(table(self.holdings) + "\n")
        draw(self.holdings, self.folder / "resources.png")

    def _is_enough(self) -> bool:
        """Is there something to be judged of everything?"""
        return bool(self.holdings and self.steps and self.reads and self.staged) and not unjudged(self.holdings)

    # A round

    def _round(self, seconds: float, show: Callable[[float, str], None], *, violent: bool) -> None:
        log = HistoryLog(self.folder / f"round-{self.rounds:04}.jsonl")
        self._reservations = self.chance.sample(["north", "south", "west"], self.chance.choice([1, 2]))
        for name in self._reservations:
            self._create(name, self.chance.choice(["32MiB", "64MiB", "128MiB"]))
        self._casts = [self._standing]
        for number in range(self.chance.choice([2, 3, 4])):
            address = f"{self.chance.choice(self._reservations)}/s{self.rounds}.{number}"
            self._casts.append(Cast(self.instance, log, address, random_shape(self.chance), self.chance))
        stages = StageOuts(self.instance, self.folder / "out", self.chance)
        limit = time.monotonic() + seconds
        kills = self.actions["kill server"]
        while time.monotonic() < limit:
            self._act(self.chance.choice(self._casts), stages, violent=violent)
            show(self.elapsed(), f"round {self.rounds}, {sum(self.actions.values())} actions, {self.steps} steps")
        if violent and self.actions["kill server"] == kills:
            self._kill_server(log)
            self.actions["kill server"] += 1
        show(self.elapsed(), f"round {self.rounds}, quiet point")
        self._quiet_point(stages)
        for name in self._reservations:
            self._destroy(name)
        self._measure()
        self.staged += stages.staged
        self.kills += sum(cast.kills for cast in self._casts[1:])
        log.close()
        self._judge(log)

    def _act(self, cast: Cast, stages: StageOuts, *, violent: bool) -> None:
        """One action, and a moment in which it has an effect."""
        cast.reap()
        actions = ["reader"] * 5 + ["disturb"] * 6 + ["kill rank"] * 2 + ["stage out", "kill stagers", "look", "look"]
        actions += ["remove stream"] * (cast is not self._standing and self.chance.random() < 0.3)
        actions += ["create and destroy"] + ["destroy under clients"] * (self.chance.random() < 0.4)
        actions += ["kill server", "kill server", "kill manager"] * violent
        action = "group" if not cast.writers and self.chance.random() < 0.7 else self.chance.choice(actions)
        done: bool | None = True
        if action == "group":
            if not cast.writers:
                cast.start_group()
        elif action == "reader":
            cast.start_reader()
        elif action == "disturb":
            done = cast.disturb_reader()
        elif action == "kill rank":
            done = cast.kill_rank()
        elif action == "stage out":
            if cast is not self._standing:
                stages.submit(cast)
        elif action == "kill stagers":
            done = stages.kill()
        elif action == "look":
            cast.look()
        elif action == "remove stream":
            done = self._remove_stream(cast)
        elif action == "create and destroy":
            self._create("east", "16MiB")
            self._destroy("east")
        elif action == "destroy under clients":
            done = self._destroy_under_clients()
        elif action == "kill server":
            self._kill_server(cast.log)
        elif action == "kill manager":
            self.instance.kill_manager()
            self.instance.up()
            self.kills += 1
        if done:
            self.actions[action] += 1
            cast.go_on(self.chance.choice([0.05, 0.2, 0.5]))

    def _kill_server(self, log: HistoryLog) -> None:
        since = time.monotonic_ns()
        self.instance.kill_server()
        self.instance.up()
        self.kills += 1
        for told in {log, self._standing_log, *(cast.log for cast in self._casts)}:
            told.tell("director", "away", since_ns=since)

    def _remove_stream(self, cast: Cast) -> bool:
        """With its followers on it, if they hold nothing, and not while it is written. Its name is not used again."""
        if cast.writers:
            return False
        try:
            with forebay.Admin() as admin:
                admin.remove_stream(cast.address, force=True)
        except (forebay.NotFoundError, forebay.BusyError):
            # Nobody has begun it yet, or readers hold steps of it.
            return False
        cast.log.tell("director", "removing", stream=cast.address)
        self._casts.remove(cast)
        cast.rest()
        self.kills += cast.kills
        return True

    def _destroy_under_clients(self) -> bool:
        """A reservation goes by force, whoever works in it; the round goes on with the others."""
        if len(self._reservations) < 2:
            return False
        name = self._reservations.pop(self.chance.randrange(len(self._reservations)))
        losers = [cast for cast in self._casts if cast.address.startswith(f"{name}/")]
        for cast in losers:
            cast.log.tell("director", "removing", stream=cast.address)
        self._destroy(name)
        for cast in losers:
            self._casts.remove(cast)
            cast.rest()
            self.kills += cast.kills
        return True

    # A quiet point

    def _quiet_point(self, stages: StageOuts) -> None:
        """Nobody is at work; every stream is compared with what was told of it."""
        for cast in self._casts:
            cast.rest()
        stages.finish()
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        for cast in self._casts:
            cast.look()
            cast.read_all()
        with forebay.Admin() as admin:
            found = [finding for finding in admin.audit(read_data=True) if finding.severity == "problem"]
            for row in admin.reservations():
                taken = sum(path.lstat().st_blocks * 512 for path in Path(row.files_path).parent.rglob("*"))
                if taken > row.capacity_bytes:
                    what = f"takes {taken} bytes of {row.capacity_bytes}"
                    self.breaches.append(Breach("capacity", row.name, what))
        self.breaches += [Breach("audit", finding.where, finding.what) for finding in found]
        doctor = self.instance.run("doctor")
        if doctor.returncode != 0:
            self.breaches.append(Breach("audit", "doctor", doctor.stdout + doctor.stderr))

    def _create(self, name: str, capacity: str, *, persistent: bool = False) -> None:
        with self.instance.manager() as manager:
            manager.create(name, capacity, persistent=persistent)

    def _destroy(self, name: str) -> None:
        """Twice, as the first answer may have been lost; then nothing of it is left."""
        with forebay.Admin() as admin:
            folder = Path(admin.reservation(name).files_path).parent
        for _ in range(2):
            with self.instance.manager() as manager:
                manager.destroy(name, force=True)
        quarantine = self.instance.root / "quarantine"
        # What lies there is deleted behind the answer.
        until(lambda: not quarantine.is_dir() or not any(quarantine.iterdir()), "destroyed reservations are deleted")
        if folder.exists():
            self.breaches.append(Breach("destroyed", name, f"{folder} is left"))

    def _measure(self) -> None:
        """All clients have gone but the manager."""
        with forebay.Admin() as admin:
            until(lambda: admin.server().clients <= 2, "all clients of the server are gone")
        for process, pid in (("server", self.instance.server_pid()), ("manager", self.instance.manager_pid())):
            self.holdings.append(measure(process, pid, self.elapsed()))

    def _judge(self, log: HistoryLog) -> None:
        streams, breaches = judge(read_history(log.path))
        self.breaches += breaches
        self.steps += sum(len(stream.commits) for stream in streams.values())
        self.reads += sum(len(reader.steps) for stream in streams.values() for reader in stream.readers)
        if not self.breaches and self.rounds >= _LOGS_KEPT_MAX and log is not self._standing_log:
            log.path.unlink()

    def summary(self) -> str:
        """What was done."""
        done = ", ".join(f"{count} {name}" for name, count in sorted(self.actions.items()))
        return (
            f"{self.rounds} rounds in {self.elapsed():.0f} s: {sum(self.actions.values())} actions ({done}), "
            f"{self.kills + self._standing.kills} kills; {self.steps} steps committed, {self.reads} read, "
            f"{self.staged} staged out"
        )
