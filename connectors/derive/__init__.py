# SPDX-License-Identifier: Apache-2.0
"""Streams that are derived from others in transit: by expressions, smaller parts, fewer bits.

Expressions need the extra ``forebay[derive]``.

>>> from forebay.connectors.derive import derive
>>> derive("run1/flow", "run1/speed", expressions="speed = sqrt(u*u + v*v + w*w)")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.connectors.derive.derivation import Progress, SkippedSteps
    from forebay.connectors.derive.deriving import derive
    from forebay.connectors.derive.expression import Expression

__all__ = ["Expression", "Progress", "SkippedSteps", "derive"]

#: Imported when first asked for, so that `forebay derive --help` reads no library.
_MODULES = {
    "Expression": "forebay.connectors.derive.expression",
    "Progress": "forebay.connectors.derive.derivation",
    "SkippedSteps": "forebay.connectors.derive.derivation",
    "derive": "forebay.connectors.derive.deriving",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
