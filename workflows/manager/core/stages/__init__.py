# SPDX-License-Identifier: Apache-2.0
"""Stages: who asked for them, the processes that run them, their receipts."""
