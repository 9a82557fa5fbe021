# SPDX-License-Identifier: Apache-2.0
"""What a newcomer is told: names that exist, how to wait for the next run, and which option forces."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.cli.root import run


@pytest.mark.parametrize("mode", ["w", "a", "r"])
def test_a_misspelt_reservation_is_suggested_in_every_mode(reservation: str, mode: Any) -> None:
    with pytest.raises(forebay.StreamNotFoundError, match=f"did you mean {reservation}/flow"):
        forebay.open(f"{reservation}x/flow", mode, timeout=0.2)
    with pytest.raises(forebay.StreamNotFoundError, match=f"did you mean {reservation}/flow"):
        forebay.open(f"{reservation}x/flow", timeout=0.2, run="first")


def test_only_public_names_are_shown(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        with stream.step() as step:
            step["T"] = np.zeros(3)
            writing = (stream, step, stream.attributes)
        follower = stream.follow()
        reading = next(follower)
        metadata = stream.steps_at()
        objects = (
            *writing, follower, reading, reading["T"], stream["T"], stream.steps(), metadata, metadata[0],
            metadata[0]["T"], forebay.Admin(), forebay.open(f"{reservation}/flow"), stream.info,
        )  # fmt: skip
        for shown in objects:
            private = [name for name in dir(shown) if name.startswith("_") and not name.startswith("__")]
            assert [name for name in private if name not in ("_repr_html_",)] == [], type(shown)
        assert "write" in dir(step)


def test_python_suggests_no_private_name(reservation: str) -> None:
    code = f"import forebay\nwith forebay.open('{reservation}/flow', 'w') as stream:\n  stream.step().put('T', 1)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "has no attribute 'put'" in done.stderr
    assert "_put" not in done.stderr


def test_attributes_are_those_of_the_newest_step_and_of_a_variable(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        with forebay.open(address) as empty:
            assert dict(empty.attributes) == {}
        stream.attributes["title"] = "first"
        stream.attributes["T/units"] = "K"
        stream.attributes["Tx/units"] = "m"
        with stream.step() as step:
            step.write("T", np.zeros(3), dims=("x",))
        stream.attributes["title"] = "second"
        with stream.step() as step:
            step["T"] = np.zeros(3)
        assert stream.attributes["title"] == "second"
    with forebay.open(address) as stream:
        assert stream.attributes["title"] == "second"
        assert dict(stream[0]["T"].attributes) == {"units": "K"}
        assert dict(stream.steps_at()[0]["T"].attributes) == {"units": "K"}
        with pytest.raises(TypeError):
            stream.attributes["title"] = "third"  # type: ignore[index]


def test_what_needs_force_names_the_option(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w", retention="precious:1") as stream:
        stream.write("T", np.zeros(3))
    with pytest.raises(forebay.RefusedError, match=r"force it \(Force=true, in Python force=True\)"):
        forebay.open(address, "w", timeout=10)
    with forebay.Admin() as admin:
        with pytest.raises(forebay.RefusedError, match=r"force it \(--force\)"):
            admin.remove_stream(address)
        with pytest.raises(forebay.RefusedError, match=r"force it \(--force\)"):
            admin.destroy(reservation)


def leave(address: str, **options: Any) -> None:
    """A writer that leaves the stream interrupted after a step."""
    stream = forebay.open(address, "w", grace=0.1, **options)
    stream.write("T", np.zeros(3))
    stream.abandon()


def test_who_finds_an_interrupted_stream_is_told_how_to_wait_for_the_next_run(reservation: str) -> None:
    leave(f"{reservation}/flow")
    with forebay.open(f"{reservation}/flow") as stream, pytest.raises(forebay.StreamInterruptedError) as caught:
        list(stream.follow(timeout=60))
    assert "wait_for_writer=True or run=NAME (--wait-for-writer, --run)" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("words", [["--wait-for-writer"], ["--run", "second"]])
@pytest.mark.parametrize("command", ["follow", "tail"])
def test_commands_wait_for_the_next_run(
    reservation: str, capfd: pytest.CaptureFixture[str], command: str, words: list[str]
) -> None:
    address = f"{reservation}/flow"
    leave(address, run="first")

    def produce() -> None:
        # It waits for the reader, who would miss a writer that comes and goes before.
        with forebay.open(address, "a", run="second", rendezvous_readers=1, timeout=60) as stream:
            stream.write("T", np.ones(3))

    writer = threading.Thread(target=produce)
    writer.start()
    ending = ["--exec", "echo", "step {step}"] if command == "follow" else []
    status = run([command, address, *words, *ending])
    writer.join()
    told = capfd.readouterr()
    assert status == 0, told.err
    # Not step 0, which is the first run's.
    assert told.out.split()[:2][command == "follow"] == "1"
    assert len(told.out.splitlines()) == 1
    assert "its writer has gone" not in told.err


def test_a_command_that_finds_an_ended_run_says_which(reservation: str, capfd: pytest.CaptureFixture[str]) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w", run="first") as stream:
        stream.write("T", np.zeros(3))
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "follow", address, "--exec", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "its writer has gone (ended); reading run 'first', steps 0 to 0" in done.stderr
    assert "--wait-for-writer" in done.stderr
