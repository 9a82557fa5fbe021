# SPDX-License-Identifier: Apache-2.0
"""Prints the sum of T of an HDF5 file."""

import sys

import h5py

with h5py.File(sys.argv[1]) as file:
    print(file["T"][...].sum())
