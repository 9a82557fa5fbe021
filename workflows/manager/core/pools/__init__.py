# SPDX-License-Identifier: Apache-2.0
"""Servers, their space, and who is admitted to it."""
