# SPDX-License-Identifier: Apache-2.0
"""Drivers that show a reservation's files on other nodes: docs/design/files-on-nodes.md."""
