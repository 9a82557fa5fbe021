# SPDX-License-Identifier: Apache-2.0
"""Sealed views: kept steps as read-only files (docs/design/sealed-views.md)."""
