# SPDX-License-Identifier: Apache-2.0
"""`import forebay` is light and quiet, and works without a server."""

from __future__ import annotations

import subprocess
import sys

import forebay


def test_import_needs_numpy_alone_and_says_nothing() -> None:
    program = (
        "import sys, numpy; before = set(sys.modules); import forebay; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'numpy'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['forebay']"
    assert done.stderr == ""


def test_every_public_name_exists() -> None:
    for name in forebay.__all__:
        assert getattr(forebay, name) is not None


def test_checksum_is_crc32c() -> None:
    assert forebay.crc32c(b"123456789") == 0xE3069283
    assert forebay.crc32c(b"6789", forebay.crc32c(b"12345")) == 0xE3069283
