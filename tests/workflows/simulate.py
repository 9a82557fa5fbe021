# SPDX-License-Identifier: Apache-2.0
"""Writes six steps into the stream that it is given; waits after the third while a file "wait" lies there."""

import sys
import time
from pathlib import Path

import numpy as np

import forebay

with forebay.open(sys.argv[1], mode="w") as stream:
    for number in range(6):
        with stream.step() as step:
            step["T"] = np.full((4, 4), float(number))
        while number == 2 and Path("wait").exists():
            time.sleep(0.05)
