# SPDX-License-Identifier: Apache-2.0
"""Makes the man pages from docs/reference/commands.md, which has the commands' help: forebay.1, forebay-create.1, …

``man_pages.py FOLDER`` writes them. It needs Python alone, so that a build can run it before anything is installed.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Page", "pages", "write_pages"]

ROOT = Path(__file__).parent.parent
COMMANDS = ROOT / "docs" / "reference" / "commands.md"
CONVENTIONS = ROOT / "docs" / "cli.md"

#: What every command takes, which the page of the commands leaves out.
SHARED = (
    ("--json", "Print one JSON document on standard output, also for an error."),
    ("--root DIR", "Root directory of the instance."),
    ("--help, -h", "Describe the command."),
)


@dataclass
class Command:
    """One section of the page of the commands."""

    name: str
    texts: list[str] = field(default_factory=list)  #: paragraphs
    usage: str = ""
    rows: list[tuple[str, str, str]] = field(default_factory=list)  #: argument or option, default, meaning
    examples: list[str] = field(default_factory=list)


@dataclass
class Page:
    """A man page: a command with those below it."""

    name: str
    commands: list[Command]

    @property
    def file_name(self) -> str:
        """As `man` looks for it."""
        return f"{self.name.replace(' ', '-')}.1"


def pages() -> list[Page]:
    """A page for each command of `forebay`."""
    found: list[Page] = []
    for command in commands(COMMANDS.read_text(encoding="utf-8")):
        below = found and command.name.startswith(f"{found[-1].name} ")
        if below:
            found[-1].commands.append(command)
        else:
            found.append(Page(command.name, [command]))
    return found


def commands(text: str) -> Iterator[Command]:
    """The sections of the page of the commands."""
    for section in re.split(r"^##+ (?=forebay )", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        command = Command(name.strip())
        for block in re.split(r"\n\n+", body.strip()):
            if block.startswith("```text"):
                command.usage = block.splitlines()[1]
            elif block.startswith("| argument or option"):
                command.rows += map(cells, block.splitlines()[2:])
            elif block.startswith("Example: "):
                command.examples += block.removeprefix("Example: ").strip("`").split("; ")
            else:
                command.texts.append(" ".join(block.split()))
        if not command.texts or not command.usage:
            raise ValueError(f"{COMMANDS}: the section of {command.name} lacks its text or its usage")
        yield command


def cells(row: str) -> tuple[str, str, str]:
    """Of a row of a Markdown table."""
    first, default, meaning = (cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
    return first.strip("`"), default, meaning


def exit_statuses() -> list[tuple[str, str]]:
    """The table of the conventions."""
    table = re.search(
        r"^\| exit status \| meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)", CONVENTIONS.read_text(encoding="utf-8"), re.M
    )
    if table is None:
        raise ValueError(f"{CONVENTIONS}: the table of exit statuses is not there")
    return [
        (status.strip(), meaning.strip()) for _, status, meaning, _ in (row.split("|") for row in table[1].splitlines())
    ]


def escaped(text: str) -> str:
    """Text that groff shows as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub("[^\\x00-\\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", text)


def line(text: str) -> str:
    """A line of text; Markdown's code becomes bold."""
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    parts = [f"\\fB{escaped(part)}\\fR" if number % 2 else escaped(part) for number, part in enumerate(text.split("`"))]
    shown = "".join(parts)
    return f"\\&{shown}" if shown.startswith((".", "\\(aq")) else shown


def section(command: Command, title: str) -> list[str]:
    """A command's text, arguments and examples."""
    lines = [title]
    for number, text in enumerate(command.texts):
        lines += [".PP"] * (number > 0) + [line(text)]
    for first, default, meaning in command.rows:
        told = meaning + (f" Default: {default}." if default and default != "required" else "")
        lines += [".TP", f"\\fB{escaped(first)}\\fR", line(told or first)]
    return lines


