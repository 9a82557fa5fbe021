# SPDX-License-Identifier: Apache-2.0
"""The secret by which a stage knows again what it left behind when it was killed (docs/design/file-mover.md).

It follows from a key of the manager's, the user and the job: the same stage that is asked for again has the same one,
and nobody else can tell it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from forebay.errors import CorruptError, readable_errors

__all__ = ["KEY_NAME", "stage_key", "stage_secret"]

KEY_NAME = "stage.key"
_KEY_BYTES = 32


def stage_secret(root: Path, uid: int, job: dict[str, Any]) -> str:
    """64 hexadecimal digits. Makes the key if the instance has none yet.

    Raises
    ------
    CorruptError
        The key was not written whole.
    NoSpaceError, StorageError, PermissionDeniedError
        The disk.
    """
    text = json.dumps([uid, job], sort_keys=True)
    return hmac.new(stage_key(root), text.encode(), hashlib.sha256).hexdigest()


def stage_key(root: Path) -> bytes:
    """The instance's key, which is made if there is none yet; raises as ``stage_secret``."""
    path = root / KEY_NAME
    with readable_errors(
        path,
        full="the disk that holds the key of the instance's stages is full; make room there",
        denied="the manager may not read or make the key of the instance's stages",
        failed="see to the disk that holds the key of the instance's stages",
    ):
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            _make_key(path)
            key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise CorruptError(
            "this is not the key of the instance's stages; remove it, and the next stage makes one", str(path)
        )
    return key


def _make_key(path: Path) -> None:
    """Two that make it at once get the same one: whose link comes second takes the other's."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
