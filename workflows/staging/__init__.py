# SPDX-License-Identifier: Apache-2.0
"""Verified movement between reservations and directories: chosen steps of streams, files and trees.

A stage runs in a process of its own, ``python -m forebay.workflows.staging``, which the manager starts and watches.
"""