def examples(found: Iterable[str]) -> list[str]:
    """As they are typed."""
    lines = [".SH EXAMPLES"]
    for example in found:
        lines += [".EX", f"{escaped(example)}", ".EE"]
    return lines


def one_line(command: Command) -> str:
    """What it does, without the full stop."""
    first = re.split(r"(?<=[.:;])\s", command.texts[0], maxsplit=1)[0].rstrip(".:;").replace("`", "")
    return escaped(first[0].lower() + first[1:])


def head(name: str, version: str, what: str) -> list[str]:
    """Title and name."""
    title = name.replace(" ", "-")
    return [
        '.\\" Made by scripts/man_pages.py from docs/reference/commands.md.',
        f'.TH {title.upper()} 1 "" "forebay {version}" "Forebay"',
        ".SH NAME",
        f"{escaped(title)} \\- {what}",
    ]


def text_of(page: Page, version: str) -> str:
    """The page of a command."""
    command, *below = page.commands
    lines = [*head(page.name, version, one_line(command)), ".SH SYNOPSIS"]
    for number, known in enumerate(page.commands):
        if known.usage != known.name or not below:
            lines += [".br"] * (number > 0 and len(lines) > 5) + [
                f"\\fB{escaped(known.name)}\\fR{escaped(known.usage.removeprefix(known.name))}"
            ]
    lines += section(command, ".SH DESCRIPTION")
    for known in below:
        lines += section(known, f'.SS "{escaped(known.name)}"')
    lines.append(".SH COMMON OPTIONS")
    for option, meaning in SHARED:
        lines += [".TP", f"\\fB{escaped(option)}\\fR", line(meaning)]
    lines += examples(example for known in page.commands for example in known.examples)
    lines += [".SH SEE ALSO", ".BR forebay (1)"]
    return "\n".join(lines) + "\n"


def overview(found: list[Page], version: str) -> str:
    """The page `forebay`."""
    lines = [
        *head("forebay", version, "staging for data in flight between programs"),
        ".SH SYNOPSIS",
        "\\fBforebay\\fR [\\fB\\-\\-root\\fR DIR] COMMAND [ARGUMENTS]",
        ".SH DESCRIPTION",
        "Reservations on SSD, streams of steps that programs write and others read at their own pace, and verified "
        "movement in and out.",
        "Each command has a page of its own: \\fBman forebay\\-create\\fR.",
        ".SH COMMANDS",
    ]
    for page in found:
        lines += [".TP", f"\\fB{escaped(page.name.removeprefix('forebay '))}\\fR", one_line(page.commands[0])]
    lines.append(".SH EXIT STATUS")
    for status, meaning in exit_statuses():
        lines += [".TP", f"\\fB{escaped(status)}\\fR", line(meaning)]
    lines += [
        ".SH ENVIRONMENT",
        *[".TP", "\\fBFOREBAY_ROOT\\fR", "Root directory of the instance."],
        *[".TP", "\\fBFOREBAY_SOCKET\\fR", "Socket of the staging server; goes before the root."],
    ]
    lines += examples(["forebay up", "forebay create run1 --capacity 2GiB", "forebay ls", "forebay watch run1/flow"])
    names = [page.name.replace(" ", "\\-") for page in found]
    # Names are not divided.
    lines += [".SH SEE ALSO", ".nh", ".ad l"]
    lines += [f".BR {name} (1){',' if name != names[-1] else ''}" for name in names]
    return "\n".join(lines) + "\n"


def write_pages(folder: Path) -> list[Path]:
    """Writes all of them; their paths."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        version: str = tomllib.load(file)["project"]["version"]
    folder.mkdir(parents=True, exist_ok=True)
    found = pages()
    texts = {"forebay.1": overview(found, version)} | {page.file_name: text_of(page, version) for page in found}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii")
    return [folder / name for name in texts]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes the man pages from docs/reference/commands.md.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where they are written; it is made")
    write_pages(parser.parse_args().folder)
