#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Submits all of it. Jobs that use the reservation wait until it exists.
set -euo pipefail
sbatch create.sh
simulation=$(sbatch --parsable simulation.sh)
renderer=$(sbatch --parsable renderer.sh)
drain=$(sbatch --parsable --dependency=afterok:"$simulation" drain.sh)
sbatch --dependency=afterany:"$renderer",afterburstbuffer:"$drain" destroy.sh
