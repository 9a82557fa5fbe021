# SPDX-License-Identifier: Apache-2.0
"""Steps, views and handles outlive each other, threads, forks and the interpreter; waits obey Ctrl-C."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.support.load import until
from tests.support.processes import PythonProcess
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds


@pytest.fixture
def address(reservation: str) -> str:
    """A stream of 4 steps of 1 MiB that has ended; all elements of a step are its number."""
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        for number in range(4):
            with stream.step() as step:
                step["T"] = np.full((128, 1024), float(number))
    return f"{reservation}/flow"


def pins(address: str, number: int) -> int:
    """How many readers hold the step."""
    with forebay.Admin() as admin:
        return admin.steps(address)[number].pins


def wait_for_pins(address: str, number: int, expected: int) -> None:
    """A release has no answer: asks until it has arrived."""
    deadline = time.monotonic() + 30
    while pins(address, number) != expected:
        assert time.monotonic() < deadline, f"step {number} has {pins(address, number)} pins, not {expected}"


def test_view_keeps_the_step_pinned_until_it_dies(address: str) -> None:
    stream = forebay.open(address)
    step = stream[2]
    view = step["T"][10:20, ::-3]
    part = view[1]
    step.release()
    step.release()
    stream.close()
    del stream, view
    gc.collect()
    assert (part == 2).all()
    assert pins(address, 2) == 1
    with pytest.raises(ValueError, match="released"):
        step["T"]
    del part
    gc.collect()
    wait_for_pins(address, 2, 0)


def test_step_is_released_at_the_end_of_with(address: str) -> None:
    with forebay.open(address)[1] as step:
        assert pins(address, 1) == 1
        assert step["T"].max == 1
    wait_for_pins(address, 1, 0)
    assert "released" in repr(step)


def test_view_survives_that_its_step_is_dropped(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:1") as stream:
        views = []
        for number in range(12):
            with stream.step() as step:
                step["T"] = np.full(1 << 17, float(number))
            views.append(stream[number]["T"][...])
        for number, view in enumerate(views):
            assert (view == number).all()


def test_steps_are_read_and_released_by_many_threads(address: str) -> None:
    stream = forebay.open(address)

    def read(turn: int) -> float:
        step = stream[turn % 4]
        view = step["T"][turn % 128]
        total = float(view.mean()) + float(step["T"].read(np.s_[:2]).mean())
        step.release()
        return total

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(400))) == [turn % 4 * 2.0 for turn in range(400)]
    for number in range(4):
        wait_for_pins(address, number, 0)


def test_interpreter_may_end_with_everything_alive(address: str) -> None:
    program = """
        import sys, threading, forebay
        stream = forebay.open(sys.argv[1])
        follower = stream.follow("render")
        step = next(follower)
        view = step["T"][...]
        attributes = step.attributes
        writer = forebay.open(sys.argv[1] + "2", mode="w")
        open_step = writer.step()
        block = open_step.allocate("T", (10, 10))
        threading.Thread(target=lambda: list(writer.follow()), daemon=True).start()
        class Last:
            def __del__(self): step.release()
        sys.modules["last"] = Last()
        print("ends")
        """
    with PythonProcess(program, address) as process:
        status, output, errors = process.finish()
    assert (status, output) == (0, "ends\n")
    # The writer is forgotten, and nothing else is told.
    assert errors.count("\n") == 1
    assert f"stream {address}2 was not closed; its step 0 was begun" in errors
    wait_for_pins(address, 0, 0)


@pytest.mark.parametrize(
    "wait",
    ["for_a_step", "for_a_stream", "for_a_rank", "for_space"],
)
def test_waits_obey_control_c(reservation: str, wait: str) -> None:
    program = """
        import sys, forebay, numpy
        writer = forebay.open(sys.argv[1], mode="w", block_timeout=None, retention="consumers:render")
        def for_a_step():
            print("waits")
            next(writer.follow())
        def for_a_stream():
            print("waits")
            forebay.open(sys.argv[1] + "-none", timeout=None)
        def for_a_rank():
            print("waits")
            forebay.open(sys.argv[1] + "-2", mode="w", ranks=2, rank=0, timeout=None)
        def for_space():
            writer.follow("render").close()
            while True:
                with writer.step() as step:
                    step["T"] = numpy.zeros(1 << 20)
                if writer.next_step == 7:
                    print("waits")
        try:
            globals()[sys.argv[2]]()
        except KeyboardInterrupt:
            print("interrupted")
        """
    with PythonProcess(program, f"{reservation}/flow", wait) as process:
        assert process.line() == "waits"
        process.wait_until_asleep()
        process.send(signal.SIGINT)
        assert process.succeed(timeout=seconds(20)) == "interrupted\n"


def test_interrupted_follower_goes_on(reservation: str) -> None:
    program = """
        import sys, forebay
        follower = forebay.open(sys.argv[1]).follow("render")
        print("waits")
        try:
            next(follower)
        except KeyboardInterrupt:
            print("interrupted")
        print([int(step["n"]) for step in follower])
        """
    with (
        forebay.open(f"{reservation}/flow", mode="w") as stream,
        PythonProcess(program, f"{reservation}/flow") as process,
    ):
        assert process.line() == "waits"
        process.wait_until_asleep()
        process.send(signal.SIGINT)
        assert process.line() == "interrupted"
        with stream.step() as step:
            step["n"] = 5
        stream.close()
        assert process.succeed() == "[5]\n"


def test_other_threads_run_during_a_wait(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        follower = stream.follow(timeout=seconds(30))
        turns = 0
        got = threading.Event()

        def consume() -> None:
            next(follower)
            got.set()

        reader = threading.Thread(target=consume)
        reader.start()
        while turns < 100_000:
            turns += 1
        assert not got.is_set()
        with stream.step() as step:
            step["n"] = 1
        assert got.wait(30)
        reader.join()


def test_what_a_handle_opens_is_of_its_instance(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever the environment names when it does."""
    reservation = address.partition("/")[0]
    reading = forebay.open(address)
    with forebay.open(f"{reservation}/other", mode="w") as writing, StagingServer(tmp_path / "root") as another:
        monkeypatch.setenv("FOREBAY_ROOT", str(another.root))
        monkeypatch.setenv("FOREBAY_SOCKET", "")
        with forebay.Admin() as admin:
            admin.create(reservation, "8MiB")
        with forebay.open(address, mode="w") as stream_there, stream_there.step() as step:
            step["n"] = 1
        with writing.step() as step:
            step["n"] = 2
        assert writing.info.committed == 0
        assert [step.number for step in reading.follow("analysis", timeout=seconds(30))] == [0, 1, 2, 3]
        assert len(reading.steps()) == 4
        assert reading.info.committed == 3
        assert len(forebay.open(address).steps()) == 1


