# SPDX-License-Identifier: Apache-2.0
"""Renders in a child process, so that a crash or hang of the graphics stack costs one attempt at one frame.

The child opens the step itself: no data passes through the parent, which keeps the step pinned, and its place in the
stream. Requests go through a socket; pixels come back in a memory file that both map. Both vanish with the processes,
however they end. The child's side is :mod:`forebay.viz.painter_child`.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forebay import Step, errors
from forebay.closing import Closing
from forebay.viz.scenes.description import SceneDescription

__all__ = ["Painter", "PainterError"]

_CHILD_MODULE = "forebay.viz.painter_child"


class PainterError(RuntimeError):
    """A frame could not be rendered; the text names the step, what happened and what to do."""


class _ChildFailedError(Exception):
    """The child crashed, hung or could not start: worth another attempt."""


class Painter(Closing):
    """Draws steps to image files, one at a time. Use it in one thread and by ``with``.

    Parameters
    ----------
    scene : SceneDescription
        What is drawn, in which size and quality.
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
        scene: SceneDescription,
        *,
        attempts: int = 3,
        timeout_s: float = 60.0,
        on_retry: Callable[[str], object] | None = None,
        command: Sequence[str] = (sys.executable, "-P", "-m", _CHILD_MODULE),
    ) -> None:
        self._scene, self._attempts, self._timeout_s = scene, attempts, timeout_s
        self._on_retry, self._command = on_retry, tuple(command)
        self._child: _Child | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the pictures."""
        return self._scene.size

    def paint(self, step: Step, path: Path | None = None, *, inner: bool = False) -> NDArray[np.uint8]:
        """Draws a step; when this returns, the whole picture is on disk at ``path``, JPEG or PNG by its suffix.

        Drafts are written, but not synced. With ``inner`` the folder of ``path`` is one that an output has in a folder
        that the user named: a link of another user in its place is refused.

        Returns
        -------
        array, shape (height, width, 3)
            The picture, valid until the next call.

        Raises
        ------
        PainterError
            All attempts failed, or the picture could not be written.
        ForebayError
            What the child got from the stream: the step was dropped, or lacks what the scene shows.
        """
        failures: list[str] = []
        while True:
            try:
                if self._child is None:
                    self._child = _Child(self._command, self._scene)
                return self._child.paint(step, path, inner, self._timeout_s)
            except _ChildFailedError as error:
                self.close()
                failures.append(str(error))
                if len(failures) >= self._attempts:
                    raise PainterError(
                        f"step {step.number} could not be rendered in {self._attempts} attempts; the last one: "
                        f"{failures[-1]}. Check the OpenGL installation (on Debian: libegl1, libgl1-mesa-dri)"
                    ) from None
                if self._on_retry is not None:
                    self._on_retry(f"rendering step {step.number} again: {error}")

    def close(self) -> None:
        """Ends the child. Idempotent."""
        if self._child is not None:
            child, self._child = self._child, None
            child.close()


class _Child:
    """One child process with its socket and memory."""

    def __init__(self, command: Sequence[str], scene: SceneDescription) -> None:
        width, height = scene.size
        self._shape = (height, width, 3)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._memory_file = os.memfd_create("forebay-painter")
        os.ftruncate(self._memory_file, height * width * 3)
        self._memory = mmap.mmap(self._memory_file, height * width * 3)
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
        self._first = pickle.dumps({"scene": scene})

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def paint(self, step: Step, path: Path | None, inner: bool, timeout_s: float) -> NDArray[np.uint8]:
        request = pickle.dumps({"step": pickle.dumps(step), "path": path, "inner": inner})
        answer = self._ask(request, timeout_s)
        if answer:
            kind = getattr(errors, answer["kind"], None) if answer["kind"] else None
            if kind is not None:
                raise kind(answer["what"], answer["where"])
            raise PainterError(f"step {step.number} cannot be rendered: {answer['what']}")
        return np.frombuffer(self._memory, np.uint8).reshape(self._shape)

    def _ask(self, request: bytes, timeout_s: float) -> dict[str, str]:
        self._socket.settimeout(timeout_s)
        first, self._first = self._first, b""
        try:
            for message in filter(None, (first, request)):
                self._socket.sendall(len(message).to_bytes(8, "little") + message)
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
        answer: dict[str, str] = json.loads(line)
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
