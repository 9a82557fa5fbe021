# SPDX-License-Identifier: Apache-2.0
"""The programs of these tests, each on its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote.nodes import Nodes, RemoteProgram
from tests.support.plugin import plugin_library

__all__ = ["Programs", "both_transports"]

HERE = Path(__file__).parent

#: For tests of what holds however bytes travel.
both_transports = pytest.mark.parametrize("transport", ["tcp", "fabric"], indirect=True)


def configuration(path: Path, io: str, **parameters: str) -> Path:
    """An ADIOS2 configuration whose IO uses the plugin."""
    lines = "".join(f'<parameter key="{key}" value="{value}"/>' for key, value in parameters.items())
    library = plugin_library().with_suffix("")
    path.write_text(
        f'<adios-config><io name="{io}"><engine type="Plugin"><parameter key="PluginName" value="forebay"/>'
        f'<parameter key="PluginLibrary" value="{library}"/>{lines}</engine></io></adios-config>'
    )
    return path


class Programs:
    """Starts the programs of a test on their nodes."""

    def __init__(self, nodes: Nodes, folder: Path, **environment: str) -> None:
        self._nodes = nodes
        self._folder = folder
        self._environment = environment

    def with_environment(self, **environment: str) -> Programs:
        """The same with more in their environment."""
        return Programs(self._nodes, self._folder, **{**self._environment, **environment})

    def writer(
        self, steps: int, token: Path | None, *, mode: str = "w", fail_point: str = "", **parameters: str
    ) -> RemoteProgram:
        """ADIOS2 by XML, the server as a parameter."""
        server = self._nodes.server
        stream = {"Stream": "run1/flow", **parameters}
        xml = configuration(self._folder / "writer.xml", "simulation", Server=server, **stream)
        return self._start(
            "producer", "adios2_writer.py", str(xml), str(steps), mode, token=token, FOREBAY_FAIL_POINT=fail_point
        )

    def adios2_reader(self, token: Path, **parameters: str) -> RemoteProgram:
        """ADIOS2 by XML, the server in the address, the token as a parameter."""
        address = f"forebay://{self._nodes.server}/run1/flow"
        xml = configuration(self._folder / "reader.xml", "analysis", Stream=address, TokenFile=str(token), **parameters)
        return self._start("consumer", "adios2_reader.py", str(xml), token=None)

    def python_reader(self, token: Path | None, consumer: str = "render", fail_point: str = "") -> RemoteProgram:
        """Python, the server by the environment."""
        server = self._nodes.server
        environment = {"FOREBAY_SERVER": server, "FOREBAY_FAIL_POINT": fail_point}
        return self._start("consumer", "python_reader.py", "run1/flow", consumer, token=token, **environment)

    def reader(self, name: str, token: Path, address: str = "run1/flow", fail_point: str = "") -> RemoteProgram:
        """One of the Python programs beside this file."""
        named = {"FOREBAY_SERVER": self._nodes.server, "FOREBAY_FAIL_POINT": fail_point}
        return self._start("consumer", name, address, token=token, **named)

    def slow_writer(self, steps: int, token: Path) -> RemoteProgram:
        """Python, with a pause after each step."""
        return self._start(
            "producer", "slow_writer.py", "run1/flow", str(steps), token=token, FOREBAY_SERVER=self._nodes.server
        )

    def redoing_writer(self, steps: int, token: Path) -> RemoteProgram:
        """Writes a step again that was lost on its way."""
        return self._start(
            "producer", "redoing_writer.py", "run1/flow", str(steps), token=token, FOREBAY_SERVER=self._nodes.server
        )

    def interrupted_writer(self, token: Path, fail_point: str) -> RemoteProgram:
        """Python, which goes on after an interruption."""
        named = {"FOREBAY_SERVER": self._nodes.server, "FOREBAY_FAIL_POINT": fail_point}
        return self._start("producer", "interrupted_writer.py", "run1/flow", token=token, **named)

    def small(
        self, what: str, steps: int, token: Path, fail_point: str = "", program: str = "small_blocks.py"
    ) -> RemoteProgram:
        """A writer or reader of steps that fit into a message, perhaps but for their attributes."""
        kind = {"write": "producer", "read": "consumer"}[what]
        named = {"FOREBAY_SERVER": self._nodes.server, "FOREBAY_FAIL_POINT": fail_point}
        return self._start(kind, program, what, "run1/flow", str(steps), token=token, **named)

    def many_readers(self, count: int, token: Path, fail_point: str) -> RemoteProgram:
        """Readers in one process, which asks for data when it is told a line."""
        named = {"FOREBAY_SERVER": self._nodes.server, "FOREBAY_FAIL_POINT": fail_point}
        program = "../remote_faults/many_readers.py"
        return self._start("consumer", program, "run1/flow", str(count), token=token, **named)

    def impatient_reader(self, token: Path) -> RemoteProgram:
        """One that waits a second for a server that went away."""
        server = self._nodes.server
        return self._start("consumer", "impatient_reader.py", "run1/flow", token=token, FOREBAY_SERVER=server)

    def _start(self, kind: str, name: str, *arguments: str, token: Path | None, **environment: str) -> RemoteProgram:
        root = HERE.parent.parent
        return RemoteProgram(
            self._nodes,
            kind,
            HERE / name,
            *arguments,
            token=token,
            PYTHONPATH=str(root),
            **self._environment,
            **environment,
        )
