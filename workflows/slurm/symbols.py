# SPDX-License-Identifier: Apache-2.0
"""Slurm's `%` symbols in the paths of directives."""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from dataclasses import replace

from forebay.errors import InvalidArgumentError
from forebay.workflows.directives.directives import Directives
from forebay.workflows.slurm.processes import job_fields

__all__ = ["expand_symbols", "expanded_directives"]


async def expanded_directives(directives: Directives, token: str, uid: int, scontrol: str) -> Directives:
    """The directives of that user's job with the symbols in their paths replaced. Slurm does that itself in `#DW`
    lines, unless a line has a backslash.

    Raises
    ------
    InvalidArgumentError
        A symbol is not known, or Slurm does not say what it stands for.
    """
    texts = [text for stage in directives.files for text in (stage.inside, stage.outside)]
    texts += [stream.destination for stream in directives.streams]
    texts += [text for matched in directives.matched for text in (matched.inside, matched.destination)]
    if not any("%" in text for text in texts):
        return directives
    fields = await job_fields(scontrol, token)
    user = pwd.getpwuid(uid).pw_name

    def expand(text: str) -> str:
        return expand_symbols(text, token, user, fields)

    return replace(
        directives,
        files=tuple(
            replace(stage, inside=expand(stage.inside), outside=expand(stage.outside)) for stage in directives.files
        ),
        streams=tuple(replace(stream, destination=expand(stream.destination)) for stream in directives.streams),
        matched=tuple(
            replace(matched, inside=expand(matched.inside), destination=expand(matched.destination))
            for matched in directives.matched
        ),
    )


def expand_symbols(text: str, token: str, user: str, fields: dict[str, str]) -> str:
    """`text` with Slurm's symbols replaced as it does in `#DW` lines: %% %A %a %d %j %u %x. `\\\\` leaves all as it is.

    Raises
    ------
    InvalidArgumentError
        Slurm has not told what one stands for, or it is not known.
    """
    if "%" not in text or "\\\\" in text:
        if text.startswith("%"):
            raise InvalidArgumentError(f"{text[:200]}: a backslash leaves %d as it is; write the folder")
        return text
    known = {
        "%": "%",
        "A": fields.get("ArrayJobId", token),
        "a": fields.get("ArrayTaskId", "4294967294"),  # as Slurm writes "no task"
        "d": fields.get("WorkDir"),
        "j": token,
        "u": user,
        "x": fields.get("JobName"),
    }

    def parts() -> Iterator[str]:
        at = 0
        while (found := text.find("%", at)) >= 0:
            yield text[at:found]
            symbol = text[found + 1 : found + 2]
            value = known.get(symbol)
            if value is None:
                reason = "Slurm does not say what it stands for" if symbol in known else "it is not known"
                raise InvalidArgumentError(f"%{symbol} in {text[:200]}: {reason}; write %% for a percent sign")
            yield value
            at = found + 2
        yield text[at:]

    return "".join(parts())