def test_forked_child_is_told_and_leaves_the_parent_alone(address: str) -> None:
    stream = forebay.open(address)
    step = stream[3]
    view = step["T"][0]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            stream.steps()
        except forebay.DisconnectedError as error:
            status = 0 if "fork" in str(error) and (view == 3).all() else 2
        finally:
            del view, step, stream
            gc.collect()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert pins(address, 3) == 1
    assert len(stream.steps()) == 4
    assert (view == 3).all()


def mean_of(variable: forebay.Variable) -> tuple[int, float]:
    """What a worker makes of a variable that it got by pickle."""
    return variable.step.number, float(variable[...].mean())


def mean_of_held(data: bytes) -> tuple[int, float]:
    """The same of a step, by a view."""
    with pickle.loads(data) as step:
        assert step.pinned
        return step.number, float(step["T"].view().mean())


def test_handles_travel_by_address(address: str) -> None:
    stream = forebay.open(address, verify="first")
    copy = pickle.loads(pickle.dumps(stream))
    assert copy.address == stream.address
    assert pickle.loads(pickle.dumps(stream[1])).number == 1
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        variables = [stream[number]["T"] for number in range(4)]
        assert sorted(pool.map(mean_of, variables)) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_pickled_step_of_another_epoch_is_gone(address: str) -> None:
    data = pickle.dumps(forebay.open(address)[0])
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["T"] = 1.0
    with pytest.raises(forebay.StepGoneError, match="epoch"):
        pickle.loads(data)


