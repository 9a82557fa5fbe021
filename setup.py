# SPDX-License-Identifier: Apache-2.0
"""Builds the distribution: collects the packages from the tree and lets CMake build and install the native parts.

Metadata, and which folder is which package, stand in pyproject.toml. FOREBAY_NATIVE=0 leaves the native parts out:
`./run build` builds them itself, incrementally, and installs them into the editable tree.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def packages_by_folder() -> dict[str, str]:
    """Every import package that exists, with its folder relative to the root."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        roots: dict[str, str] = tomllib.load(file)["tool"]["setuptools"]["package-dir"]
    claimed = set(roots.values())
    found: dict[str, str] = {}
    for package, folder in roots.items():
        if not (ROOT / folder / "__init__.py").is_file():
            continue
        found[package] = folder
        for name in find_packages(str(ROOT / folder)):
            subfolder = f"{folder}/{name.replace('.', '/')}"
            # A folder that is mapped to a package of its own is not a sub-package as well.
            if not any(subfolder == other or subfolder.startswith(f"{other}/") for other in claimed - {folder}):
                found[f"{package}.{name}"] = subfolder
    return found


def man_pages() -> list[str]:
    """The pages for `man`, made from the commands' help; relative to the root."""
    subprocess.run([sys.executable, "scripts/man_pages.py", "build/man"], cwd=ROOT, check=True)
    return sorted(str(page.relative_to(ROOT)) for page in (ROOT / "build" / "man").glob("*.1"))


# Keywords that scikit-build-core adds to setup().
native: dict[str, Any] = {} if os.environ.get("FOREBAY_NATIVE") == "0" else {"cmake_source_dir": "."}
packages = packages_by_folder()
setup(
    packages=sorted(packages),
    package_dir=packages,
    package_data={"": ["py.typed", "*.pyi"]},
    include_package_data=False,
    data_files=[("share/man/man1", man_pages())],
    **native,
)
