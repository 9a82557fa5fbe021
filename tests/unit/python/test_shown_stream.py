# SPDX-License-Identifier: Apache-2.0
"""What the process of a mount keeps of the steps that it has shown."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any, Self

import pytest

from forebay.views import shown_stream
from forebay.views.sealed_file import HeaderRun, SealedFile
from forebay.views.shown_stream import ShownStream

MIB = 1 << 20
HEADER_BYTES = 4 * MIB  # a step with some thousand small arrays


class _Step(SimpleNamespace):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Stream:
    address = SimpleNamespace(stream="flow")

    def __getitem__(self, number: int) -> _Step:
        return _Step(number=number, epoch=1, time_ns=0)


class _Format:
    def lay_out(self, step: Any, variable: str | None) -> SealedFile:
        return SealedFile(HEADER_BYTES + step.number, (HeaderRun(0, bytes(HEADER_BYTES)),), ())


def test_headers_of_steps_are_remembered_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_stream, "format_named", lambda _: _Format())
    shown = ShownStream(_Stream(), ["h5"])  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        for number in range(100):
            assert shown.look_up(b"flow@%d.h5" % number)[1] == HEADER_BYTES + number
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 100 * MIB
