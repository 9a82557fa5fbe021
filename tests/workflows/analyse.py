# SPDX-License-Identifier: Apache-2.0
"""Prints the sum of the step that it is given."""

import sys

import forebay
from forebay.records import Address

address = Address.parse(sys.argv[1])
with forebay.open(address.path) as stream:
    assert address.step is not None
    print(address.step, stream[address.step]["T"][...].sum())
