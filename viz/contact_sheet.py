# SPDX-License-Identifier: Apache-2.0
"""A contact sheet: small pictures of steps in one image, evenly chosen from all that a movie shows."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from forebay.closing import Closing
from forebay.new_output import new_output

__all__ = ["ContactSheet"]

_COLUMNS, _ROWS = 5, 4
_WIDTH = 240  # pixels of a small picture
_LABEL_HEIGHT = 14
_INTERVAL_S = 1.0
_BACKGROUND, _TEXT = (11, 15, 22), (219, 227, 240)


class ContactSheet(Closing):
    """An image file of at most 20 small pictures, each with its step's number, replaced while steps come.

    Parameters
    ----------
    path : Path
        PNG, or JPEG by its suffix.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # At most twice as many as are shown: every so many-th step that came.
        self._pictures: list[tuple[int, Image.Image]] = []
        self._stride = 1
        self._count = 0
        self._newest: tuple[int, Image.Image] | None = None
        self._written: float | None = None

    @property
    def steps(self) -> list[int]:
        """Numbers of the steps on the sheet: first and newest, and some between at even distances."""
        return [number for number, _ in self._chosen()]

    def add(self, step: int, picture: NDArray[np.uint8]) -> None:
        """Takes a step that comes after those before it, shape (height, width, 3)."""
        image = Image.fromarray(picture)
        small = image.resize((_WIDTH, max(1, round(_WIDTH * image.height / image.width))))
        self._newest = (step, small)
        if self._count % self._stride == 0:
            self._pictures.append(self._newest)
            if len(self._pictures) > 2 * _COLUMNS * _ROWS:
                self._pictures = self._pictures[::2]
                self._stride *= 2
        self._count += 1
        if self._written is None or time.monotonic() - self._written >= _INTERVAL_S:
            self._write()

    def withdraw(self, first: int) -> None:
        """Takes a step and all after it off the sheet."""
        self._pictures = [known for known in self._pictures if known[0] < first]
        if self._newest is not None and self._newest[0] >= first:
            self._newest = self._pictures[-1] if self._pictures else None
        self._count = len(self._pictures) * self._stride
        self._written = None

    def close(self) -> None:
        """Writes the sheet as it is. Idempotent."""
        self._write()

    def _chosen(self) -> list[tuple[int, Image.Image]]:
        found = list(self._pictures)
        if self._newest is not None and (not found or found[-1] is not self._newest):
            found.append(self._newest)
        most = _COLUMNS * _ROWS
        if len(found) > most:
            found = [found[place] for place in np.linspace(0, len(found) - 1, most).round().astype(int)]
        return found

    def _write(self) -> None:
        chosen = self._chosen()
        if not chosen:
            return
        height = chosen[0][1].height + _LABEL_HEIGHT
        columns = min(_COLUMNS, len(chosen))
        sheet = Image.new("RGB", (columns * _WIDTH, -(-len(chosen) // columns) * height), _BACKGROUND)
        pen = ImageDraw.Draw(sheet)
        for place, (number, small) in enumerate(chosen):
            x, y = place % columns * _WIDTH, place // columns * height
            sheet.paste(small, (x, y + _LABEL_HEIGHT))
            pen.text((x + 4, y + 1), f"step {number}", fill=_TEXT)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with new_output(self._path) as path:
            sheet.save(path)
        self._written = time.monotonic()
