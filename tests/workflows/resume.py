# SPDX-License-Identifier: Apache-2.0
"""Writes six steps into the stream that it is given, after those that are there; waits as simulate.py does."""

import sys
import time
from pathlib import Path

import numpy as np

import forebay

with forebay.open(sys.argv[1], mode="a") as stream:
    for number in range(len(stream), 6):
        stream.write("T", np.full((4, 4), float(number)))
        while number == 2 and Path("wait").exists():
            time.sleep(0.05)
