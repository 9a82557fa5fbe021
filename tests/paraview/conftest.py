# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a server, a reservation, and Debian's ParaView that finds Forebay and nothing else of this environment."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

import forebay
from tests.integration.conftest import reservation, server
from tests.support.time_limits import seconds

__all__ = ["ParaView", "display", "paraview", "paraview_environment", "reservation", "server"]

_SESSION = Path(__file__).with_name("session.py")


@pytest.fixture(scope="session", autouse=True)
def display() -> Iterator[None]:
    """Debian's ParaView draws on a display only: one of Xvfb, which the environment names."""
    for program in ("pvpython", "Xvfb"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install paraview python3-paraview xvfb")
    with ExitStack() as stack:
        theirs, ours = os.pipe()
        # Without -noreset it begins anew when its last client has gone, and refuses the next one meanwhile.
        xvfb = subprocess.Popen(
            ["Xvfb", "-displayfd", str(ours), "-screen", "0", "1280x1024x24", "-nolisten", "tcp", "-noreset"],
            pass_fds=(ours,),
            stderr=subprocess.DEVNULL,
        )
        os.close(ours)
        stack.callback(xvfb.wait)
        stack.callback(xvfb.terminate)
        # It tells its number when it serves.
        with os.fdopen(theirs) as told:
            number = told.readline().strip()
        assert number, "Xvfb does not start"
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("DISPLAY", f":{number}")
        yield


@pytest.fixture(scope="session")
def paraview_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With what docs/consumers/paraview.md has users install, and no other library of this environment."""
    folder = tmp_path_factory.mktemp("lazy-loader")
    found = importlib.util.find_spec("lazy_loader")
    assert found is not None
    assert found.origin is not None
    (folder / "lazy_loader").symlink_to(Path(found.origin).parent)
    path = os.pathsep.join(map(str, (Path(forebay.__file__).parents[1], folder)))
    return {**os.environ, "PYTHONPATH": path, "PYTHONNOUSERSITE": "1"}


class ParaView:
    """A process of ParaView that evaluates what the test asks."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["pvpython", _SESSION],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(seconds(30))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def do(self, statements: str) -> None:
        """Runs statements."""
        self._ask({"do": statements})

    def get(self, expression: str) -> Any:
        """The value of an expression, by way of JSON."""
        return self._ask({"get": expression})

    def _ask(self, request: dict[str, str]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        # ParaView prints messages of its own.
        for line in self._process.stdout:
            if line.startswith("answer "):
                answer = json.loads(line.removeprefix("answer "))
                assert "error" not in answer, answer["error"]
                return answer["value"]
        raise AssertionError(f"ParaView ended with status {self._process.wait()}")


@pytest.fixture
def paraview(paraview_environment: dict[str, str]) -> Iterator[ParaView]:
    """ParaView, with ``simple`` and ``forebay_paraview`` imported."""
    with ParaView(paraview_environment) as started:
        yield started
