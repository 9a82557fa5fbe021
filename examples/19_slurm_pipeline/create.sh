#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the reservation that the three jobs share.
#SBATCH --job-name=create --time=5
#BB create_persistent name=cylinder capacity=256MiB access_mode=striped type=scratch
true
