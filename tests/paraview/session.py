# SPDX-License-Identifier: Apache-2.0
"""Runs in ParaView's Python: evaluates one JSON request for each line of standard input, and answers by a line."""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

import numpy as np
from paraview import servermanager, simple
from vtkmodules.vtkCommonCore import vtkOutputWindow, vtkStringOutputWindow

from forebay.viz import paraview as forebay_paraview

messages = vtkStringOutputWindow()
vtkOutputWindow.SetInstance(messages)


def cells(source: Any, name: str, time: float | None = None) -> Any:
    """The values of an array as nested lists, as the client sees it."""
    source.UpdatePipeline(source.TimestepValues[-1] if time is None else time)
    data = servermanager.Fetch(source)
    array = data.GetCellData().GetArray(name)
    values = [array.GetTuple(number) for number in range(array.GetNumberOfTuples())]
    return np.array(values).squeeze().tolist()


names: dict[str, Any] = {
    "simple": simple,
    "forebay_paraview": forebay_paraview,
    "np": np,
    "cells": cells,
    "servermanager": servermanager,
    "messages": messages,
}
# pvpython sends what is printed to the window of messages.
for line in os.fdopen(0):
    request = json.loads(line)
    try:
        if "do" in request:
            exec(request["do"], names)
            answer: dict[str, Any] = {"value": None}
        else:
            answer = {"value": eval(request["get"], names)}
    except Exception:
        answer = {"error": traceback.format_exc()}
    os.write(1, f"answer {json.dumps(answer)}\n".encode())
