# SPDX-License-Identifier: Apache-2.0
"""Tests. A regular package: some libraries install one called `tests`, which would hide a folder without this."""
