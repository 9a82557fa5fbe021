# SPDX-License-Identifier: Apache-2.0
"""The process that holds the graphics: answers each request of :mod:`forebay.viz.painter` with a picture on disk."""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from forebay.viz.fields import FlowFields
from forebay.viz.scene import Scene
from forebay.viz.scene_options import SceneOptions

__all__ = ["main"]


class _Memory:
    """The parent's memory file, mapped again when it has grown."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._map = mmap.mmap(-1, 1)

    def of_size(self, size: int) -> mmap.mmap:
        if len(self._map) < size:
            self._map = mmap.mmap(self._file, os.fstat(self._file).st_size)
        return self._map


def _save(picture: np.ndarray[Any, np.dtype[np.uint8]], path: Path) -> None:
    """Writes the picture whole: it appears under its name when its bytes are on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            Image.fromarray(picture).save(file, "png", compress_level=3)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _answer(request: dict[str, Any], memory: mmap.mmap, scene: Scene) -> None:
    # The scene keeps what it has drawn last, to compare; the memory is written again for the next step.
    inputs: dict[str, Any] = request["values"]
    for place in request["arrays"]:
        shape = place["shape"]
        flat = np.frombuffer(memory, place["type"], int(np.prod(shape)), place["offset"])
        inputs[place["name"]] = flat.reshape(shape).copy()
    fields = FlowFields(**inputs)
    picture = scene.render(fields)
    _save(picture, Path(request["path"]))
    np.frombuffer(memory, np.uint8, picture.size)[:] = picture.ravel()


def main(arguments: list[str]) -> int:
    """Serves requests from the socket of the first number until it is closed; the second is the memory file."""
    channel = socket.socket(fileno=int(arguments[0]))
    memory = _Memory(int(arguments[1]))
    scene: Scene | None = None
    with channel, channel.makefile("rb") as requests:
        for line in requests:
            request = json.loads(line)
            try:
                if scene is None:
                    scene = Scene(SceneOptions(**request["options"]))
                _answer(request, memory.of_size(request["bytes"]), scene)
                answer = {}
            except (ValueError, OSError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            channel.sendall(json.dumps(answer).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
