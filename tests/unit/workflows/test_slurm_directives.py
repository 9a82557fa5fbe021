# SPDX-License-Identifier: Apache-2.0
"""Directives of job scripts: what they mean, and what is refused instead of misread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import InvalidArgumentError
from forebay.workflows.slurm.directives import Directives, FileStage, StreamStage, parse_directives, parse_slurm_size

GIB = 1 << 30


def script(*lines: str) -> bytes:
    return "\n".join(["#!/bin/bash", *lines, "echo", "#DW jobdw capacity=9GiB"]).encode() + b"\0"


def test_lines_are_taken_as_datawarp_takes_them() -> None:
    found = parse_directives(
        script(
            "#SBATCH -n 2",
            "",
            "#DW jobdw  capacity=1GiB \\",
            "   access_mode=striped type=scratch",
            "#DW jobdw capacity=3GiB type=scratch",
            "#DW stage_in type=directory source=/pfs/in/ destination=${DW_JOB_STRIPED}/in/",
            "#DW stage_out source=$DW_JOB_STRIPED/a=b destination=/pfs/out",
            "#FB stage_out stream=flow every=10 destination=/pfs/steps",
        )
    )
    assert found.capacity_bytes == 4 * GIB
    assert found.files == (
        FileStage("in", "/pfs/in", inward=True, is_directory=True),
        FileStage("a=b", "/pfs/out", inward=False, is_directory=False),
    )
    assert found.streams == (StreamStage("flow", "/pfs/steps", 10, "", "bp5"),)
    assert Directives.from_json(found.as_json()) == found


def test_a_script_without_directives_asks_for_nothing() -> None:
    assert parse_directives(script()) == Directives(0, "striped", (), ())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("#DW jobdw capacity=1.5GiB", "line 2 of the script: capacity=1.5GiB is no size"),
        ("#DW jobdw", "capacity= is missing"),
        ("#DW jobdw capacity=0", "holds nothing"),
        ("#DW jobdw capacity=1GiB type=cache", "type=cache is not there yet"),
        ("#DW jobdw capacity=1GiB access_mode=private", "not there yet"),
        ("#DW jobdw capacity=1GiB capacity=2GiB", "twice"),
        ("#DW jobdw capacity=1GiB striped", '"striped" is no key=value'),
        ("#DW jobdw capacity=1GiB colour=red", "colour= is not known"),
        ("#DW swap 2GiB", "no key=value"),
        ("#DW persistentdw name=x", "persistent reservations"),
        ("#DW stage_in source=/pfs/a destination=$DW_JOB_STRIPED/a", "has no `#DW jobdw"),
        ("#DW stage_in source=pfs/a destination=$DW_JOB_STRIPED/a", "no absolute path"),
        ("#DW stage_in source=/pfs/a destination=$DW_JOB_STRIPED/../a", "leaves the scratch"),
        ("#DW stage_in source=/pfs/a destination=$DW_JOB_STRIPEDX/a", "does not begin with"),
        ("#DW stage_out source=$DW_JOB_STRIPED/a destination=$DW_JOB_STRIPED/b", "no absolute path"),
        ("#FB stage_out stream=flow every=0 destination=/a", "every=0"),
        ("#FB stage_out stream=flow destination=/a/%j", "symbols"),
        ("#FB stage_in stream=flow destination=/a", "not known"),
        ("#BB create_persistent name=x capacity=1GiB", "not there yet"),
        ("#DW jobdw capacity=1GiB " + "x" * 5000, "longer than"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(line: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        parse_directives(script(line))
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("7", 7), ("1K", 1024), ("10GiB", 10 * GIB), ("2GB", 2_000_000_000), ("1T", 1 << 40)]
)
def test_sizes_are_those_of_slurm(text: str, size: int) -> None:
    assert parse_slurm_size(text) == size


@given(st.binary(max_size=400))
def test_any_bytes_are_directives_or_refused(content: bytes) -> None:
    for text in (content, b"#!/bin/sh\n#DW " + content, b"#FB stage_out " + content):
        try:
            parse_directives(text)
        except InvalidArgumentError:
            continue
