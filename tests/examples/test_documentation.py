# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ say what is so: their links lead somewhere, and the messages that they explain exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
SOURCES = ("core", "engines", "staging-servers", "workflows", "viz")


def anchors(page: Path) -> set[str]:
    """What links into a page may name: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if re.match(r"\w+://|mailto:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def texts_of_sources() -> str:
    """All sources, with texts that go on in the next literal joined, on one line."""
    files = [
        file
        for folder in SOURCES
        for pattern in ("*.c", "*.cpp", "*.h", "*.py")
        for file in sorted((ROOT / folder).rglob(pattern))
    ]
    return re.sub(r'"\s*f?"', "", " ".join(file.read_text(encoding="utf-8").replace('\\"', '"') for file in files))


def test_messages_that_the_troubleshooting_page_explains_exist() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)`( \(from ADIOS2\))? \|", page, re.MULTILINE)
    assert len(rows) > 40
    sources = texts_of_sources()
    messages = [message for message, foreign in rows if not foreign]
    parts = [part.strip(' :"()') for message in messages for part in message.split("…")]
    assert [part for part in parts if len(part) > 3 and part not in sources] == []
