# SPDX-License-Identifier: Apache-2.0
"""Clients on other nodes: network namespaces over veth, beside a plain TCP program with the same work, and SST.

Processes of all nodes share this machine's processors. The congestion control is printed: BBR is much slower on veth.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.bench.engines import Engine, sst
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Program, rate_together, run_alone, run_pair, run_together
from tests.bench.remote_bench import (
    READER_NODE,
    SERVER_NODE,
    WRITER_NODE,
    RemoteInstance,
    live_figures,
    nodes,
    remote_instance,
)
from tests.bench.workbench import KIB, MIB, Workbench
from tests.support.plugin import plugin_library

__all__ = ["remote_blocks", "remote_limited", "remote_live", "remote_readers", "remote_small_steps"]

_RATE = "run_bytes_per_second"
_WARMUP = 8
_GIGABIT = 125e6  #: bytes a second
_READERS = 16
#: A writer that is ahead waits for space, which is used again. Ours has room for two more steps of 64 MiB, one that is
#: written and one whose drop is not yet durable.
_LIVE_SLOTS = 2
_LIVE_WARMUP = 12


def _steps(bench: Workbench, step_bytes: int, rate: str | None) -> int:
    total = 192 * MIB if rate else 768 * MIB
    return bench.steps(total // step_bytes, total // 3 // step_bytes) + _WARMUP


def _native(step_bytes: int, transport: str, what: str, rate: str | None, bench: Workbench) -> Figures:
    steps = _steps(bench, step_bytes, rate)
    # Written: into space that is used again. Read: what was written and synced before, each step once.
    slots = 12 if what == "write" else steps + 4
    common = ["--address", "", "--bytes", str(step_bytes)]
    with nodes(rate) as network, remote_instance(bench, network, slots * step_bytes + 64 * MIB) as instance:
        common[1] = instance.address()
        writing = ["write", *common, "--steps", str(steps)]
        if what == "write":
            prefix = network.prefix(WRITER_NODE)
            arguments = [*writing, "--retention", "last:2"]
            with Program("bench_native", arguments, instance.over(transport), prefix=prefix) as writer:
                return {_RATE: run_alone(writer).rate(step_bytes, _WARMUP)}
        with Program("bench_native", [*writing, "--durable"], instance.local_environment) as writer:
            run_alone(writer)
        reading = ["read", *common, "--verify", "read"]
        prefix = network.prefix(READER_NODE)
        with Program("bench_native", reading, instance.over(transport), prefix=prefix) as reader:
            return {_RATE: run_alone(reader).rate(step_bytes, _WARMUP)}


def _plain(step_bytes: int, what: str, rate: str | None, bench: Workbench) -> Figures:
    with nodes(rate) as network, bench.scratch() as folder:
        common = ["--host", network.address(SERVER_NODE), "--bytes", str(step_bytes), "--checksums"]
        steps = _steps(bench, step_bytes, rate)
        # As above: written into space that is used again, and read each step once.
        slots = 4 if what == "write" else steps
        serving = ["serve", "--path", str(folder / "steps"), "--slots", str(slots), *common]
        asking = [what, "--steps", str(steps), *common]
        with Program("bench_tcp", serving, {}, prefix=network.prefix(SERVER_NODE)) as server:
            server.wait_ready()
            with Program("bench_tcp", asking, {}, prefix=network.prefix(WRITER_NODE)) as client:
                return {_RATE: run_alone(client).rate(step_bytes, _WARMUP)}


def remote_blocks(step_bytes: int) -> Suite:
    """Steps of one block each way, over TCP and by libfabric's tcp."""
    size = f"{step_bytes // MIB} MiB"
    cases = [
        *(
            Case(f"{transport} {what}", functools.partial(_native, step_bytes, transport, what, None))
            for transport in ("tcp", "fabric")
            for what in ("write", "read")
        ),
        *(Case(f"plain {what}", functools.partial(_plain, step_bytes, what, None)) for what in ("write", "read")),
    ]
    targets = {"tcp write": 0.9, "tcp read": 0.9, "fabric write": 0.7, "fabric read": 0.55}
    return Suite(
        name=f"remote-{step_bytes // MIB}",
        cases=cases,
        rows=[
            Row(
                f"remote {what} {size}, {'TCP' if transport == 'tcp' else 'libfabric tcp'}",
                "plain TCP, CRC",
                f"{transport} {what}",
                f"plain {what}",
                _RATE,
                targets[f"{transport} {what}"] if step_bytes == 8 * MIB else None,
            )
            for transport in ("tcp", "fabric")
            for what in ("write", "read")
        ],
        repetitions=3,
        best_of=2,
    )


def remote_limited() -> Suite:
    """A link of 1 Gbit/s: how much of it is used."""
    size = 64 * MIB
    return Suite(
        name="remote-limited",
        cases=[Case(what, functools.partial(_native, size, "tcp", what, "1gbit")) for what in ("write", "read")],
        rows=[
            Row(f"remote {what} 64 MiB, link of 1 Gbit/s", "the link", what, _GIGABIT, _RATE, 0.9)
            for what in ("write", "read")
        ],
        repetitions=1,
        best_of=1,
    )


def _plugin(instance: RemoteInstance, *, writer_is_local: bool) -> Engine:
    common = (f"PluginName={instance.address()}", f"PluginLibrary={plugin_library()}", f"Stream={instance.address()}")
    network = instance.network
    return Engine(
        "Plugin",
        "steps",
        (*common, "RendezvousReaderCount=1", "Retention=consumers:live"),
        (*common, "Consumer=live"),
        writer_environment=instance.local_environment if writer_is_local else instance.over("tcp"),
        reader_environment=instance.over("tcp"),
        writer_prefix=network.prefix(SERVER_NODE if writer_is_local else WRITER_NODE),
        reader_prefix=network.prefix(READER_NODE),
    )