def test_a_pinned_step_can_be_opened_by_its_holders_children(address: str) -> None:
    """Also once the writer has withdrawn it, and the stream has another step of its number."""
    stream = forebay.open(address)
    with stream[1] as held:
        data = pickle.dumps(held)
        with forebay.open(address, "a", append_after=0) as writer:
            for number in (1, 2):
                with writer.step() as step:
                    step["T"] = np.full((128, 1024), 90.0 + number)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(mean_of, held["T"]).result() == (1, 1)
            assert pool.submit(mean_of, forebay.open(address)[1]["T"]).result() == (1, 91)
            # What the child holds for itself is as safe as the parent's.
            assert pool.submit(mean_of_held, data).result() == (1, 1)
    gc.collect()

    def is_gone() -> bool:
        try:
            pickle.loads(data).release()
        except forebay.StepGoneError as error:
            assert "the stream now has one of epoch" in str(error)  # noqa: PT017 - it is waited for
            return True
        return False

    until(is_gone, "nobody to hold the step")


def write_anew(address: str) -> None:
    """Removes the stream and writes one of the same address, epoch and shapes."""
    with forebay.Admin() as admin:
        epoch = admin.stream(address).epoch
        admin.remove_stream(address)
        with forebay.open(address, mode="w") as stream:
            for _ in range(4):
                with stream.step() as step:
                    step["T"] = np.full((128, 1024), 99.0)
        assert admin.stream(address).epoch == epoch


@pytest.mark.parametrize("reopened", [False, True])
def test_pickles_of_a_stream_that_was_made_anew_never_read_the_new_one(address: str, reopened: bool) -> None:
    stream = forebay.open(address)
    with stream.follow() as follower:
        followed = next(follower)
    pickled_stream = pickle.dumps(stream)
    pickled_parts = [pickle.dumps(part) for part in (stream[0], followed, stream[0]["T"])]
    followed.release()  # Nobody may hold a step of a stream that is removed.
    # A process that loaded it before has a connection of before.
    kept = pickle.loads(pickled_stream) if reopened else None
    write_anew(address)
    for data in pickled_parts:
        with pytest.raises(forebay.StepGoneError, match="removed"):
            pickle.loads(data)
    if not reopened:
        with pytest.raises(forebay.StreamNotFoundError, match="created again"):
            pickle.loads(pickled_stream)
    assert kept is None or kept.mode == "r"


def test_pickle_of_a_step_that_a_handle_of_the_old_stream_followed_is_of_the_new_one(address: str) -> None:
    stream = forebay.open(address)
    write_anew(address)
    with stream.follow() as follower:
        step = next(follower)
    assert float(pickle.loads(pickle.dumps(step))["T"][0, 0]) == 99


def test_pickle_of_a_stream_that_is_gone_says_so_at_once(address: str) -> None:
    data = pickle.dumps(forebay.open(address, timeout=seconds(600))[0])
    with forebay.Admin() as admin:
        admin.remove_stream(address)
    with pytest.raises(forebay.StepGoneError, match="no such stream"):
        pickle.loads(data)


def test_steps_that_a_writer_reads_travel_too(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            step["T"] = 7.0
        assert pickle.loads(pickle.dumps(stream[0]))["T"].item() == 7


def test_reader_does_not_go_on_with_a_stream_that_was_made_anew_while_it_was_away(tmp_path: Path) -> None:
    with StagingServer(tmp_path / "root") as server, pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("run1", "64MiB")
        with forebay.open("run1/flow", mode="w") as stream, stream.step() as step:
            step["T"] = np.zeros((128, 1024))
        held = forebay.open("run1/flow")
        with held.follow(start="next") as follower:
            # Their next calls are the first that the new server hears of them.
            server.stop()
            server.start()
            write_anew("run1/flow")
            with pytest.raises(forebay.NotFoundError, match="created again"):
                next(follower)
        with pytest.raises(forebay.NotFoundError, match="created again"):
            held[0]


def test_writers_do_not_pickle(reservation: str) -> None:
    with (
        forebay.open(f"{reservation}/flow", mode="w") as stream,
        pytest.raises(TypeError, match=f"{reservation}/flow"),
    ):
        pickle.dumps(stream)
