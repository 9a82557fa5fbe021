# SPDX-License-Identifier: Apache-2.0
"""`forebay inspect` and `forebay dump`: what a step has, and the elements of one of its variables."""

from __future__ import annotations

import re
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

import forebay
from forebay.array_selection import IndexItem
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, console, format_time, print_fields, print_json, print_table
from forebay.datatypes import ShapeKind
from forebay.errors import InvalidArgumentError, StepNotFoundError
from forebay.records import Address
from forebay.sizes import format_size
from forebay.step_metadata import StepMetadata, VariableMetadata
from forebay.stream import Stream

__all__ = ["register"]

# Texts and arrays of attributes are cut to this in tables.
_ATTRIBUTE_CHARACTERS_MAX = 60


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("inspect", epilog="Example: forebay inspect run1/flow@17")(inspect)
    app.command("dump", epilog='Example: forebay dump run1/flow@17 T --slice "0, :, 3"')(dump)


def inspect(
    stream: Annotated[
        str, typer.Argument(metavar="RES/STREAM[@STEP]", help="A step, for example run1/flow@17; default: the newest.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show what a step has: variables with type, shape, blocks, minimum and maximum, and attributes. Reads no data."""
    address = Address.parse(stream)
    with forebay.open(address.path, instance=chosen(), timeout=0) as source:
        step = _metadata(source, address)
    if as_json:
        print_json(
            {
                "step": step.summary.as_dict(),
                "variables": [_variable_as_dict(variable) for variable in step.values()],
                "attributes": {name: _plain(value) for name, value in step.attributes.items()},
            }
        )
        return
    summary = step.summary
    print_fields(
        [
            ("Step", f"{summary.number} of {address.path}, epoch {summary.epoch}"),
            ("Committed", format_time(summary.time_ns)),
            ("Size", format_size(summary.size_bytes)),
        ]
    )
    print_table(
        ("VARIABLE", "TYPE", "KIND", "SHAPE", "DIMS", ">BLOCKS", ">MIN", ">MAX"),
        (_variable_row(variable) for variable in step.values()),
        empty="The step has no variables.",
    )
    print_table(
        ("ATTRIBUTE", "VALUE"),
        ((name, _cut(str(_plain(value)))) for name, value in step.attributes.items()),
        empty="The step has no attributes.",
    )


def dump(
    stream: Annotated[
        str, typer.Argument(metavar="RES/STREAM[@STEP]", help="A step, for example run1/flow@17; default: the newest.")
    ],
    variable: Annotated[str, typer.Argument(metavar="VARIABLE", help="Its name.")],
    index: Annotated[
        str, typer.Option("--slice", metavar="INDEX", help='As in NumPy, for example "0, :, ::2"; default: all.')
    ] = "",
    block: Annotated[
        int | None, typer.Option("--block", min=0, metavar="N", help="Of this block alone, indexed from its own start.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every element, also of more than a thousand.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the elements of a variable. Only the blocks that the slice touches are read."""
    address = Address.parse(stream)
    wanted = _index(index)
    with forebay.open(address.path, instance=chosen(), timeout=0) as source:
        number = _metadata(source, address).number
        with source[number] as step:
            try:
                found = step[variable][wanted] if block is None else step[variable].block(block, wanted)
            except IndexError as error:
                raise InvalidArgumentError(str(error), f"{step.address}, variable {variable!r}") from None
    if as_json:
        shape = list(np.shape(found))
        print_json({"step": number, "variable": variable, "shape": shape, "elements": _plain(found)})
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
        _element_text(low),
        _element_text(high),
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
        "value": _plain(variable.value) if is_value else None,
        "min": None if is_value else _plain(variable.min),
        "max": None if is_value else _plain(variable.max),
    }


def _type_name(variable: VariableMetadata) -> str:
    return {"T": "string", "S": "char"}.get(variable.dtype.kind, variable.dtype.name)


def _element_text(value: Any) -> str:
    if value is None:
        return ""
    return _cut(str(value)) if isinstance(value, (str, bytes)) else f"{value:.6g}"


def _cut(text: str) -> str:
    return text if len(text) <= _ATTRIBUTE_CHARACTERS_MAX else text[: _ATTRIBUTE_CHARACTERS_MAX - 1] + "…"


def _index(text: str) -> tuple[IndexItem, ...]:
    """NumPy's basic index from its text."""
    items: list[IndexItem] = []
    for item in filter(None, (part.strip() for part in text.strip("[] ").split(","))):
        if item == "...":
            items.append(...)
        elif re.fullmatch(r"[+-]?[0-9]+", item):
            items.append(int(item))
        elif re.fullmatch(r"(?:[+-]?[0-9]+)?(?::(?:[+-]?[0-9]+)?){1,2}", item):
            parts = [int(part) if part else None for part in item.split(":")]
            if parts[2:] == [0]:
                raise InvalidArgumentError(f"--slice has a step of 0: {item!r}")
            items.append(slice(*parts))
        else:
            raise InvalidArgumentError(f'--slice is an index as in NumPy, for example "0, :, ::2", not {item!r}')
    return tuple(items) or (...,)


def _plain(value: Any) -> Any:
    """As JSON has it: numbers that it does not know become texts."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value] if value.ndim else _plain(value[()])
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.longdouble):
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, complex) or (isinstance(value, float) and not np.isfinite(value)):
        return str(value)
    return value
