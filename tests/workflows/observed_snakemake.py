# SPDX-License-Identifier: Apache-2.0
"""Snakemake, observed from inside: counts what it asks of the plugin, or dies in the middle of a question.

observed_snakemake.py count FILE SNAKEMAKE-ARGUMENTS...     writes counts as JSON when it has ended
observed_snakemake.py kill METHOD SNAKEMAKE-ARGUMENTS...    kills itself at the end of the method's first call
"""

import atexit
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import snakemake_storage_plugin_forebay as plugin  # type: ignore[import-untyped]
from snakemake.cli import main

what, subject, *arguments = sys.argv[1:]
counts = {"exists": 0, "size": 0, "mtime": 0, "round_trips": 0}


def count(name: str) -> None:
    original = getattr(plugin.StorageObject, name)

    def counted(self: Any) -> Any:
        before = self.provider.snapshots.round_trips
        try:
            return original(self)
        finally:
            counts[name] += 1
            counts["round_trips"] += self.provider.snapshots.round_trips - before

    setattr(plugin.StorageObject, name, counted)


def die_after(name: str) -> None:
    original = getattr(plugin.StorageObject, name)

    def dies(self: Any) -> None:
        original(self)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(plugin.StorageObject, name, dies)


def die_within_copy() -> None:
    """Half of a file has been stored."""

    def dies(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:1])
        os.kill(os.getpid(), signal.SIGKILL)

    plugin._copy = dies


if what == "count":
    for method in ("exists", "size", "mtime"):
        count(method)
    atexit.register(lambda: Path(subject).write_text(json.dumps(counts)))
elif subject == "copy":
    die_within_copy()
else:
    die_after(subject)
# Snakemake, and the jobs' Snakemakes, read them again.
sys.argv = ["snakemake", *arguments]
main(arguments)
