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

from typing import Any

import lazy_loader

# A command line that asks for one thing does not wait for NumPy; the names stand in __init__.pyi.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    # Reading the distribution's metadata takes a while too.
    if name == "__version__":
        from importlib.metadata import version

        return version("forebay")
    return _load(name)
