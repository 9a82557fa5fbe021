# SPDX-License-Identifier: Apache-2.0
"""The manager's requests: a router for each kind of thing, over the core."""
