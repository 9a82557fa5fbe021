# SPDX-License-Identifier: Apache-2.0
"""What an ADIOS2 program reads from a stream over several servers is what it reads from BP5, on every node: blocks that
lie in pieces on all servers, on one, or at home.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.three_servers import far_environment, three_servers
from tests.support.server_pool import ServerPool
from tests.support.time_limits import seconds

pytestmark = [pytest.mark.timeout(300)]

_STEPS = 3
#: Its blocks: one of 6 MB that is spread, some of 200 kB that lie on one server, and small ones at home. The shape
#: changes in the last step, and a variable comes late.
_PROGRAM = """
import hashlib, json, sys
import adios2, numpy as np
import forebay.adios2

engine, what, name = sys.argv[1:]
adios = adios2.Adios()
io = adios.declare_io(what)
if engine == "BP5":
    io.set_engine("BP5")
else:
    forebay.adios2.configure(io, name)

def facts(value):
    if isinstance(value, (str, list)):
        return value
    array = np.ascontiguousarray(value)
    return [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]

def write():
    with adios2.Stream(io, name, "w") as stream:
        local = io.define_variable("local", np.zeros(1, np.int32), [], [], [1])
        for number in stream.steps(STEPS):
            step = stream.current_step()
            rows = 3 if step < STEPS - 1 else 5
            field = (np.arange(rows * 250_000.0) + 1e6 * step).reshape(rows, 250_000)
            stream.write("spread", field, field.shape, (0, 0), field.shape)
            for part in range(4):
                block = np.arange(25_000.0) * (part + 1) - step
                stream.write("parts", block, (100_000,), (25_000 * part,), (25_000,))
            for length in (2, 3, 70_000):
                local.set_selection([[], [length]])
                stream.engine.put(local, np.full(length, length + step, np.int32), adios2.bindings.Mode.Sync)
            stream.write("n", step * step)
            stream.write("word", f"step {step}")
            if step:
                stream.write("late", np.arange(12, dtype=np.complex128).reshape(3, 4), (3, 4), (0, 0), (3, 4))
            stream.write_attribute(f"of step {step}", np.arange(step + 1.0))
        stream.write_attribute("units", "K", "spread")

def read_step(stream, without=(), **options):
    found = {"variables": {}, "attributes": {}}
    for variable, about in sorted(stream.available_variables().items()):
        found["variables"][variable] = {key: about.get(key) for key in ("Type", "Shape", "SingleValue", "Min", "Max")}
        if variable not in ("local", *without):
            found["variables"][variable]["all"] = facts(stream.read(variable, **options))
    found["some"] = facts(stream.read("spread", [1, 100_000], [2, 50_000], **options))
    found["columns"] = facts(stream.read("parts", [24_000], [52_000], **options))
    found["strided"] = facts(stream.read("spread", [0, 0], [3, 3], **options))
    for block in range(3):
        found[f"local {block}"] = facts(stream.read("local", block_id=block, **options))
    found["block"] = facts(stream.read("parts", block_id=2, **options))
    for attribute in sorted(stream.available_attributes()):
        found["attributes"][attribute] = facts(stream.read_attribute(attribute))
    return found

def follow():
    with adios2.Stream(io, name, "r") as stream:
        return [read_step(stream) for _ in stream.steps()]

def random():
    with adios2.FileReader(name) if engine == "BP5" else adios2.Stream(io, name, "rra") as stream:
        found = [read_step(stream, ["late"], step_selection=[STEPS - 1, 1])]
        found.append(facts(stream.read("n", step_selection=[0, STEPS])))
        found.append(facts(stream.read("parts", [100], [30_000], step_selection=[0, STEPS])))
        return found

answer = {"write": write, "follow": follow, "random": random}[what]()
print(json.dumps(answer))
""".replace("STEPS", str(_STEPS))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    """Three servers; server 0 is the home of run1."""
    with three_servers(tmp_path_factory.mktemp("pool")) as made:
        yield made


def _run(environment: dict[str, str], *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds(120),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _environment(pool: ServerPool, node: str, folder: Path) -> dict[str, str]:
    """Of a program beside a server, or on a node without one."""
    if node == "far":
        return far_environment(pool, folder)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_ROOT")}
    return kept | {"FOREBAY_ROOT": str(pool.servers[int(node)].root)}


@pytest.mark.parametrize(("writer", "readers"), [("far", "012"), ("1", ("far", "0")), ("0", ("2", "far"))])
def test_every_node_reads_what_bp5_gives(
    pool: ServerPool, tmp_path: Path, writer: str, readers: tuple[str, ...]
) -> None:
    file = str(tmp_path / "flow.bp")
    stream = f"run1/flow-{writer}"
    _run(dict(os.environ), "BP5", "write", file)
    _run(_environment(pool, writer, tmp_path), "Forebay", "write", stream)
    for way in ("follow", "random"):
        expected = _run(dict(os.environ), "BP5", way, file)
        for reader in readers:
            assert _run(_environment(pool, reader, tmp_path), "Forebay", way, stream) == expected, (way, reader)
