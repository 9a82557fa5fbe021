# SPDX-License-Identifier: Apache-2.0
"""`forebay run`: programs that know nothing of Forebay, in Python, C++ and C, whose files become streams."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import forebay
import forebay.adios2
from forebay.adios2.run import EXIT_NONE_OPENED, prepared_environment
from tests.support.adios2_programs import FOREBAY_RUN, built, numbers_of, python, run, run_environment
from tests.support.plugin import plugin_library
from tests.support.time_limits import seconds

# Two names in one IO, of which one is asked for; and what the IO looks like in between.
TWO_NAMES = """
    import adios2
    from adios2 import bindings
    adios = bindings.ADIOS()
    io = adios.DeclareIO("both")
    io.SetEngine("BP5")
    io.SetParameters({"Profile": "Off"})
    number = io.DefineVariable("number", __import__("numpy").zeros((), "i4"))
    engines = [io.Open(name, bindings.Mode.Write) for name in ("asked.bp", "left.bp")]
    assert io.EngineType() == "BP5", io.EngineType()
    assert io.Parameters() == {"Profile": "Off"}, io.Parameters()
    print(*(engine.Type() for engine in engines))
    for step in range(3):
        for factor, engine in enumerate(engines, 1):
            engine.BeginStep()
            engine.Put(number, __import__("numpy").array(factor * step, "i4"), bindings.Mode.Sync)
            engine.EndStep()
    for engine in engines:
        engine.Close()
"""


def test_of_two_names_in_one_io_the_one_that_is_asked_for_becomes_a_stream(reservation: str, tmp_path: Path) -> None:
    result = run(["--reservation", reservation, "--engine-for", "asked.bp"], python(TWO_NAMES), tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["Plugin", "BP5Writer"]
    assert numbers_of(f"{reservation}/asked") == [0, 1, 2]
    assert (tmp_path / "left.bp").is_dir()
    assert not (tmp_path / "asked.bp").exists()
    with forebay.Admin() as admin:
        assert [stream.name for stream in admin.streams(reservation)] == ["asked"]


def test_limits_of_sst_in_an_io_of_files_do_not_hold_the_program_up(reservation: str, tmp_path: Path) -> None:
    program = TWO_NAMES.replace('{"Profile": "Off"}', '{"RendezvousReaderCount": "1", "QueueLimit": "1"}')
    result = run(["--reservation", reservation, "--engine-for", "asked.bp"], python(program), tmp_path)
    assert result.returncode == 0, result.stderr
    assert "ignores QueueLimit, RendezvousReaderCount" in result.stderr
    assert numbers_of(f"{reservation}/asked") == [0, 1, 2]


def test_io_is_asked_for_by_its_name(reservation: str, tmp_path: Path) -> None:
    result = run(["--reservation", reservation, "--engine-for-io", "bo*"], python(TWO_NAMES), tmp_path)
    assert result.returncode == 0, result.stderr
    assert numbers_of(f"{reservation}/asked") == [0, 1, 2]
    assert numbers_of(f"{reservation}/left") == [0, 2, 4]
    assert not list(tmp_path.iterdir())


def test_patterns_fit_the_full_name_or_its_last_part(reservation: str, tmp_path: Path) -> None:
    program = """
        import adios2
        for name in ("x/one.bp", "y/one.bp", "y/two.bp"):
            with adios2.Stream(name, "w") as stream:
                stream.write("number", 1)
    """
    options = ["--reservation", reservation, "--engine-for", "y/o*", "--engine-for", "two.*"]
    result = run(options, python(program), tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "x" / "one.bp").is_dir()
    assert not (tmp_path / "y").exists()
    with forebay.Admin() as admin:
        assert sorted(stream.name for stream in admin.streams(reservation)) == ["one", "two"]


def test_programs_couple_in_both_directions(reservation: str, tmp_path: Path) -> None:
    program = """
        import sys, adios2
        mine, theirs = sys.argv[1:]
        out, back = adios2.Adios(), adios2.Adios()
        writer = adios2.Stream(mine, "w")
        reader = None
        total = 0
        for step in range(4):
            writer.begin_step()
            writer.write("number", 10 * step + len(mine))
            writer.end_step()
            reader = reader or adios2.Stream(theirs, "r")
            assert reader.begin_step()
            total += int(reader.read("number"))
            reader.end_step()
        writer.close()
        reader.close()
        print(total)
    """
    options = ["--reservation", reservation, "--engine-for", "*"]
    pair = [
        subprocess.Popen(
            [*FOREBAY_RUN, *options, "--", *python(program, *names)],
            cwd=tmp_path,
            env=run_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for names in (("a.bp", "bb.bp"), ("bb.bp", "a.bp"))
    ]
    try:
        outcomes = [process.communicate(timeout=seconds(100)) for process in pair]
    finally:
        for process in pair:
            process.kill()
    assert [process.returncode for process in pair] == [0, 0], outcomes
    assert [int(output) for output, _ in outcomes] == [60 + 4 * 5, 60 + 4 * 4]


def test_three_streams_of_one_io_share_its_variables(reservation: str, tmp_path: Path) -> None:
    program = """
        import numpy as np
        from adios2 import bindings
        adios = bindings.ADIOS()
        io = adios.DeclareIO("all")
        io.SetEngine("SST")
        io.SetParameters({"RendezvousReaderCount": "0", "QueueLimit": "0", "DataTransport": "WAN"})
        number = io.DefineVariable("number", np.zeros((), "i4"))
        field = io.DefineVariable("field", np.zeros(4), [4], [0], [4], True)
        engines = [io.Open(name, bindings.Mode.Write) for name in ("one", "two", "three")]
        for step in range(2):
            for engine in engines:
                engine.BeginStep()
            for index, engine in enumerate(engines):
                engine.Put(number, np.array(10 * index + step, "i4"), bindings.Mode.Sync)
                engine.Put(field, np.full(4, float(index)), bindings.Mode.Sync)
            for engine in reversed(engines):
                engine.EndStep()
        for engine in engines:
            engine.Close()
    """
    result = run(["--reservation", reservation, "--engine-for", "*"], python(program), tmp_path)
    assert result.returncode == 0, result.stderr
    for index, name in enumerate(("one", "two", "three")):
        assert numbers_of(f"{reservation}/{name}") == [10 * index, 10 * index + 1]
    # Other engines' parameters are told once for each engine.
    assert result.stderr.count("ignores DataTransport") == 3


WRITE_AND_READ = """
    import sys, adios2
    for what in sys.argv[1:]:
        mode, name = what.split(":")
        try:
            with adios2.Stream(name, mode) as stream:
                if mode == "r":
                    print("read", *(int(step.read("number")) for step in stream))
                else:
                    stream.begin_step()
                    stream.write("number", 7)
                    stream.end_step()
                    print("wrote")
        except Exception as error:
            print(error)