def _run_live(engine: Engine, step_bytes: int, steps: int, pace_us: int) -> Figures:
    with (
        engine.writer(variable_bytes=step_bytes, steps=steps, pace_us=pace_us) as writer,
        engine.reader(variable_bytes=step_bytes) as reader,
    ):
        return live_figures(*run_pair(writer, reader), step_bytes, _LIVE_WARMUP)


def _live(
    step_bytes: int, steps: int, pace_us: int, writer_is_local: bool, bench: Workbench, *, encrypts: bool = True
) -> Figures:
    capacity = _LIVE_SLOTS * step_bytes + 128 * MIB
    with nodes() as network, remote_instance(bench, network, capacity, encrypts=encrypts) as instance:
        return _run_live(_plugin(instance, writer_is_local=writer_is_local), step_bytes, steps, pace_us)


@contextlib.contextmanager
def _sst_nodes(folder: Path) -> Iterator[Engine]:
    with nodes() as network:
        engine = sst(folder, nodelay=True)
        interface = ("NetworkInterface=eth0",)
        yield dataclasses.replace(
            engine,
            # As many steps wait as in our space. Without a limit its writer takes new memory for each.
            parameters=(*engine.parameters, *interface, f"QueueLimit={_LIVE_SLOTS}", "QueueFullPolicy=Block"),
            reader_parameters=(*engine.reader_parameters, *interface),
            writer_prefix=network.prefix(SERVER_NODE),
            reader_prefix=network.prefix(READER_NODE),
        )


def _live_sst(step_bytes: int, steps: int, pace_us: int, bench: Workbench) -> Figures:
    with bench.scratch() as folder, _sst_nodes(folder) as engine:
        return _run_live(engine, step_bytes, steps, pace_us)


def remote_live() -> Suite:
    """64 MiB steps one after the other, from Put to the data in the reader's memory."""
    figure, size, steps = "end_to_end_bytes_per_second", 64 * MIB, 16 + _LIVE_WARMUP
    return Suite(
        name="remote-live",
        cases=[
            Case("one hop", functools.partial(_live, size, steps, 0, True)),
            Case("two hops", functools.partial(_live, size, steps, 0, False)),
            Case("sst", functools.partial(_live_sst, size, steps, 0)),
        ],
        rows=[
            Row("64 MiB steps, reader on another node", "SST NODELAY", "one hop", "sst", figure, 2.0),
            Row("64 MiB steps, writer and reader on others", "SST NODELAY", "two hops", "sst", figure),
        ],
        repetitions=3,
        best_of=2,
    )


def remote_small_steps() -> Suite:
    """4 KiB every 2 ms, from EndStep's call to the data in the reader's memory."""
    figure, size, steps, pace_us = "after_call_seconds", 4 * KIB, 200, 2000
    return Suite(
        name="remote-small",
        cases=[
            Case("one hop", functools.partial(_live, size, steps, pace_us, True)),
            # SST encrypts nothing.
            Case("not encrypted", functools.partial(_live, size, steps, pace_us, True, encrypts=False)),
            Case("two hops", functools.partial(_live, size, steps, pace_us, False)),
            Case("sst", functools.partial(_live_sst, size, steps, pace_us)),
        ],
        rows=[
            Row("4 KiB steps, reader on another node", "SST NODELAY", "one hop", "sst", figure, 1.5),
            Row("4 KiB steps, control messages not encrypted", "SST NODELAY", "not encrypted", "sst", figure),
            Row("4 KiB steps, writer and reader on others", "SST NODELAY", "two hops", "sst", figure),
        ],
        repetitions=5,
        best_of=2,
    )


def _together(bench: Workbench) -> Figures:
    """Readers of one stream that share the server's link."""
    size, steps = 8 * MIB, 6
    with nodes("1gbit") as network, remote_instance(bench, network, (steps + 4) * size) as instance:
        common = ["--address", instance.address(), "--bytes", str(size)]
        with Program("bench_native", ["write", *common, "--steps", str(steps)], instance.local_environment) as writer:
            run_alone(writer)
        with contextlib.ExitStack() as stack:
            readers = [
                stack.enter_context(
                    Program(
                        "bench_native",
                        ["read", *common],
                        instance.over("tcp"),
                        prefix=network.prefix(WRITER_NODE if number % 2 else READER_NODE),
                    )
                )
                for number in range(_READERS)
            ]
            timelines = run_together(readers)
    rates = [steps * size / ((one.steps[-1][2] - one.steps[0][0]) * 1e-9) for one in timelines]
    return {
        "aggregate_bytes_per_second": rate_together(timelines, size),
        "slowest_bytes_per_second": min(rates),
        "mean_bytes_per_second": statistics.mean(rates),
    }


def remote_readers() -> Suite:
    """16 readers on two nodes; the server's link carries 1 Gbit/s."""
    return Suite(
        name="remote-readers",
        cases=[Case("together", _together)],
        rows=[
            Row("16 remote readers, together", "the link", "together", _GIGABIT, "aggregate_bytes_per_second", 0.9),
            Row(
                "16 remote readers, the slowest", "their mean", "together", "together", "slowest_bytes_per_second", 0.5,
                peer_figure="mean_bytes_per_second",
            ),
        ],
        repetitions=1,
        best_of=1,
    )  # fmt: skip
