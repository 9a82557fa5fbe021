#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Draws each step as it is written, and ends with the stream.
#SBATCH --job-name=renderer --time=30
#DW persistentdw name=cylinder
exec forebay render cylinder/flow --scene scene.toml --out pictures
