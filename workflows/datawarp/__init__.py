# SPDX-License-Identifier: Apache-2.0
"""Stages that running programs ask for through libdatawarp."""
