# SPDX-License-Identifier: Apache-2.0
"""Prints the sum of T of a BP5 file."""

import sys

import adios2

with adios2.FileReader(sys.argv[1]) as file:
    print(file.read("T").sum())
