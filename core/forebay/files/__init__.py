# SPDX-License-Identifier: Apache-2.0
"""Ordinary files and folders that appear in a reservation: which of them match, are complete, and are chosen.

docs/design/file-follow.md says how, and why.
"""
