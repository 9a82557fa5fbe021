# SPDX-License-Identifier: Apache-2.0
"""Jobs that take their time in a state of the test's choice, and what must hold whatever befell them."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.centre import Centre
from tests.slurm.cluster import PERSON, wait_for

__all__ = ["BIG", "Fault"]

#: Long enough to copy and to compare for a test to stop the process that does.
_BIG_BYTES = 192 << 20
_LOG_CHARACTERS_SHOWN = 6000
BIG = "big.bin"

_SCRIPT = """\
#!/bin/bash
#DW jobdw capacity=256MiB access_mode=striped type=scratch
{stage_in}
#DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={out}/results
trap '' TERM
mkdir -p ${{DW_JOB_STRIPED}}out
echo begun > ${{DW_JOB_STRIPED}}out/begun
{body}
echo ended > ${{DW_JOB_STRIPED}}out/ended
"""

#: Writes on, at its own pace, until it is killed, or told that it may end.
UNTIL_TOLD = "while [ ! -e {out}/end ]; do date +%s.%N >> ${{DW_JOB_STRIPED}}out/ticks; sleep 0.1; done"


@dataclass
class Fault:
    """One job, its folder and the centre it runs in."""

    centre: Centre
    out: Path
    job: int = 0

    def submit(self, *, body: str = "true", stage_in: str = "", options: tuple[str, ...] = ()) -> int:
        """Submits it. It ignores SIGTERM."""
        values = {"out": self.out, "body": body.format(out=self.out), "stage_in": stage_in.format(out=self.out)}
        self.job = self.centre.cluster.submit(_SCRIPT.format(**values), *options)
        return self.job

    def submit_until_told(self, *options: str) -> int:
        """A job that runs until `end` lies in its folder; it runs when this returns."""
        self.submit(body=UNTIL_TOLD, options=options)
        self.wait_for_state("running")
        wait_for(lambda: (self.files() / "out" / "begun").exists(), "the job to have begun", 120)
        return self.job

    def submit_slow_stage_in(self) -> int:
        """A job whose stage-in is stopped in the middle: its stager stands still until `go_on`."""
        self.make_big()
        self.submit(stage_in="#DW stage_in type=file source={out}/big.bin destination=$DW_JOB_STRIPED/big.bin")
        self.stop_stager()
        return self.job

    def submit_slow_stage_out(self) -> int:
        """A job whose stage-out is stopped in the middle."""
        self.submit(body=f"head -c {_BIG_BYTES} /dev/urandom > ${{{{DW_JOB_STRIPED}}}}out/{BIG}; {UNTIL_TOLD}")
        self.wait_for_state("running")
        wait_for(lambda: (self.files() / "out" / "ticks").exists(), "the file to have been written", 120)
        # A stage-out that is faster than `forebay status` would not be seen: until then it is tried again, since the
        # file is open for writing.
        with (self.files() / "out" / BIG).open("ab"):
            self.end()
            self.wait_for_state("data_out")
        self.stop_stager()
        return self.job

    def make_big(self) -> None:
        """A file that takes a while to copy."""
        with (self.out / BIG).open("wb") as file:
            for _ in range(_BIG_BYTES >> 20):
                file.write(os.urandom(1 << 20))
        shutil.chown(self.out / BIG, PERSON)

    def stop_stager(self) -> None:
        """Stops the process that stages for this instance."""
        wait_for(lambda: self.centre.instance.stagers() != [], "a stager", 120)
        for pid in self.centre.instance.stagers():
            os.kill(pid, signal.SIGSTOP)
        assert self.centre.instance.stagers(), "the stager ended before it could be stopped"

    def go_on(self) -> None:
        """Lets a stopped stager continue."""
        for pid in self.centre.instance.stagers():
            os.kill(pid, signal.SIGCONT)

    def end(self) -> None:
        """Tells the job that it may end."""
        (self.out / "end").touch()

    def cancel(self, *options: str) -> None:
        """`scancel` by the user."""
        self.centre.cluster.run("scancel", *options, str(self.job), user=PERSON)

    def state(self) -> str:
        """In the manager's books, of its last run."""
        return self.centre.states().get(str(self.job), "unknown")

    def wait_for_state(self, *states: str, seconds_max: float = 180) -> None:
        """Until it is in one of these."""
        try:
            wait_for(lambda: self.state() in states, f"job {self.job} to be {states}", seconds_max)
        except AssertionError as error:
            logs = self.centre.instance.logs()[-_LOG_CHARACTERS_SHOWN:]
            raise AssertionError(f"{error}; it is {self.state()}\n{logs}") from None

    def files(self) -> Path:
        """Its scratch."""
        (row,) = [row for row in self.rows() if row["state"] not in ("gone", "kept")]
        (info,) = [
            info for info in self.centre.instance.ask("ls")["reservations"] if info["name"] == row["reservation"]
        ]
        return Path(info["files_path"]) / str(self.job)

    def rows(self) -> list[dict[str, str]]:
        """All runs of the job in the manager's books."""
        return [row for row in self.centre.instance.ask("status", "--all")["jobs"] if row["token"] == str(self.job)]

    def result(self, name: str) -> str:
        """What was staged out."""
        return (self.out / "results" / name).read_text()

    def take_what_was_kept(self) -> list[str]:
        """The owner takes what lies in quarantine and destroys it; names of the files that were there."""
        found: list[str] = []
        for row in self.rows():
            if row["state"] != "kept":
                continue
            assert row["reason"], row
            infos = [
                info for info in self.centre.instance.ask("ls")["reservations"] if info["name"] == row["reservation"]
            ]
            for info in infos:
                found += [path.name for path in Path(info["files_path"]).rglob("*") if path.is_file()]
                self.centre.instance.ask("destroy", info["name"], "--force")
        return found

    def must_have_settled(self) -> None:
        """Slurm has no such job any more, nobody holds space, nothing is stuck."""
        wait_for(self.is_settled, f"job {self.job} to be over: {self.told()}", 240)
        self.take_what_was_kept()
        self.centre.must_be_clean()

    def is_settled(self) -> bool:
        """Slurm's side and ours have ended."""
        shown = self.centre.cluster.show(self.job).get("JobState", "")
        return shown not in ("PENDING", "RUNNING", "COMPLETING", "STAGE_OUT", "SUSPENDED", "CONFIGURING") and (
            self.state() in ("gone", "kept", "unknown")
        )

    def told(self) -> str:
        """Why it stands, in Slurm's words: never nothing, where it does stand."""
        return self.centre.cluster.ask("scontrol", "show", "job", str(self.job))

    def wait_for_reason(self, text: str) -> None:
        """Until `scontrol show job` gives this reason."""
        wait_for(lambda: text in self.told(), f"{text!r} in what Slurm says of job {self.job}", 120)
