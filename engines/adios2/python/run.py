# SPDX-License-Identifier: Apache-2.0
"""`forebay run`: any ADIOS2 program on Forebay, without XML and without a change of the program.

It preloads the hook (engines/adios2/hook), which stands in front of ADIOS2's ``IO::Open`` in the program and everything
that it starts. What was asked for and seen comes back through a small file, because a static or setuid program never
meets a preloaded library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import forebay
from forebay.adios2.plugin import environment, hook_library, plugin_library
from forebay.visible_text import visible

__all__ = ["EXIT_NONE_OPENED", "prepared_environment", "run", "run_app"]

#: The program succeeded, but ADIOS2's Open was never called where the hook could see it.
EXIT_NONE_OPENED = 3

_EXIT_NOT_FOUND = 127
_EXIT_NOT_EXECUTABLE = 126
_PR_SET_PDEATHSIG = 1
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

run_app = typer.Typer(add_completion=False)


@run_app.command(
    "run",
    epilog="Example: mpiexec -n 4 forebay run --reservation gs --engine-for 'gs.bp' -- ./gray-scott settings.json",
    context_settings={"allow_interspersed_args": False},
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The program and its arguments.")],
    engine_for: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-for",
            metavar="GLOB",
            help="Use a stream for what is opened under such a name: the full one, or its last part. May be repeated.",
        ),
    ] = None,
    engine_for_io: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-for-io",
            metavar="GLOB",
            help="Use a stream for whatever an IO of such a name opens. May be repeated.",
        ),
    ] = None,
    reservation: Annotated[
        str | None,
        typer.Option(
            "--reservation",
            metavar="RES",
            help="The streams are RES/NAME, after the names that the program opens; else $FOREBAY_STREAM says which.",
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="ID",
            help="Name of the coupling, the same for all its programs and after a restart: readers take no step of "
            "another run. Else $FOREBAY_RUN.",
        ),
    ] = None,
    allow_none: Annotated[
        bool, typer.Option("--allow-none", help="Do not fail if the program opens nothing by ADIOS2.")
    ] = False,
) -> int:
    """Run an ADIOS2 program (C++, C or Python) whose files become streams, without any change to it.

    Only what --engine-for and --engine-for-io name goes to Forebay; all else is left alone. The exit status is the
    program's, or 3 if it succeeded but ADIOS2 was never seen to open anything.
    """
    names, ios = engine_for or [], engine_for_io or []
    variables = prepared_environment(os.environ, names, ios, reservation, run_id)
    with _report_file() as report:
        variables["FOREBAY_RUN_REPORT"] = str(report)
        status = _run_child(command, variables)
        events = set(report.read_text(encoding="ascii", errors="replace").split("\n"))
    unmatched = [glob for index, glob in enumerate(names) if f"name {index}" not in events]
    unmatched += [glob for index, glob in enumerate(ios) if f"io {index}" not in events]
    opened = "open" in events
    if not opened and not allow_none:
        _tell(
            f"no ADIOS2 Open was seen in {command[0]}. A static or setuid program, or one without ADIOS2 2.12, cannot "
            "be served this way; --allow-none accepts it"
        )
        return status or EXIT_NONE_OPENED
    if opened and unmatched:
        _tell("the program opened nothing that matches " + ", ".join(unmatched))
    return status


def prepared_environment(
    inherited: Mapping[str, str],
    names: Sequence[str],
    ios: Sequence[str],
    reservation: str | None,
    run_id: str | None = None,
) -> dict[str, str]:
    """The variables that the program runs with.

    Raises
    ------
    InvalidArgumentError
        Nothing is asked for, no stream is named, or a pattern or path cannot be passed on.
    NotFoundError
        The plugin or the hook is not installed.
    """
    if not names and not ios:
        raise forebay.InvalidArgumentError(
            "no pattern says which files become streams; give --engine-for GLOB or --engine-for-io GLOB"
        )
    for glob in [*names, *ios]:
        if not glob or "\n" in glob:
            raise forebay.InvalidArgumentError(f"not a pattern for names: {glob!r}")
    variables = {**inherited, **environment()}
    if reservation is not None:
        forebay.Address.parse(f"{reservation}/name")  # the error names what is wrong with it
        variables["FOREBAY_STREAM"] = f"{reservation}/{{name}}"
    elif not inherited.get("FOREBAY_STREAM"):
        raise forebay.InvalidArgumentError(
            "no reservation is given; give --reservation RES, or set FOREBAY_STREAM=RES/{name}"
        )
    if run_id is not None:
        if not run_id or "\0" in run_id:
            raise forebay.InvalidArgumentError("--run takes the name of a coupling, which is not empty")
        variables["FOREBAY_RUN"] = run_id
    hook = str(hook_library())
    if any(separator in hook for separator in ": \t"):
        raise forebay.InvalidArgumentError(
            f"the hook's path {hook!r} has a space or colon in it, at which LD_PRELOAD would split it; install Forebay "
            "elsewhere"
        )
    preloaded = inherited.get("LD_PRELOAD", "")
    variables["LD_PRELOAD"] = f"{hook}:{preloaded}" if preloaded else hook
    variables["FOREBAY_RUN_PLUGIN"] = str(plugin_library())
    variables["FOREBAY_RUN_ENGINE_FOR"] = "\n".join(names)
    variables["FOREBAY_RUN_ENGINE_FOR_IO"] = "\n".join(ios)
    return variables


@contextmanager
def _report_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="forebay-run-") as folder:
        report = Path(folder) / "report"
        report.touch(mode=0o600)
        yield report


def _run_child(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """The program's exit status as a shell would have it. Launchers hand descriptors over, so all stay open."""
    parent = os.getpid()
    libc = ctypes.CDLL(None)
    # What comes before there is a handler that hands it on waits for that.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    previous: dict[signal.Signals, Any] = {}
    try:
        child = subprocess.Popen(
            list(command),
            env=dict(variables),
            close_fds=False,
            preexec_fn=prepare,
        )
        # Ctrl-C at a terminal reaches the program as well: it decides what comes of it.
        previous[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in _FORWARDED:
            previous[number] = signal.signal(number, lambda received, _: child.send_signal(received))
    except FileNotFoundError:
        _tell(f"there is no program {command[0]}")
        return _EXIT_NOT_FOUND
    except PermissionError:
        _tell(f"{command[0]} cannot be executed: it is a folder, or its permissions forbid it")
        return _EXIT_NOT_EXECUTABLE
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        status = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _tell(text: str) -> None:
    sys.stderr.write(f"forebay run: {visible(text)}\n")
