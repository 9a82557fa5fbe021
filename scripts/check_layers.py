# SPDX-License-Identifier: Apache-2.0
"""Checks what no compiler checks: native includes follow the arrows of the layers, and each source names its licence.

The arrows (ARCHITECTURE.md) point down only: servers never see the client, what stands above the client sees the public
headers alone, and so it is among the folders of the server. A file of staging-servers/ lies in one of them.
"""

import re
import subprocess
import sys
from pathlib import Path

# The staging server's folders, each of which may include those after it, never one before it.
SERVER_FOLDERS = [
    "daemon",
    "administration",
    "reservations",
    "streams",
    "writers",
    "readers",
    "members",
    "space",
    "loop",
]
BELOW_SERVER = {"storage", "protocol", "fabric", "base", "public"}
# Folder of a layer -> the internal include folders it may use. "public" is <forebay/...>, core/include.
ALLOWED = {
    "core/include": {"public"},
    "core/base": {"base", "public"},
    "core/protocol": {"protocol", "base", "public"},
    "core/storage": {"storage", "base", "public"},
    "core/mover": {"mover", "base", "public"},
    "core/fabric": {"fabric", "base", "public"},
    "core/client": {"client", "protocol", "fabric", "base", "public"},
    "core/forebay": {"public"},
    "engines": {"public"},
    "workflows": {"base", "public"},
    **{
        f"staging-servers/{folder}": BELOW_SERVER | set(SERVER_FOLDERS[place:])
        for place, folder in enumerate(SERVER_FOLDERS)
    },
    "examples": {"public"},
}
# Within a layer: a folder -> those beside it that it may include.
WITHIN = {
    "core/client": {
        "writing": {"reading", "connection", "segments"},
        "reading": {"connection", "segments"},
        "connection": set(),
        "segments": set(),
    },
}
INTERNAL = {"base", "protocol", "storage", "mover", "fabric", "client", *SERVER_FOLDERS}
GENERATED = re.compile(r"forebay/(protocol|storage)/\w+_generated\.h")
INCLUDE = re.compile(r'\s*#\s*include\s*(<[^>]+>|"[^"]+")')
# Public headers may use the standard library and tl::expected, nothing else.
PUBLIC_LIBRARIES = re.compile(r"[a-z_0-9]+|c[a-z]+|tl/expected\.hpp|forebay/[a-z_0-9/]+\.h")
LICENCE = "SPDX-License-Identifier: Apache-2.0"
LICENSED_SUFFIXES = {".cpp", ".h", ".hpp", ".py", ".pyi", ".cmake", ".fbs", ".sh", ".toml"}


def project_files() -> list[Path]:
    """Files that are committed or about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return [Path(name) for name in names if name and Path(name).is_file()]


def layer_of(file: Path) -> str | None:
    """The layer whose folder the file lies in."""
    return next((folder for folder in ALLOWED if file.is_relative_to(folder)), None)


def target_of(include: str) -> str | None:
    """Which layer an include belongs to; None for the standard library, other projects and the layer's own folder."""
    path = include.strip('<>"')
    generated = GENERATED.fullmatch(path)
    if generated:
        return generated[1]
    first = path.split("/")[0]
    if first == "forebay":
        return "public"
    if first in INTERNAL and include.startswith('"'):
        return first
    return None


def within_error(file: Path, layer: str, include: str) -> str | None:
    """What is wrong with an include of a folder beside the file's own, in layers whose folders have arrows too."""
    folders: dict[str, set[str]] | None = WITHIN.get(layer)
    if folders is None:
        return None
    own = file.relative_to(layer).parts[0]
    if own not in folders:
        return f"not in one of the folders of {layer}: {', '.join(folders)}"
    path = include.strip('<>"').split("/")
    if path[0] != Path(layer).name or path[1] == own or path[1] in folders[own]:
        return None
    return f"{layer}/{own} must not include {include}"


def include_errors(file: Path, layer: str) -> list[str]:
    """Includes of the file that go against the arrows."""
    errors = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        include = match[1]
        target = target_of(include)
        if target is not None and target not in ALLOWED[layer]:
            errors.append(f"{file}:{number}: {layer} must not include {include} of layer {target}")
        elif wrong := within_error(file, layer, include):
            errors.append(f"{file}:{number}: {wrong}")
        elif ".." in include:
            errors.append(f"{file}:{number}: {include} climbs out of its folder; include by the layer's name instead")
        elif layer == "core/include" and not PUBLIC_LIBRARIES.fullmatch(include.strip('<>"')):
            errors.append(f"{file}:{number}: a public header stands alone, but this one includes {include}")
    return errors


def names_licence(file: Path) -> bool:
    """True if the licence stands in one of the first three lines."""
    with file.open() as lines:
        return any(LICENCE in line for _, line in zip(range(3), lines, strict=False))


def needs_licence(file: Path) -> bool:
    """True for sources: by suffix, CMakeLists.txt, and programs without a suffix that begin with #!."""
    if file.is_relative_to("tests/fuzz/corpus"):
        return False  # an input may look like anything
    if file.suffix in LICENSED_SUFFIXES or file.name == "CMakeLists.txt":
        return True
    return not file.suffix and file.read_bytes().startswith(b"#!")


def main() -> int:
    """Prints every finding; 1 if there is one."""
    errors = []
    for file in project_files():
        layer = layer_of(file)
        if layer is None and file.is_relative_to("staging-servers") and file.suffix in {".cpp", ".h"}:
            errors.append(f"{file}:1: not in one of the server's folders: {', '.join(SERVER_FOLDERS)}")
        if layer is not None and file.suffix in {".cpp", ".h"}:
            errors += include_errors(file, layer)
        if needs_licence(file) and not names_licence(file):
            errors.append(f"{file}:1: {LICENCE} is missing in the first three lines")
    print(*errors, sep="\n", end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
