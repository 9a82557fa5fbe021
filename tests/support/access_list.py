# SPDX-License-Identifier: Apache-2.0
"""POSIX access lists, read and written as the kernel keeps them (linux/posix_acl_xattr.h), without other programs."""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["AccessList"]

_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
_OWNER, _USER, _GROUP_OBJECT, _GROUP, _MASK, _OTHER = 1, 2, 4, 8, 16, 32
_NO_ID = 0xFFFFFFFF


@dataclass
class AccessList:
    """Bits of each entry: 4 read, 2 write, 1 execute or enter."""

    owner: int = 7
    group: int = 0
    other: int = 0
    mask: int | None = None
    users: dict[int, int] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path | int, *, default: bool = False) -> AccessList | None:
        """The list of a file, or of what is made in a folder; None where there is none."""
        try:
            data = os.getxattr(path, _DEFAULT if default else _ACCESS)
        except OSError as error:
            if error.errno == errno.ENODATA:
                return None
            raise
        found = cls()
        for tag, bits, number in struct.iter_unpack("<HHI", data[4:]):
            match tag:
                case 1:
                    found.owner = bits
                case 2:
                    found.users[number] = bits
                case 4:
                    found.group = bits
                case 8:
                    found.groups[number] = bits
                case 16:
                    found.mask = bits
                case 32:
                    found.other = bits
        return found

    def put(self, path: Path | int, *, default: bool = False) -> None:
        """Gives a file this list."""
        entries = [(_OWNER, self.owner, _NO_ID)]
        entries += [(_USER, bits, number) for number, bits in sorted(self.users.items())]
        entries += [(_GROUP_OBJECT, self.group, _NO_ID)]
        entries += [(_GROUP, bits, number) for number, bits in sorted(self.groups.items())]
        if self.mask is not None:
            entries += [(_MASK, self.mask, _NO_ID)]
        entries += [(_OTHER, self.other, _NO_ID)]
        data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        os.setxattr(path, _DEFAULT if default else _ACCESS, data)