"""


def test_two_names_that_lead_to_one_stream_are_not_mixed_up(reservation: str, tmp_path: Path) -> None:
    path = f"{reservation}/a_b"

    def outcome(*opens: str, environment: Mapping[str, str] | None = None) -> list[str]:
        options = ["--reservation", reservation, "--engine-for", "*"]
        result = run(options, python(WRITE_AND_READ, *opens), tmp_path, environment)
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    wrote, second, read, other, same_elsewhere = outcome(
        "w:./out//a b.bp/", "w:out/a_b.bp", "r:out/a b.bp", "r:a_b.h5", "r:../elsewhere/a b.bp"
    )
    assert wrote == "wrote"
    assert 'this stream was written as "out/a b.bp", and "out/a_b.bp" leads to it, too' in second
    assert f"forebay stream remove {path}" in second
    assert read == same_elsewhere == "read 7"
    assert f'"a_b.h5" leads to stream {path}, which was written as "out/a b.bp"' in other
    with forebay.Admin() as admin:
        assert admin.stream(path).original_name == "out/a b.bp"
    shown = subprocess.run(
        [sys.executable, "-m", "forebay", "show", path], capture_output=True, text=True, check=True
    ).stdout
    assert "out/a b.bp" in shown
    # The name counts for appending as well, and until the stream is replaced by force or removed.
    assert "leads to it, too" in outcome("a:out/a_b.bp")[0]
    assert outcome("a:out/a b.bp") == ["wrote"]
    with forebay.open(path, "a") as stream:
        stream.write("number", 8)
    with forebay.Admin() as admin:
        assert admin.stream(path).original_name == "out/a b.bp"
    assert outcome("w:a_b.bp", environment={"FOREBAY_FORCE": "true"}) == ["wrote"]
    with forebay.Admin() as admin:
        assert admin.stream(path).original_name == "a_b.bp"
        admin.remove_stream(path)
    assert outcome("w:a b.bp") == ["wrote"]


def test_streams_that_the_user_names_take_any_name(reservation: str, tmp_path: Path) -> None:
    options = ["--engine-for", "*"]
    environment = {"FOREBAY_STREAM": f"{reservation}/flow"}
    result = run(options, python(WRITE_AND_READ, "w:one.bp", "w:two.bp", "r:three.bp"), tmp_path, environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["wrote", "wrote", "read 7"]
    with forebay.Admin() as admin:
        assert admin.stream(f"{reservation}/flow").original_name == ""


# What an IO shows at Open, before any step is begun, in both modes of reading.
SHOWN_AT_OPEN = """
    import sys
    from adios2 import bindings
    adios = bindings.ADIOS()
    for name in sys.argv[1:]:
        for mode in ("ReadRandomAccess", "Read"):
            io = adios.DeclareIO(name + mode)
            engine = io.Open(name, getattr(bindings.Mode, mode))
            print(name, mode, engine.Steps(), *sorted(io.AvailableVariables()))
            engine.Close()
