# SPDX-License-Identifier: Apache-2.0
"""The manager: decides which reservations exist, keeps what was asked for across crashes, and runs stages."""
