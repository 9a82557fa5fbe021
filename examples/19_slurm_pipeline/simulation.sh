#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Writes each step of the flow through the packed cylinder to the stream cylinder/flow.
#SBATCH --job-name=simulation --time=30
#DW persistentdw name=cylinder
export FOREBAY_STREAM=cylinder/flow
exec packed_cylinder --config adios2.xml --steps "${STEPS:-100}" $OPTIONS
