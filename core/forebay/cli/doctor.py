# SPDX-License-Identifier: Apache-2.0
"""`forebay doctor`: is the instance clean? Asks the server's audit and every check that packages register.

A check is a function ``(root: Path) -> Iterable[Finding]`` in the entry-point group ``forebay.checks``.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.text import Text

import forebay
from forebay.cli.chosen import chosen_or_current
from forebay.cli.failures import ExitStatus
from forebay.cli.output import JsonOption, console, print_json
from forebay.instance import Instance
from forebay.records import Finding, Severity
from forebay.sync_support import sync_weakness
from forebay.views.checks import check, heal

__all__ = ["CHECK_GROUP", "register"]

CHECK_GROUP = "forebay.checks"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor", epilog="Example: forebay doctor --read-data")(doctor)


def doctor(
    read_data: Annotated[
        bool, typer.Option("--read-data", help="Also read every block and check its checksum.")
    ] = False,
    healing: Annotated[
        bool, typer.Option("--heal", help="First remove views and mounts that killed processes of yours have left.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the instance: journals, space, files, manager, your views. Exit status 0 only when it is clean."""
    # Not $FOREBAY_SOCKET's: what packages check lies below a root.
    instance = chosen_or_current()
    if healing:
        heal(instance.root)
    with forebay.Admin(instance) as admin:
        findings = admin.audit(read_data)
    if (weakness := sync_weakness(instance.root)) is not None:
        findings.append(Finding(Severity.NOTE, str(instance.root), weakness))
    for point in sorted(entry_points(group=CHECK_GROUP)):
        findings.extend(point.load()(instance.root))
    findings.extend(check(instance.root))
    problems = [finding for finding in findings if finding.severity is Severity.PROBLEM]
    if as_json:
        print_json({"clean": not problems, "findings": [finding.as_dict() for finding in findings]})
    else:
        _print_findings(instance, findings, len(problems))
    if problems:
        raise typer.Exit(int(ExitStatus.ERROR))


def _print_findings(instance: Instance, findings: list[Finding], problems: int) -> None:
    out = console()
    for finding in findings:
        style = "bold red" if finding.severity is Severity.PROBLEM else "yellow"
        out.print(Text.assemble((finding.severity.value, style), f": {finding.where}: {finding.what}"))
    verdict = "clean" if problems == 0 else "1 problem" if problems == 1 else f"{problems} problems"
    out.print(Text(f"{instance.root}: {verdict}"))
