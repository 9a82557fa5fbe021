# SPDX-License-Identifier: Apache-2.0
"""The packed cylinder, whole: a running simulation is rendered, analysed and checkpointed, and survives being killed.

command_line.py says how it is run.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from cast import STREAM, Cast
from command_line import REPOSITORY, parse
from instance import Instance
from nodes import NodeCast, NodeInstance, NodeShow, PoolInstance, PoolShow
from plan import DEFAULT_GRID, RANKS, SMALL_GRID, Plan
from programs import DemoError, Programs, processes_of_instance
from rich.console import Console
from rich.text import Text
from screen import Screen
from show import Show
from summary import print_summary, save, summarize
from verification import Check, Verification

import forebay

#: A folder of this name in DIR says that the demo may clear DIR.
_MARK = ".forebay-demo"


def main() -> int:
    """Runs the demo; returns the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    options = parse()
    plan = Plan(options.steps, SMALL_GRID if options.small else DEFAULT_GRID)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    out: Path = options.out.absolute()
    try:
        simulation = _find_simulation()
        _prepare_folder(out)
        nodes = PoolInstance if options.servers else NodeInstance if options.remote else None
        with nodes(out / "instance", plan.capacity) if nodes else Instance(out / "instance") as instance:
            checks = _run(plan, out, simulation, instance, console)
    except (DemoError, forebay.ForebayError, OSError) as error:
        console.print(Text.assemble(("the demo has failed: ", "bold red"), str(error)))
        console.print(f"logs: {out / 'log'}, {out / 'instance' / 'log'}")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; everything that the demo had started was ended")
        return 130
    if not all(check.holds for check in checks):
        console.print(Text.assemble(("not everything holds", "bold red"), f"; logs and instance: {out}"))
        return 1
    shutil.rmtree(out / "work")
    shutil.rmtree(out / "instance", ignore_errors=nodes is not None)  # The nodes took theirs with them.
    console.print(f"all {len(checks)} checks hold; see {out}")
    return 0


def _run(plan: Plan, out: Path, simulation: Path, instance: Instance, console: Console) -> list[Check]:
    """Everything from `forebay up` to `forebay down`; returns the checks."""
    console.print(
        f"packed cylinder {plan.grid.name}, {plan.steps} steps of {plan.iterations_per_step} iterations, {RANKS} ranks"
    )
    console.print(
        f"results in {out}\nwatch it elsewhere: FOREBAY_ROOT={instance.root} {instance.command} watch {STREAM}"
    )
    instance.up()
    with Programs(out / "log") as programs:
        of_nodes = isinstance(instance, NodeInstance)
        cast = (NodeCast if of_nodes else Cast)(plan, out, simulation, instance, programs)
        cast.create_reservation()
        with Screen(f"Packed cylinder, {plan.steps} steps", plan.steps) as screen:
            of_show = PoolShow if isinstance(instance, PoolInstance) else NodeShow if of_nodes else Show
            show = of_show(plan, cast, instance, programs, screen)
            show.run()
    console.print("\nchecking")
    checks = []
    for check in (*Verification(plan, cast, show.course).run(), *_check_instance(instance)):
        checks.append(check)
        mark = Text("  holds  " if check.holds else "  FAILS  ", "green" if check.holds else "bold red")
        console.print(Text.assemble(mark, f"{check.claim}: {check.seen}"))
    console.print()
    summary = summarize(plan, cast, show.course)
    print_summary(summary, console)
    save(summary, checks, out / "summary.json")
    return checks


def _check_instance(instance: Instance) -> Iterator[Check]:
    """Is it clean, and does nothing stay behind?"""
    diagnosis = instance.doctor()
    texts = [f"{finding['where']}: {finding['what']}" for finding in diagnosis["findings"]]
    yield Check(
        "`forebay doctor --read-data` calls the instance clean", diagnosis["clean"], "; ".join(texts) or "clean"
    )
    left = instance.down()
    left += processes_of_instance(instance.root)
    yield Check("after `forebay down` nothing runs", not left, f"left: {left}" if left else "nothing")


def _find_simulation() -> Path:
    named = os.environ.get("FOREBAY_EXAMPLES_BIN")
    build = Path(os.environ.get("FOREBAY_BUILD_DIR", REPOSITORY / "build" / "dev"))
    program = (Path(named) if named else build / "examples" / "01_packed_cylinder") / "packed_cylinder"
    if not program.is_file():
        raise DemoError(f"the simulation is not built ({program} is missing): run ./run build")
    return program


def _prepare_folder(out: Path) -> None:
    """An empty folder; what an earlier demo left goes, anything else is refused."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        if not (out / _MARK).exists():
            raise DemoError(f"{out} has files that no demo has made; name another folder with --out")
        root = out / "instance"
        if (root / "cluster.json").exists():
            NodeInstance(root).down()
        elif processes_of_instance(root):
            Instance(root).down()
        for path in out.iterdir():
            if path.name != _MARK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    (out / _MARK).touch()
    for folder in ("log", "work"):
        (out / folder).mkdir()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
