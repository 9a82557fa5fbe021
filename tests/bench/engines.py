# SPDX-License-Identifier: Apache-2.0
"""Forebay and its peers as ``bench_adios2`` runs them: the plugin, BP5 and SST, as shipped and well tuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.programs import Program, build_directory
from tests.bench.workbench import Instance
from tests.support.plugin import plugin_library

__all__ = ["Engine", "bp5", "forebay_plugin", "sst"]


@dataclass(frozen=True, slots=True)
class Engine:
    """How the program opens the stream or file."""

    engine: str
    name: str
    parameters: tuple[str, ...] = ()
    reader_parameters: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    writer_environment: dict[str, str] = field(default_factory=dict)
    writer_prefix: tuple[str, ...] = ()  #: a command that becomes the program: on another node, for example
    reader_prefix: tuple[str, ...] = ()
    reader_environment: dict[str, str] = field(default_factory=dict)

    def writer(self, *, variable_bytes: int, steps: int, variables: int = 1, pace_us: int = 0) -> Program:
        """Writes steps."""
        return self._start(
            ["write", "--steps", str(steps), "--variables", str(variables), "--pace-us", str(pace_us)],
            variable_bytes,
            self.parameters,
            {**self.environment, **self.writer_environment},
            self.writer_prefix,
        )

    def reader(self, *, variable_bytes: int, variables: int = 1, more: Sequence[str] = ()) -> Program:
        """Follows until the end."""
        return self._start(
            ["read", "--variables", str(variables), *more],
            variable_bytes,
            self.reader_parameters,
            {**self.environment, **self.reader_environment},
            self.reader_prefix,
        )

    def random_reader(self, *, variable_bytes: int, steps: int) -> Program:
        """Opens all steps at once and reads some."""
        return self._start(
            ["read-random", "--steps", str(steps)], variable_bytes, self.reader_parameters, self.environment
        )

    def _start(
        self,
        command: Sequence[str],
        variable_bytes: int,
        parameters: Sequence[str],
        environment: dict[str, str],
        prefix: Sequence[str] = (),
    ) -> Program:
        arguments = [*command, "--engine", self.engine, "--name", self.name, "--bytes", str(variable_bytes)]
        for parameter in parameters:
            arguments += ["--parameter", parameter]
        # With a path set, ADIOS2 looks for plugins there only.
        return Program("bench_adios2", arguments, {"ADIOS2_PLUGIN_PATH": "", **environment}, prefix=prefix)


def forebay_plugin(instance: Instance, *parameters: str, reader: Sequence[str] = (), stream: str = "steps") -> Engine:
    """The plugin on a stream of the instance."""
    address = instance.address(stream)
    common = (f"PluginName={address}", f"PluginLibrary={plugin_library()}", f"Stream={address}")
    return Engine("Plugin", stream, (*common, *parameters), (*common, *reader), instance.environment)


#: Without statistics Put of a large variable copies nothing; the malloc setting spares the small ones page faults.
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def bp5(folder: Path, *, tuned: bool, huge_pages: bool = False) -> Engine:
    """BP5 into a file; tuned: without statistics, and polled every millisecond."""
    return Engine(
        "BP5",
        str(folder / "steps.bp"),
        ("StatsLevel=0",) if tuned else (),
        ("BeginStepPollingFrequencySecs=0.001", "OpenTimeoutSecs=60"),
        writer_environment=_HUGE_PAGES if huge_pages else {},
    )


def sst(folder: Path, *, nodelay: bool) -> Engine:
    """SST over TCP on this machine; ``nodelay``: without Nagle's algorithm, which SST leaves on."""
    preload = {"LD_PRELOAD": str(build_directory() / "tests" / "bench" / "libbench_nodelay.so")} if nodelay else {}
    return Engine("SST", str(folder / "steps"), ("RendezvousReaderCount=1",), (), environment=preload)
