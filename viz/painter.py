# SPDX-License-Identifier: Apache-2.0
"""Renders in a child process, so that a crash or hang of the graphics stack costs one attempt at one frame.

Arrays and pixels pass through a memory file that both processes map; a socket carries one line of JSON each way per
frame. Both vanish with the processes, however they end. The child's side is :mod:`forebay.viz.painter_child`.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.closing import Closing
from forebay.viz.fields import FlowFields
from forebay.viz.scene_options import SceneOptions

__all__ = ["Painter", "PainterError"]

_ALIGNMENT = 64
_CHILD_MODULE = "forebay.viz.painter_child"


class PainterError(RuntimeError):
    """A frame could not be rendered; the text names the step, what happened and what to do."""


class _ChildFailedError(Exception):
    """The child crashed, hung or could not start: worth another attempt."""


class Painter(Closing):
    """Renders steps to image files, one at a time. Use it in one thread and by ``with``.

    Parameters
    ----------
    options : SceneOptions
        Size and wording of the pictures.
    attempts : int
        How often one frame is tried while the child crashes or hangs.
    timeout_s : float
        How long one frame may take.
    on_retry : callable, optional
        Called with a sentence when a frame is tried again.
    command : sequence of str, optional
        Program that is the child; the numbers of its socket and memory file are appended.
    """

    def __init__(
        self,
        options: SceneOptions,
        *,
        attempts: int = 3,
        timeout_s: float = 60.0,
        on_retry: Callable[[str], object] | None = None,
        command: Sequence[str] = (sys.executable, "-m", _CHILD_MODULE),
    ) -> None:
        self._options, self._attempts, self._timeout_s = options, attempts, timeout_s
        self._on_retry, self._command = on_retry, tuple(command)
        self._child: _Child | None = None

    def paint(self, fields: FlowFields, path: Path) -> NDArray[np.uint8]:
        """Renders one step; when this returns, the whole picture is on disk at ``path``.

        Returns
        -------
        array, shape (height, width, 3)
            The picture, valid until the next call.

        Raises
        ------
        PainterError
            All attempts failed, or the fields cannot be drawn.
        """
        failures: list[str] = []
        while True:
            try:
                if self._child is None:
                    self._child = _Child(self._command, self._options)
                return self._child.paint(fields, path, self._timeout_s)
            except _ChildFailedError as error:
                self.close()
                failures.append(str(error))
                if len(failures) >= self._attempts:
                    raise PainterError(
                        f"step {fields.step} could not be rendered in {self._attempts} attempts; the last one: "
                        f"{failures[-1]}. Check the OpenGL installation (on Debian: libegl1, libgl1-mesa-dri)"
                    ) from None
                if self._on_retry is not None:
                    self._on_retry(f"rendering step {fields.step} again: {error}")

    def close(self) -> None:
        """Ends the child. Idempotent."""
        if self._child is not None:
            child, self._child = self._child, None
            child.close()


class _Child:
    """One child process with its socket and memory."""

    def __init__(self, command: Sequence[str], options: SceneOptions) -> None:
        self._options = options
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._memory_file = os.memfd_create("forebay-painter")
        self._memory: mmap.mmap | None = None
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(self._memory_file)],
                pass_fds=(theirs.fileno(), self._memory_file),
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        self._lines = ours.makefile("rb")

    def paint(self, fields: FlowFields, path: Path, timeout_s: float) -> NDArray[np.uint8]:
        arrays: dict[str, NDArray[Any]] = {
            "velocity": fields.velocity,
            "solid": fields.solid,
            "sphere_centres": fields.sphere_centres,
        }
        pixel_bytes = self._options.height * self._options.width * 3
        places: list[dict[str, Any]] = []
        end = _aligned(pixel_bytes)
        for name, array in arrays.items():
            places.append({"name": name, "type": array.dtype.str, "shape": array.shape, "offset": end})
            end = _aligned(end + array.nbytes)
        memory = self._mapped(end)
        for place, array in zip(places, arrays.values(), strict=True):
            np.frombuffer(memory, array.dtype, array.size, place["offset"])[:] = array.ravel()
        values = {
            name: getattr(fields, name)
            for name in (
                "step", "time", "spacing", "sphere_radius", "cylinder_radius", "speed_units", "length_units",
                "time_units",
            )
        }  # fmt: skip
        request = {
            "options": dataclasses.asdict(self._options),
            "values": values,
            "arrays": places,
            "path": str(path),
            "bytes": end,
        }
        answer = self._ask(request, timeout_s)
        if "error" in answer:
            raise PainterError(f"step {fields.step} cannot be rendered: {answer['error']}")
        shape = (self._options.height, self._options.width, 3)
        return np.frombuffer(memory, np.uint8, pixel_bytes).reshape(shape)

    def _mapped(self, size: int) -> mmap.mmap:
        if self._memory is None or len(self._memory) < size:
            os.ftruncate(self._memory_file, size)
            # An older mapping stays alive as long as an array over it does.
            self._memory = mmap.mmap(self._memory_file, size)
        return self._memory

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._lines.readline()
        except TimeoutError:
            raise _ChildFailedError(
                f"the rendering process gave no frame within {timeout_s:g} s{self._words()}"
            ) from None
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        if not line:
            status = self._process.wait(timeout_s)
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise _ChildFailedError(f"the rendering process {how}{self._words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _words(self) -> str:
        """The last lines that the child printed."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f", saying: {' | '.join(lines[-5:])}" if lines else ""

    def close(self) -> None:
        self._lines.close()
        self._socket.close()  # what the child waits on; it then ends by itself
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._memory_file)
        self._errors.close()


def _aligned(offset: int) -> int:
    return (offset + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
