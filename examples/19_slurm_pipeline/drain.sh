#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copies every tenth step to the file system, verified. The copying is Forebay's, after the job has ended.
#SBATCH --job-name=drain --time=30
#DW persistentdw name=cylinder
#FB stage_out stream=cylinder/flow every=10 destination=%d/checkpoints format=bp5
exec forebay steps cylinder/flow
