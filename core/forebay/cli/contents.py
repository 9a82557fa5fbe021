# SPDX-License-Identifier: Apache-2.0
"""`forebay show RES/STREAM` and `forebay dump`: what a step has, and the elements of one of its variables."""

from __future__ import annotations

import re
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

import forebay
from forebay.array_selection import IndexItem
from forebay.cli.arguments import StepArgument
from forebay.cli.chosen import chosen
from forebay.cli.elements import cut, element_text, plain_value
from forebay.cli.output import JsonOption, console, format_time, print_fields, print_json, print_line, print_table
from forebay.cli.streams import stream_text
from forebay.datatypes import ShapeKind
from forebay.errors import InvalidArgumentError, StepNotFoundError
from forebay.records import Address, StreamInfo
from forebay.sizes import format_size
from forebay.step_metadata import StepMetadata, VariableMetadata
from forebay.stream import Stream

__all__ = ["register", "show_step"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("dump", epilog="Example: forebay dump run1/flow@17 'T[0, :, 3]'")(dump)


def show_step(address: Address, *, as_json: bool) -> None:
    """Prints what `forebay show` tells of a step, the newest where none is named. Reads no data."""
    with forebay.open(address.path, instance=chosen(), timeout=0) as source:
        info = source.info
        if address.step is None and info.committed is None:
            _print_stream_without_steps(address, info, as_json=as_json)
            return
        step = _metadata(source, address)
    if as_json:
        print_json(
            {
                "stream": info.as_dict(),
                "step": step.summary.as_dict(),
                "variables": [_variable_as_dict(variable) for variable in step.values()],
                "attributes": {name: plain_value(value) for name, value in step.attributes.items()},
            }
        )
        return
    summary = step.summary
    print_fields(
        [
            ("Stream", stream_text(address.path, info)),
            *_origin(info),
            ("Step", f"{summary.number}, epoch {summary.epoch}"),
            ("Committed", format_time(summary.time_ns)),
            ("Size", format_size(summary.size_bytes)),
        ]
    )
    print_table(
        ("VARIABLE", "TYPE", "KIND", "SHAPE", "DIMS", ">BLOCKS", ">MIN", ">MAX"),
        (_variable_row(variable) for variable in step.values()),
        empty="The step has no variables.",
    )
    for variable in step.values():
        if variable.fault:
            print_line(f"Variable {cut(variable.name)}: {variable.fault}")
    print_table(
        ("ATTRIBUTE", "VALUE"),
        ((name, cut(str(plain_value(value)))) for name, value in step.attributes.items()),
        empty="The step has no attributes.",
    )


def _print_stream_without_steps(address: Address, info: StreamInfo, *, as_json: bool) -> None:
    if as_json:
        print_json({"stream": info.as_dict(), "step": None, "variables": [], "attributes": {}})
    else:
        print_fields([("Stream", stream_text(address.path, info)), *_origin(info), ("Step", "there is none yet")])


def _origin(info: StreamInfo) -> list[tuple[str, str]]:
    """The name by which a program opened the stream, where it is known."""
    return [("Opened as", info.original_name)] if info.original_name else []


def dump(
    stream: StepArgument,
    variable: Annotated[
        str,
        typer.Argument(
            metavar="VARIABLE[INDEX]", help="Its name, and which elements as in NumPy: 'T[0, :, ::2]'; default: all."
        ),
    ],
    index: Annotated[
        str, typer.Option("--slice", metavar="INDEX", help="The same index, where the name itself ends with a bracket.")
    ] = "",
    block: Annotated[
        int | None, typer.Option("--block", min=0, metavar="N", help="Of this block alone, indexed from its own start.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every element, also of more than a thousand.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the elements of a variable. Only the blocks that the slice touches are read."""
    address = Address.parse(stream)
    with forebay.open(address.path, instance=chosen(), timeout=0) as source:
        number = _metadata(source, address).number
        with source[number] as step:
            if not index and variable not in step:
                variable, index = _name_and_index(variable)
            wanted = _index(index)
            try:
                found = step[variable][wanted] if block is None else step[variable].block(block, wanted)
            except IndexError as error:
                raise InvalidArgumentError(str(error), f"{step.address}, variable {variable!r}") from None
    if as_json:
        shape = list(np.shape(found))
        print_json({"step": number, "variable": variable, "shape": shape, "elements": plain_value(found)})
        return
    threshold = np.size(found) + 1 if every else 1000
    text = np.array2string(np.asarray(found), threshold=threshold, max_line_width=120)
    console().print(Text(text), soft_wrap=True)


def _metadata(source: Stream, address: Address) -> StepMetadata:
    """Of the step that the address names, or of the newest."""
    number = source.info.committed if address.step is None else address.step
    found = [] if number is None else source.steps_at([number])
    if not found:
        raise StepNotFoundError(
            f"there is no such step now; `forebay steps {address.path}` lists those that are kept"
            if address.step is not None
            else "the stream has no steps yet",
            str(address),
        )
    return found[0]


def _variable_row(variable: VariableMetadata) -> tuple[str, ...]:
    is_value = variable.kind is ShapeKind.GLOBAL_VALUE
    low, high = (variable.value, None) if is_value else (variable.min, variable.max)
    return (
        variable.name,
        _type_name(variable),
        variable.kind.value,
        " x ".join(map(str, variable.shape)),
        ", ".join(variable.dims or ()),
        str(len(variable.blocks)),
        element_text(low),
        element_text(high),
    )


def _variable_as_dict(variable: VariableMetadata) -> dict[str, Any]:
    is_value = variable.kind is ShapeKind.GLOBAL_VALUE
    return {
        "name": variable.name,
        "type": _type_name(variable),
        "kind": variable.kind.value,
        "shape": list(variable.shape),
        "dims": None if variable.dims is None else list(variable.dims),
        "blocks": [
            {"rank": block.rank, "start": list(block.start), "count": list(block.count), "size_bytes": block.size_bytes}
            for block in variable.blocks
        ],
        "value": plain_value(variable.value) if is_value else None,
        "min": None if is_value else plain_value(variable.min),
        "max": None if is_value else plain_value(variable.max),
        "fault": variable.fault,
    }


def _type_name(variable: VariableMetadata) -> str:
    return {"T": "string", "S": "char"}.get(variable.dtype.kind, variable.dtype.name)


def _name_and_index(text: str) -> tuple[str, str]:
    """``"T[0, :]"`` as ``"T"`` and ``"[0, :]"``."""
    name, bracket, index = text.rpartition("[")
    return (name, bracket + index) if bracket and index.endswith("]") and name else (text, "")


def _index(text: str) -> tuple[IndexItem, ...]:
    """NumPy's basic index from its text."""
    items: list[IndexItem] = []
    for item in filter(None, (part.strip() for part in text.strip("[] ").split(","))):
        if item == "...":
            items.append(...)
        elif re.fullmatch(r"[+-]?[0-9]{1,19}", item):
            items.append(int(item))
        elif re.fullmatch(r"(?:[+-]?[0-9]{1,19})?(?::(?:[+-]?[0-9]{1,19})?){1,2}", item):
            parts = [int(part) if part else None for part in item.split(":")]
            if parts[2:] == [0]:
                raise InvalidArgumentError(f"the index has a step of 0: {item!r}")
            items.append(slice(*parts))
        else:
            raise InvalidArgumentError(f"an index is as in NumPy, for example [0, :, ::2], not {item[:80]!r}")
    return tuple(items) or (...,)
