# SPDX-License-Identifier: Apache-2.0
"""Prints the newest versions of glibc's and libstdc++'s symbols that the programs and libraries of a wheel ask for.

symbol_versions.py WHEEL [--json]. It reads the tables of needed versions (.gnu.version_r) in each ELF file.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

ELF_MAGIC = b"\x7fELF"
FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")


def needed_versions(file: bytes) -> set[str]:
    """The versions that one ELF file asks for, for example ``GLIBCXX_3.4.30``."""
    section = ELFFile(io.BytesIO(file)).get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return set()
    return {version.name for _, versions in section.iter_versions() for version in versions}


def newest(versions: set[str]) -> dict[str, str]:
    """The newest version of each family."""
    found: dict[str, tuple[int, ...]] = {}
    for version in versions:
        match = re.fullmatch(rf"({'|'.join(FAMILIES)})_([\d.]+)", version)
        if match:
            numbers = tuple(int(part) for part in match[2].split("."))
            found[match[1]] = max(found.get(match[1], ()), numbers)
    return {family: ".".join(map(str, numbers)) for family, numbers in sorted(found.items())}


def versions_of_wheel(wheel: Path) -> dict[str, str]:
    """The newest versions that anything in a wheel asks for."""
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if content.startswith(ELF_MAGIC):
                found |= needed_versions(content)
    return newest(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    versions = versions_of_wheel(arguments.wheel)
    if arguments.json:
        print(json.dumps(versions))
    else:
        print("it needs " + ", ".join(f"{family} {version}" for family, version in versions.items()))


if __name__ == "__main__":
    main()
