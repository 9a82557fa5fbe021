# SPDX-License-Identifier: Apache-2.0
"""Several nodes on one machine, to try remote clients and to test them."""
