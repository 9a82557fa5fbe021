# SPDX-License-Identifier: Apache-2.0
"""Writes a step into the stream that it is given, and crashes."""

import os
import sys

import forebay

stream = forebay.open(sys.argv[1], mode="w")
stream.write("T", 1.0)
os._exit(7)
