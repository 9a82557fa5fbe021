# SPDX-License-Identifier: Apache-2.0
"""Forebay under Slurm: the calls of its burst-buffer plugin `datawarp`, and the directives of job scripts."""
