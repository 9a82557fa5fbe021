# SPDX-License-Identifier: Apache-2.0
"""The process that holds the graphics: opens the step that :mod:`forebay.viz.painter` names, and draws it."""

from __future__ import annotations

import json
import mmap
import os
import pickle
import socket
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from forebay import Step
from forebay.errors import ForebayError
from forebay.files.by_descriptor import found_inner
from forebay.new_output import new_output
from forebay.viz.scenes.description import Quality, SceneDescription
from forebay.viz.scenes.picture import ScenePicture

__all__ = ["main"]


class _Canvas:
    """The picture of one scene, and the memory that the parent sees its pixels in."""

    def __init__(self, scene: SceneDescription, memory_file: int) -> None:
        self._scene = scene
        self._picture = ScenePicture(scene)
        self._memory = mmap.mmap(memory_file, os.fstat(memory_file).st_size)
        # Keeps the connection to the stream open from one step to the next.
        self._previous: Step | None = None

    def draw(self, request: dict[str, Any]) -> None:
        step: Step = pickle.loads(request["step"])  # noqa: S301 - from our parent; it opens the step
        with step:
            self._picture.show(step)
        self._previous = step
        pixels = self._picture.render()
        if request["path"] is not None:
            _save(pixels, request["path"], self._scene.quality, inner=request["inner"])
        np.frombuffer(self._memory, np.uint8, pixels.size)[:] = pixels.ravel()


def _save(pixels: np.ndarray[Any, np.dtype[np.uint8]], path: Path, quality: Quality, *, inner: bool) -> None:
    """Writes the picture whole: it appears under its name when its bytes are on disk, or written if it is a draft."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = found_inner(path.parent) if inner else nullcontext(path.parent)
    with found as folder, new_output(folder / path.name) as hidden, hidden.open("wb") as file:
        if path.suffix.lower() in (".jpg", ".jpeg"):
            Image.fromarray(pixels).save(file, "jpeg", quality=90)
        else:
            Image.fromarray(pixels).save(file, "png", compress_level=3 if quality is Quality.FULL else 1)
        if quality is Quality.FULL:
            file.flush()
            os.fsync(file.fileno())


def main(arguments: list[str]) -> int:
    """Serves requests from the socket of the first number until it is closed; the second is the memory file."""
    channel = socket.socket(fileno=int(arguments[0]))
    with channel, channel.makefile("rb") as requests:
        canvas: _Canvas | None = None
        scene: SceneDescription | None = None
        while header := requests.read(8):
            request = pickle.loads(requests.read(int.from_bytes(header, "little")))  # noqa: S301 - from our parent
            if "scene" in request:
                scene = request["scene"]
                continue
            assert scene is not None
            answer: dict[str, str] = {}
            try:
                canvas = canvas or _Canvas(scene, int(arguments[1]))
                canvas.draw(request)
            except ForebayError as error:
                answer = {"kind": type(error).__name__, "what": error.what, "where": error.where}
            except (ValueError, OSError) as error:
                answer = {"kind": "", "what": f"{type(error).__name__}: {error}"}
            channel.sendall(json.dumps(answer).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
