# SPDX-License-Identifier: Apache-2.0
"""Faults of nodes that take long, or come at random."""
