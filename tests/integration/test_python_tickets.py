# SPDX-License-Identifier: Apache-2.0
"""Tickets: files that stand for streams and steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.support.adios2_programs import built, python, run, run_environment
from tests.support.time_limits import seconds


@pytest.fixture
def flow(reservation: str) -> str:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        for number in range(3):
            stream.write("n", number)
    return f"{reservation}/flow"


def test_a_ticket_stands_for_a_stream_and_for_a_step(flow: str, tmp_path: Path) -> None:
    forebay.Ticket.of(flow).write(tmp_path / "flow.forebay")
    forebay.Ticket.of(f"{flow}@1").write(tmp_path / "step.forebay")
    with forebay.open(str(tmp_path / "flow.forebay")) as stream:
        assert len(stream) == 3
    with forebay.open_step(tmp_path / "step.forebay") as step:
        assert (step.number, int(step["n"])) == (1, 1)
    with forebay.open_step(f"forebay://{flow}@2") as step:
        assert int(step["n"]) == 2
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["flow.forebay", "step.forebay"]


def test_a_ticket_of_a_step_that_was_written_anew_opens_nothing(flow: str, tmp_path: Path) -> None:
    forebay.Ticket.of(f"{flow}@1").write(tmp_path / "step.forebay")
    with forebay.open(flow, "a", append_after=0) as stream:
        stream.write("n", 17)
    with pytest.raises(forebay.StepGoneError, match="another was written in its place"):
        forebay.open_step(tmp_path / "step.forebay")


def test_a_ticket_of_a_stream_that_was_removed_and_made_anew_opens_nothing(flow: str, tmp_path: Path) -> None:
    import forebay.adios2

    path = tmp_path / "flow.forebay"
    old = forebay.Ticket.of(flow)
    old.write(path)
    # A replacement has another epoch, but is the same stream.
    with forebay.open(flow, "w") as stream:
        stream.write("n", 17)
    with forebay.open(str(path)) as stream:
        assert int(stream.latest["n"]) == 17
    with forebay.Admin() as admin:
        admin.remove_stream(flow)
    with forebay.open(flow, "w") as stream:
        stream.write("n", 18)
    both = f"{old.uuid}, was removed; the stream of this name is now {forebay.Ticket.of(flow).uuid}"
    with pytest.raises(forebay.StreamNotFoundError, match=both):
        forebay.open(str(path))
    with pytest.raises(RuntimeError, match=both):
        forebay.adios2.open(str(path))
    with forebay.open(str(path), "a") as stream:
        stream.write("n", 19)


def test_what_is_no_ticket_is_told(flow: str, tmp_path: Path) -> None:
    (tmp_path / "bad.forebay").write_text("[1]")
    with pytest.raises(forebay.InvalidArgumentError, match="no ticket"):
        forebay.open(str(tmp_path / "bad.forebay"))
    with pytest.raises(forebay.StepNotFoundError):
        forebay.Ticket.of(f"{flow}@9")
    with pytest.raises(forebay.InvalidArgumentError, match="names a stream"):
        forebay.open_step(flow)


def test_commands_and_adios2_take_tickets(flow: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.forebay"
    line = [sys.executable, "-m", "forebay"]
    subprocess.run([*line, "ticket", flow, "--output", path], check=True, timeout=seconds(100))
    shown = subprocess.run([*line, "steps", path], capture_output=True, text=True, timeout=seconds(100), check=True)
    assert len(shown.stdout.splitlines()) == 4
    import adios2

    import forebay.adios2

    io = adios2.Adios().declare_io("reading")
    forebay.adios2.configure(io, str(path))
    with adios2.Stream(io, "any name", "r") as stream:
        assert [int(step.read("n")) for step in stream.steps()] == [0, 1, 2]
    forebay.Ticket.of(f"{flow}@1").write(tmp_path / "step.forebay")
    with forebay.adios2.open(str(tmp_path / "step.forebay")) as stream:
        assert [int(step.read("n")) for step in stream.steps()] == [1]
    with forebay.open(flow, "a", append_after=0) as stream:
        stream.write("n", 17)
    with pytest.raises(RuntimeError, match="another was written in its place"):
        forebay.adios2.open(str(tmp_path / "step.forebay"))


CONFIGURATION = """\
<adios-config><io name="numbers"><engine type="Plugin">
  <parameter key="PluginName" value="forebay"/>
  <parameter key="PluginLibrary" value="forebay_adios2"/>
  <parameter key="Stream" value="step.forebay"/>
</engine></io></adios-config>
"""


def test_a_cxx_program_of_adios2_reads_what_a_ticket_names(reservation: str, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        for number in (3, 4, 5):
            stream.write("numbers", np.array([number, number + 6]))
    (tmp_path / "adios2.xml").write_text(CONFIGURATION)
    forebay.Ticket.of(f"{reservation}/flow@1").write(tmp_path / "step.forebay")
    environment = run_environment()
    folder = Path(environment["FOREBAY_ADIOS2_LIBRARY"]).parent
    line = [built("stock_cxx_reader"), "adios2.xml"]
    done = subprocess.run(
        line,
        cwd=tmp_path,
        env={**environment, "ADIOS2_PLUGIN_PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=seconds(100),
        check=False,
    )
    assert done.stdout.splitlines() == 2 * ["4: 4 10, 4 10"], done.stderr


READ = """
import adios2, sys
with adios2.Stream(sys.argv[1], "r") as stream:
    print([int(step.read("n")) for step in stream.steps()])
"""


def test_a_program_under_forebay_run_opens_a_ticket_as_a_file(flow: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    forebay.Ticket.of(f"{flow}@2").write(tmp_path / "in" / "step.forebay")
    forebay.Ticket.of(flow).write(tmp_path / "in" / "flow.forebay")
    for name, expected in (("step", "[2]"), ("flow", "[0, 1, 2]")):
        done = run(
            ["--reservation", "other", "--engine-for", "*.forebay"], python(READ, f"in/{name}.forebay"), tmp_path
        )
        assert done.stdout.split("\n")[0] == expected, done.stderr
