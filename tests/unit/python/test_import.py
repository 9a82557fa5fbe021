# SPDX-License-Identifier: Apache-2.0
"""`import forebay` is light and quiet, and works without a server."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import forebay


def imported_by(statement: str) -> list[str]:
    """Top-level packages beside Python's own; whatever the statement prints fails the test."""
    program = (
        f"import sys; before = set(sys.modules); {statement}; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(' '.join(sorted(new - set(sys.stdlib_module_names))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()[-1].split()


def test_import_is_light_and_says_nothing() -> None:
    assert imported_by("import forebay") == ["forebay", "lazy_loader"]


def test_a_stream_needs_numpy_alone() -> None:
    needed = imported_by("import numpy; import forebay; [getattr(forebay, name) for name in forebay.__all__]")
    assert needed == ["forebay", "lazy_loader", "numpy"]


@pytest.mark.parametrize("words", [["ls"], ["create", "run1"], ["stages"], ["up"]])
def test_commands_that_read_no_data_do_not_wait_for_numpy(words: list[str]) -> None:
    """Users and scripts call them often, and NumPy would be half of what they take."""
    needed = imported_by(f"from forebay.cli.root import run; run({[*words, '--help']}); sys.stdout.flush()")
    assert "forebay" in needed
    assert "numpy" not in needed


def test_the_manager_does_not_wait_for_numpy() -> None:
    assert "numpy" not in imported_by("import forebay.workflows.manager.__main__")


def test_every_public_name_exists() -> None:
    for name in forebay.__all__:
        assert getattr(forebay, name) is not None


def test_type_checkers_see_the_public_names() -> None:
    stub = ast.parse(Path(str(forebay.__file__)).with_suffix(".pyi").read_text())
    listed = next(node for node in stub.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(listed.value) == sorted(forebay.__all__)


def test_checksum_is_crc32c() -> None:
    assert forebay.crc32c(b"123456789") == 0xE3069283
    assert forebay.crc32c(b"6789", forebay.crc32c(b"12345")) == 0xE3069283


THREADS = """
import sys, threading, forebay
from forebay import options
names, begin, failed = sys.argv[1:], threading.Barrier(len(sys.argv) + 1), []
def use(what, *arguments):
    begin.wait()
    try:
        for _ in range(200):
            what(*arguments)
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=use, args=(getattr, forebay, name)) for name in names]
threads += [threading.Thread(target=use, args=(options.milliseconds, 5.0)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(repr(failed) if failed else 0)
"""


@pytest.mark.parametrize(
    "names",
    [["ShapeKind", "WritableStream"], ["open", "WritableStream", "ShapeKind"], ["WritableStream", "Series"]],
)
def test_threads_may_use_it_for_the_first_time_together(names: list[str]) -> None:
    """NumPy's own first import fails if threads begin it by different ways."""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", THREADS, *names], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_what_there_is_can_be_listed_and_what_is_not_says_so() -> None:
    assert {"open", "__doc__", "__file__", "errors"} <= set(dir(forebay))
    with pytest.raises(AttributeError, match="module 'forebay' has no attribute 'opener'"):
        forebay.opener  # type: ignore[attr-defined]  # noqa: B018
