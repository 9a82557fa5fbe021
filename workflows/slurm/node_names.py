# SPDX-License-Identifier: Apache-2.0
"""Names of nodes as Slurm writes a list of them: `n[01-04,7],login1`."""

from __future__ import annotations

import re

from forebay.errors import InvalidArgumentError

__all__ = ["parse_node_names"]

_ITEM = re.compile(r"([A-Za-z0-9._-]+)(?:\[([0-9,-]+)\]([A-Za-z0-9._-]*))?(?:,|$)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_NODES_MAX = 200_000


def parse_node_names(text: str) -> frozenset[str]:
    """The nodes that the list names. One range in a name; none in "".

    Raises
    ------
    InvalidArgumentError
        It is no such list, or names too many.
    """
    names: set[str] = set()
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise InvalidArgumentError(f"{text[:80]!r} is no list of nodes; write n[1-4],login1")
        at = item.end()
        head, ranges, tail = item.groups()
        if ranges is None:
            names.add(head)
            continue
        for part in ranges.split(","):
            found = _RANGE.fullmatch(part)
            if found is None:
                raise InvalidArgumentError(f"[{ranges[:80]}] is no range of nodes; write n[1-4]")
            first, last = int(found[1]), int(found[2] or found[1])
            if last - first + len(names) >= _NODES_MAX:
                raise InvalidArgumentError(f"{text[:80]!r} names more than {_NODES_MAX} nodes")
            names.update(f"{head}{number:0{len(found[1])}}{tail}" for number in range(first, last + 1))
    return frozenset(names)