"""


def test_mode_decides_between_random_access_and_steps(reservation: str, tmp_path: Path) -> None:
    # The stream that has ended would be offered at Open without `forebay run`; the running one would not.
    with forebay.open(f"{reservation}/ended", "w") as stream:
        stream.write("number", 1)
    with forebay.open(f"{reservation}/running", "w") as stream:
        stream.write("number", 1)
        options = ["--reservation", reservation, "--engine-for", "*"]
        result = run(options, python(SHOWN_AT_OPEN, "ended", "running"), tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "ended ReadRandomAccess 1 number",
        "ended Read 1",
        "running ReadRandomAccess 1 number",
        "running Read 1",
    ]


def test_open_that_throws_leaves_the_io_as_it_was(reservation: str, tmp_path: Path) -> None:
    command = [built("stock_cxx_program"), "asked.bp", "left.bp"]
    result = run(["--reservation", "no-such", "--engine-for", "asked.bp"], command, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    failed, written = result.stdout.splitlines()
    assert "asked.bp failed" in failed
    assert "no-such" in failed
    assert written == "left.bp BP4Writer"
    assert (tmp_path / "left.bp").is_dir()
    result = run(["--reservation", reservation, "--engine-for", "asked.bp"], command, tmp_path)
    assert result.stdout.splitlines() == ["asked.bp Plugin", "left.bp BP4Writer"]
    assert numbers_of(f"{reservation}/asked") == [0, 1, 2]


def test_program_in_c_needs_no_cxx_face_of_its_own(reservation: str, tmp_path: Path) -> None:
    program = built("stock_c_program")
    loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert "libadios2_c.so" in loaded
    assert "libadios2_cxx" not in loaded
    options = ["--reservation", reservation, "--engine-for", "c.bp"]
    result = run(options, [program, "write", "c.bp"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert numbers_of(f"{reservation}/c") == [10, 11, 12]
    result = run(options, [program, "read", "out/c.bp"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["10", "11", "12"]


def test_processes_of_one_launcher_write_one_stream(reservation: str, tmp_path: Path) -> None:
    program = """
        import os, numpy as np, adios2
        rank = int(os.environ["PMI_RANK"])
        with adios2.Stream("all.bp", "w") as stream:
            for step in range(3):
                stream.begin_step()
                stream.write("field", np.full(2, 10.0 * step + rank), [4], [2 * rank], [2])
                stream.end_step()
    """
    options = ["--reservation", reservation, "--engine-for", "all.bp"]
    ranks = [
        subprocess.Popen(
            [*FOREBAY_RUN, *options, "--", *python(program)],
            cwd=tmp_path,
            env=run_environment(PMI_RANK=str(rank), PMI_SIZE="2", PMI_JOBID="job"),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=seconds(100))[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0], errors
    with forebay.open(f"{reservation}/all", mode="r") as stream:
        assert [list(stream[number]["field"][...]) for number in range(3)] == [
            [10.0 * step, 10.0 * step, 10.0 * step + 1, 10.0 * step + 1] for step in range(3)
        ]


def test_program_that_opens_nothing_is_told_so(reservation: str, tmp_path: Path) -> None:
    options = ["--reservation", reservation, "--engine-for", "x.bp"]
    result = run(options, ["true"], tmp_path)
    assert result.returncode == EXIT_NONE_OPENED
    assert "no ADIOS2 Open was seen in true" in result.stderr
    assert run([*options, "--allow-none"], ["true"], tmp_path).returncode == 0
    # What the program says goes first.
    assert run(options, ["sh", "-c", "exit 5"], tmp_path).returncode == 5
    assert run(options, ["sh", "-c", "kill -TERM $$"], tmp_path).returncode == 128 + signal.SIGTERM
    assert run(options, [str(tmp_path / "nothing")], tmp_path).returncode == 127
    assert run(options, [str(tmp_path)], tmp_path).returncode == 126


def test_pattern_that_fits_nothing_is_told_at_the_end(reservation: str, tmp_path: Path) -> None:
    options = ["--reservation", reservation, "--engine-for", "asked.bp", "--engine-for", "other.*"]
    result = run([*options, "--engine-for-io", "none"], python(TWO_NAMES), tmp_path)
    assert result.returncode == 0
    assert "the program opened nothing that matches other.*, none" in result.stderr


def test_hook_passes_through_shells(reservation: str, tmp_path: Path) -> None:
    script = f"{shutil.which('env')} true && {built('stock_c_program')} write c.bp"
    result = run(["--reservation", reservation, "--engine-for", "c.bp"], ["sh", "-c", script], tmp_path)
    assert result.returncode == 0, result.stderr
    assert numbers_of(f"{reservation}/c") == [10, 11, 12]


def test_hook_links_neither_adios2_nor_forebay_nor_the_cxx_library() -> None:
    library = plugin_library().parent / "libforebay_adios2_hook.so"
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    for name in ("adios2", "forebay", "stdc++", "gcc_s"):
        assert name not in needed.replace(str(library), "")


def test_missing_plugin_fails_with_the_reason_and_never_writes_files(reservation: str, tmp_path: Path) -> None:
    broken = tmp_path / "libforebay_adios2.so"
    broken.write_text("no library")
    command = [built("stock_cxx_program"), "asked.bp", "left.bp"]
    result = run(
        ["--reservation", reservation, "--engine-for", "asked.bp"],
        command,
        tmp_path,
        {"FOREBAY_ADIOS2_LIBRARY": str(broken)},
    )
    assert "asked.bp failed: Forebay: asked.bp cannot become a stream: the plugin cannot be loaded" in result.stdout
    assert not (tmp_path / "asked.bp").exists()


def test_terminating_the_command_terminates_the_program(reservation: str, tmp_path: Path) -> None:
    program = python("import signal, sys; print('ready', flush=True); signal.pause()")
    process = subprocess.Popen(
        [*FOREBAY_RUN, "--reservation", reservation, "--engine-for", "x", "--", *program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("server")
class TestEnvironment:
    def test_names_the_hook_first_and_keeps_what_was_preloaded(self) -> None:
        variables = prepared_environment({"LD_PRELOAD": "/usr/lib/other.so"}, ["a"], [], "run1")
        hook = str(forebay.adios2.hook_library())
        assert variables["LD_PRELOAD"] == f"{hook}:/usr/lib/other.so"
        assert variables["FOREBAY_STREAM"] == "run1/{name}"

    def test_keeps_a_stream_of_the_users_own(self) -> None:
        variables = prepared_environment({"FOREBAY_STREAM": "run1/{path}"}, [], ["io"], None)
        assert variables["FOREBAY_STREAM"] == "run1/{path}"
        assert variables["FOREBAY_RUN_ENGINE_FOR_IO"] == "io"

    @pytest.mark.parametrize(
        ("names", "reservation", "part"),
        [
            ([], "run1", "--engine-for"),
            (["a"], None, "--reservation"),
            (["a\nb"], "run1", "pattern"),
            (["a"], "1", "1"),
        ],
    )
    def test_is_refused_where_something_is_missing(self, names: list[str], reservation: str | None, part: str) -> None:
        with pytest.raises(forebay.InvalidArgumentError, match=part):
            prepared_environment({}, names, [], reservation)


# Asks what only BP5 used to answer, first thing after Open; then once more of a file of BP5.
BLOCKS_AND_STEPS = """
    import adios2, numpy as np
    for name in ("asked.bp", "left.bp"):
        with adios2.Stream(name, "w") as stream:
            local = stream.io.define_variable("local", np.zeros(1), [], [], [3])
            for number in range(3):
                stream.begin_step()
                stream.write("T", np.arange(4.0) + 10 * number, [4], [0], [4])
                stream.write("number", number)
                for size in (3, 5):
                    local.set_selection([[], [size]])
                    stream.engine.put(local, np.arange(float(size)), adios2.bindings.Mode.Sync)
                stream.end_step()
        answers = []
        for ask in (
            lambda file: file.minmax("T", 2),
            lambda file: file.read("local", block_id=0),
            lambda file: file.read("number", step_selection=[0, 3]),
            lambda file: [blocks[0]["Max"] for blocks in file.all_blocks_info("T")],
        ):
            with adios2.FileReader(name) as file:
                answers.append(np.asarray(ask(file)).tolist())
        print(answers)
"""


def test_files_that_become_streams_answer_as_bp5(reservation: str, tmp_path: Path) -> None:
    result = run(["--reservation", reservation, "--engine-for", "asked.bp"], python(BLOCKS_AND_STEPS), tmp_path)
    assert result.returncode == 0, result.stderr
    asked, left = result.stdout.splitlines()
    assert asked == left == "[[20.0, 23.0], [0.0, 1.0, 2.0], [0, 1, 2], ['3', '13', '23']]"
