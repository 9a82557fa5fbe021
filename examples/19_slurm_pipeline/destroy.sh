#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gives the space back, when no job uses it any more.
#SBATCH --job-name=destroy --time=5
#BB destroy_persistent name=cylinder
true
