# SPDX-License-Identifier: Apache-2.0
"""How large the parts are, and what is kept free there for what: docs/design/files-on-nodes.md, "Room"."""

from __future__ import annotations

from forebay.workflows.files.juicefs.engine_commands import COMPACTION_BYTES

__all__ = ["compaction_bytes", "files_max", "image_bytes", "reserve_bytes", "slack_bytes"]

#: An image has a quarter more than its share: what overwritten blocks take until the keeper has removed them, and those
#: that are on their way into files. A node has up to 100 MiB of the latter, so two that overwrite always find room.
_SLACK = 4
_SLACK_BYTES_MIN = 256 << 20
#: What blocks leave free on each server, and at the home also for Redis.
_RESERVE_BYTES = 16 << 20
_NAMES_BYTES_MIN = 64 << 20
_NAMES_SHARE = 32
#: What a file's name and attributes may take in Redis and its log, also while that is written anew.
_NAME_BYTES = 1024


def _share_bytes(capacity_bytes: int, parts: int) -> int:
    return -(-capacity_bytes // parts)


def slack_bytes(parts: int, capacity_bytes: int) -> int:
    """What a part has beside its share, for blocks that are overwritten or on their way."""
    return max(_share_bytes(capacity_bytes, parts) // _SLACK, -(-_SLACK_BYTES_MIN // parts))


def reserve_bytes(part: int, capacity_bytes: int) -> int:
    """What blocks leave free in a part."""
    return _RESERVE_BYTES if part else max(_NAMES_BYTES_MIN, capacity_bytes // _NAMES_SHARE)


def compaction_bytes(parts: int) -> int:
    """What the home alone may take in a part."""
    return -(-COMPACTION_BYTES // parts)


def image_bytes(part: int, parts: int, capacity_bytes: int) -> int:
    """How large the file system of a part must be, so that files take what was asked and Redis never meets its end."""
    share = _share_bytes(capacity_bytes, parts)
    return share + slack_bytes(parts, capacity_bytes) + reserve_bytes(part, capacity_bytes) + compaction_bytes(parts)


def files_max(capacity_bytes: int) -> int:
    """How many files there may be, so that Redis and its log have room at the home."""
    return reserve_bytes(0, capacity_bytes) // _NAME_BYTES
