# SPDX-License-Identifier: Apache-2.0
"""Attributes after Append and of two engines in one IO are BP5's; what is refused, and what ADIOS2 says by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import adios2
import numpy as np
import pytest

import forebay
import forebay.adios2
from tests.support.adios2_programs import run_environment
from tests.support.processes import PythonProcess
from tests.support.time_limits import seconds

#: Sets an IO up for a stream or a file of this name, and says what to open.
Configure = Callable[[Any, str], str]


@pytest.fixture(params=["BP5", "Forebay"])
def configure(request: pytest.FixtureRequest, reservation: str, tmp_path: Path) -> Configure:
    """Both engines are asked the same: what BP5 answers is right."""

    def configure(io: Any, name: str) -> str:
        if request.param == "BP5":
            io.set_engine("BP5")
            return str(tmp_path / f"{name}.bp")
        forebay.adios2.configure(io, f"{reservation}/{name}", random_access=False)
        return name

    return configure


def attributes_of(io: Any) -> dict[str, str]:
    return {name: str(facts["Value"]).strip('"') for name, facts in io.available_attributes().items()}


def write(configure: Configure, name: str, mode: str, attributes: dict[str, str], variable: str = "x") -> None:
    io = adios2.Adios().declare_io("writer")
    with adios2.Stream(io, configure(io, name), mode) as stream:
        stream.begin_step()
        stream.write(variable, 1.0)
        for attribute, value in attributes.items():
            stream.write_attribute(attribute, value)
        stream.end_step()


def read(configure: Configure, name: str) -> list[dict[str, str]]:
    io = adios2.Adios().declare_io("reader")
    with adios2.Stream(io, configure(io, name), "r") as stream:
        return [attributes_of(io) for _ in stream]


def test_attributes_of_an_earlier_run_stay_after_append(configure: Configure) -> None:
    write(configure, "flow", "w", {"unit": "K", "title": "first"})
    write(configure, "flow", "a", {"title": "second", "author": "me"})
    write(configure, "flow", "a", {})
    first = {"unit": "K", "title": "first"}
    second = {"unit": "K", "title": "second", "author": "me"}
    assert read(configure, "flow") == [first, second, second]
    write(configure, "flow", "w", {"other": "one"})
    assert read(configure, "flow") == [{"other": "one"}]


def test_writers_of_one_io_write_all_of_its_attributes(configure: Configure) -> None:
    io = adios2.Adios().declare_io("both")
    writers = {name: adios2.Stream(io, configure(io, name), "w") for name in ("a", "b")}
    for name, stream in writers.items():
        stream.begin_step()
        stream.write("x", 1.0)
        stream.write_attribute(f"of {name}", name)
    for stream in writers.values():
        stream.end_step()
        stream.engine.close()
    assert [read(configure, name) for name in writers] == [[{"of a": "a", "of b": "b"}]] * 2


def test_readers_of_one_io_share_its_attributes(configure: Configure) -> None:
    for name in ("a", "b"):
        write(configure, name, "w", {"unit": f"of {name}", f"only {name}": "yes"}, f"x {name}")
    io = adios2.Adios().declare_io("both")
    readers = {name: adios2.Stream(io, configure(io, name), "r") for name in ("a", "b")}
    seen = []
    for reader in readers.values():
        reader.begin_step()
        seen.append(attributes_of(io))
    assert seen == [
        {"unit": "of a", "only a": "yes"},
        {"unit": "of b", "only a": "yes", "only b": "yes"},
    ]
    for reader in readers.values():
        reader.end_step()
        reader.engine.close()


@pytest.mark.parametrize("ranks", [1, 2])
def test_native_streams_keep_their_attributes_when_they_are_continued(reservation: str, ranks: int) -> None:
    address = f"{reservation}/flow"

    def run(mode: str, attributes: dict[int, dict[str, str]], **options: Any) -> None:
        program = """
            import json, sys, forebay
            address, mode, rank, ranks, attributes, options = sys.argv[1:]
            with forebay.open(address, mode, rank=int(rank), ranks=int(ranks), **json.loads(options)) as stream:
                for name, value in json.loads(attributes).items():
                    stream.attributes[name] = value
                with stream.step() as step:
                    if rank == "0":
                        step["x"] = 1
        """
        with ExitStack() as stack:
            processes = [
                stack.enter_context(
                    PythonProcess(
                        program,
                        address,
                        mode,
                        str(rank),
                        str(ranks),
                        json.dumps(attributes.get(rank, {})),
                        json.dumps({"group": f"{mode}{attributes}", **options}),
                    )
                )
                for rank in range(ranks)
            ]
            for process in processes:
                process.succeed()

    run("w", {0: {"unit": "K", "title": "first"}})
    # Whichever rank sets it anew: its value, not the inherited one.
    run("a", {0: {"title": "second"}})
    run("a", {ranks - 1: {"title": "third"}})
    run("a", {}, append_after=0)
    with forebay.open(address) as stream:
        assert [dict(stream[number].attributes) for number in (0, 1)] == [{"unit": "K", "title": "first"}] * 2
    run("a", {ranks - 1: {"title": "fourth"}})
    with forebay.open(address) as stream:
        assert dict(stream.latest.attributes) == {"unit": "K", "title": "fourth"}


def test_name_that_is_too_long_is_cut_in_the_message(reservation: str) -> None:
    name = "n" * 5000
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, f"{reservation}/flow")
    with adios2.Stream(io, "flow", "w") as stream:
        stream.begin_step()
        with pytest.raises(ValueError, match="1 to 4096 bytes") as raised:
            stream.write(name, np.zeros(3))
        assert name[:60] in str(raised.value)
        assert len(str(raised.value)) < 300
        stream.end_step()
    with forebay.open(f"{reservation}/native", "w") as native, native.step() as step:
        with pytest.raises(forebay.InvalidArgumentError, match="1 to 4096 bytes") as refused:
            step.write(name, np.zeros(3))
        assert len(str(refused.value)) < 300
        with pytest.raises(forebay.InvalidArgumentError, match="1 to 4096 bytes") as refused:
            step.attributes[name] = 1
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("environment", "library", "told"),
    [
        ({}, "forebay_adios2", "Unable to locate the forebay_adios2 library; searched for"),
        ({"ADIOS2_PLUGIN_PATH": "/nowhere"}, "forebay_adios2", "Couldn't find engine plugin named"),
        ({"ADIOS2_PLUGIN_PATH": "/nowhere"}, "/nowhere/libforebay_adios2.so", "could not be loaded"),
        ({}, None, "PluginLibrary must be specified in the engine parameters"),
    ],
)
def test_what_adios2_says_without_the_plugins_path_stands_in_the_docs(
    environment: dict[str, str], library: str | None, told: str
) -> None:
    program = """
        import sys, adios2
        io = adios2.Adios().declare_io("sim")
        io.set_engine("Plugin")
        io.set_parameters({"PluginName": "forebay", **({"PluginLibrary": sys.argv[1]} if sys.argv[1:] else {})})
        io.open("flow", adios2.bindings.Mode.Write)
    """
    clean = {name: value for name, value in run_environment().items() if name != "ADIOS2_PLUGIN_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *([library] if library else [])],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
    )
    assert done.returncode != 0
    assert told in done.stdout + done.stderr
    page = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    assert told.removeprefix("PluginLibrary ") in page
