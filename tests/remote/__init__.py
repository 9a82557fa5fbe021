# SPDX-License-Identifier: Apache-2.0
"""Clients on other nodes."""
