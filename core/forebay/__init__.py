# SPDX-License-Identifier: Apache-2.0
"""Forebay: staging for data in flight between programs.

>>> import forebay
>>> with forebay.open("run1/flow", mode="w") as stream:  # a producer
...     for number in range(100):
...         with stream.step() as step:
...             step["T"] = temperature
>>> for step in forebay.open("run1/flow").follow(consumer="render"):  # a consumer, in another process
...     plot(step["T"][...])
"""

from threading import RLock
from typing import Any

import lazy_loader

# A command line that asks for one thing does not wait for NumPy; the names stand in __init__.pyi.
_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
# NumPy's first import fails, for good, if threads begin it by different modules of it. No module of this package takes
# a public name while it is imported, so whoever holds this waits for nobody who waits for it.
_loading = RLock()


def __getattr__(name: str) -> Any:
    # Reading the distribution's metadata takes a while too.
    if name == "__version__":
        from importlib.metadata import version

        return version("forebay")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _loading:
        return _load(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
