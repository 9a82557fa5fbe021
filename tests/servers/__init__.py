# SPDX-License-Identifier: Apache-2.0
"""Reservations over several servers."""
