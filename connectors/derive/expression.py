# SPDX-License-Identifier: Apache-2.0
"""Expressions such as ``speed = sqrt(u*u + v*v)``: checked against a list of what is allowed, then made anew for
numexpr.

numexpr evaluates what it is given with Python's own ``eval``. So no text of a user reaches it: the syntax tree is
rebuilt from the allowed parts alone, with names of our own in place of the variables'.
"""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Mapping
from dataclasses import dataclass

from forebay.errors import ArgumentTypeError, InvalidArgumentError

__all__ = ["FUNCTIONS", "Expression", "parse_alias"]

#: What may be called, with the number of arguments. All are numexpr's, in each version that the extra allows.
FUNCTIONS: Mapping[str, int] = {
    **dict.fromkeys(
        (
            "abs",
            "arccos",
            "arccosh",
            "arcsin",
            "arcsinh",
            "arctan",
            "arctanh",
            "ceil",
            "conj",
            "cos",
            "cosh",
            "exp",
            "expm1",
            "floor",
            "imag",
            "log",
            "log10",
            "log1p",
            "real",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
        ),
        1,
    ),
    "arctan2": 2,
    "complex": 2,
    "fmod": 2,
    "where": 3,
}

_TEXT_LENGTH_MAX = 2000
#: Parts of an expression. numexpr itself takes 30 or so variables and 250 temporaries.
_NODES_MAX = 200
#: Greater constant powers and shifts of whole numbers would be computed digit by digit, for hours.
_EXPONENT_MAX = 64
_OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.Pow,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.LShift,
    ast.RShift,
)
_SIGNS = (ast.UAdd, ast.USub, ast.Invert)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_INSTEAD = {
    ast.BoolOp: "write & and | between parts in brackets, for example (a > 0) & (b > 0)",
    ast.Not: "write ~ before a part in brackets, for example ~(a > 0)",
    ast.IfExp: "write where(CONDITION, YES, NO)",
    ast.Mod: "write fmod(a, b)",
    ast.FloorDiv: "write floor(a / b)",
    ast.MatMult: "only element by element can be computed; use --with MODULE.py:FUNCTION",
    ast.Attribute: "a variable whose name has dots or slashes gets a short one by --let u=velocity/u",
    ast.Subscript: "a part of a variable is taken by --subset",
    ast.Call: "a function is called by its name: " + ", ".join(FUNCTIONS),
}


@dataclass(frozen=True)
class Expression:
    """One result and how it is computed from variables, element by element.

    Attributes
    ----------
    name : str
        Of the result.
    variables : tuple of str
        The stream's variables that it needs, in order of their first use.
    code : str
        For numexpr; ``v0``, ``v1``, … stand for ``variables``.
    text : str
        As the user wrote it.
    described : str
        The same, with what short names stand for.
    """

    name: str
    variables: tuple[str, ...]
    code: str
    text: str
    described: str

    @classmethod
    def parse(cls, text: str, aliases: Mapping[str, str] | None = None) -> Expression:
        """Takes ``NAME = EXPRESSION``: names of variables, numbers, ``+ - * / **``, ``& | ^ ~ << >>``, comparisons,
        and :data:`FUNCTIONS`.

        Parameters
        ----------
        aliases : mapping, optional
            Names in expressions for variables whose own name is no name in Python.

        Raises
        ------
        InvalidArgumentError
            It is something else; the text says what and where, and what to write instead.
        """
        if not isinstance(text, str):
            raise ArgumentTypeError(f"an expression is a text such as 'speed = sqrt(u*u + v*v)', not {text!r}")
        if len(text) > _TEXT_LENGTH_MAX:
            raise InvalidArgumentError(
                f"the expression has {len(text)} characters, and {_TEXT_LENGTH_MAX} are allowed: write two, or use "
                "--with MODULE.py:FUNCTION"
            )
        name, value = _parts(text)
        check = _Check(text, aliases or {})
        rebuilt = check.rebuilt(value)
        if not check.places:
            raise InvalidArgumentError(f"the expression {_shown(text)} names no variable: there is nothing to compute")
        short = {short: variable for short, variable in (aliases or {}).items() if variable in check.places}
        described = ", ".join([text.strip(), *(f"{short} is {variable}" for short, variable in short.items())])
        return cls(name, tuple(check.places), ast.unparse(rebuilt), text.strip(), described)


