# SPDX-License-Identifier: Apache-2.0
"""Reservations, and who holds them."""
