# SPDX-License-Identifier: Apache-2.0
"""Servers, nodes and clients of a pool that fail at random, by seeds that replay."""