def parse_alias(text: str) -> tuple[str, str]:
    """``NAME=VARIABLE`` as the two.

    Raises
    ------
    InvalidArgumentError
        NAME is no name that an expression can use.
    """
    name, equals, variable = text.partition("=")
    name, variable = name.strip(), variable.strip()
    if not equals or not variable or not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidArgumentError(f"--let is NAME=VARIABLE, for example u=velocity/u, not {text[:80]!r}")
    return name, variable


def _parts(text: str) -> tuple[str, ast.expr]:
    try:
        body = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = error.msg if isinstance(error, SyntaxError) and error.msg else type(error).__name__
        raise InvalidArgumentError(f"the expression {_shown(text)} cannot be read: {why}") from None
    match body:
        case [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
            return name, value
    raise InvalidArgumentError(
        f"{_shown(text)} is not NAME = EXPRESSION: name the result, for example speed = sqrt(u*u + v*v)"
    )


class _Check:
    """Rebuilds one expression from what is allowed."""

    def __init__(self, text: str, aliases: Mapping[str, str]) -> None:
        self._text = text
        self._aliases = aliases
        self._nodes = 0
        self.places: dict[str, int] = {}  # of variables, in order of their first use

    def rebuilt(self, node: ast.expr) -> ast.expr:
        self._nodes += 1
        if self._nodes > _NODES_MAX:
            raise self._refusal(node, f"it has more than {_NODES_MAX} parts; use --with MODULE.py:FUNCTION")
        match node:
            case ast.Name(id=name):
                place = self.places.setdefault(self._aliases.get(name, name), len(self.places))
                return ast.Name(f"v{place}")
            case ast.Constant(value=bool() | int() | float() as value):
                return self._number(node, value)
            case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _OPERATORS):
                if isinstance(operator, (ast.Pow, ast.LShift, ast.RShift)):
                    self._check_power(node, left, right)
                return ast.BinOp(self.rebuilt(left), operator, self.rebuilt(right))
            case ast.UnaryOp(op=sign, operand=operand) if isinstance(sign, _SIGNS):
                return ast.UnaryOp(sign, self.rebuilt(operand))
            case ast.Compare(left=left, ops=[comparison], comparators=[right]) if isinstance(comparison, _COMPARISONS):
                return ast.Compare(self.rebuilt(left), [comparison], [self.rebuilt(right)])
            case ast.Compare(ops=[_, _, *_]):
                raise self._refusal(node, "write (a < b) & (b < c)")
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                return self._call(node, name, arguments)
        kind = node.op if isinstance(node, (ast.BinOp, ast.UnaryOp)) else node
        raise self._refusal(
            node,
            _INSTEAD.get(type(kind), "names of variables, numbers, arithmetic, comparisons and functions are allowed"),
        )

    def _number(self, node: ast.expr, value: float) -> ast.expr:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise self._refusal(node, "whole numbers have at most 64 bits")
        if not math.isfinite(value):
            raise self._refusal(node, "the number is too large")
        return ast.Constant(value)

    def _call(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> ast.expr:
        if len(arguments) != FUNCTIONS[name]:
            raise self._refusal(node, f"{name} takes {FUNCTIONS[name]} arguments, not {len(arguments)}")
        return ast.Call(ast.Name(name), [self.rebuilt(argument) for argument in arguments], [])

    def _check_power(self, node: ast.expr, base: ast.expr, exponent: ast.expr) -> None:
        """Powers of constants are computed before numexpr sees an element, with as many digits as it takes."""
        if not any(isinstance(part, ast.Name) for operand in (base, exponent) for part in ast.walk(operand)):
            raise self._refusal(node, "a power or shift of a number: write the number that it makes")
        while isinstance(exponent, ast.UnaryOp):
            exponent = exponent.operand
        if isinstance(exponent, ast.Constant):
            if isinstance(exponent.value, (int, float)) and abs(exponent.value) > _EXPONENT_MAX:
                raise self._refusal(node, f"exponents and shifts are at most {_EXPONENT_MAX}")
        elif not any(isinstance(part, ast.Name) for part in ast.walk(exponent)):
            raise self._refusal(node, "write the exponent as one number")

    def _refusal(self, node: ast.expr, advice: str) -> InvalidArgumentError:
        part = ast.get_source_segment(self._text.strip(), node) or type(node).__name__
        return InvalidArgumentError(f"{_shown(part)} is not allowed in an expression: {advice}")


def _shown(text: str, characters_max: int = 60) -> str:
    """The text, cut where it is long."""
    return repr(text if len(text) <= characters_max else f"{text[:characters_max]}…")
