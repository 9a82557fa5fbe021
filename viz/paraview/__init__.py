# SPDX-License-Identifier: Apache-2.0
"""Live streams in ParaView: a source that reads ``forebay://RES/STREAM``, and a command that looks for new steps.

In ParaView's Python, which finds the package ``forebay`` by ``PYTHONPATH`` (docs/consumers/paraview.md):

>>> from forebay.viz import paraview
>>> source = paraview.source("run1/flow")
>>> paraview.refresh(source)  # the time of the newest step

Only the standard library and ParaView's own modules are used here.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

__all__ = ["PLUGIN", "load", "refresh", "source"]

#: The file that ParaView's plugin manager loads.
PLUGIN = Path(__file__).parent / "stream_source.py"


def load() -> Any:
    """Loads the plugin, and returns what makes a source: ``load()(Address="run1/flow")``."""
    from paraview import simple

    # ParaView 5.11 asks for a function that Python 3.11 has no more; without it no plugin in Python is loaded.
    if not hasattr(inspect, "getargspec"):
        inspect.getargspec = inspect.getfullargspec  # type: ignore[attr-defined]
    made: dict[str, Any] = {"simple": simple}  # ParaView takes another one if this is empty
    simple.LoadPlugin(str(PLUGIN), ns=made)
    return made["ForebayStream"]


def source(address: str, instance: str = "") -> Any:
    """A stream as a source of ParaView, with the steps that it has now.

    Parameters
    ----------
    address : str
        ``"RES/STREAM"`` or ``"forebay://RES/STREAM"``.
    instance : str
        The instance that has the stream: its root or its server's socket. Empty: the one of the environment.
    """
    made = load()(Address=address, Instance=instance)
    made.UpdatePipelineInformation()
    return made


def refresh(source: Any, view: Any = None) -> float | None:
    """Looks for new steps, as the button *Refresh* does, and returns the time of the newest one; None without steps.

    Parameters
    ----------
    source : proxy
        What :func:`source` made.
    view : proxy, optional
        A view that goes to the newest step.
    """
    source.SMProxy.InvokeCommand("Refresh")
    source.UpdatePipelineInformation()
    times = list(source.TimestepValues)
    if not times:
        return None
    if view is not None:
        view.ViewTime = times[-1]
    return float(times[-1])
