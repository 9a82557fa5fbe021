# SPDX-License-Identifier: Apache-2.0
"""Prints the sum of the step that it is given, by an address or a ticket."""

import sys

import forebay

with forebay.open_step(sys.argv[1]) as step:
    print(step.number, step["T"][...].sum())
