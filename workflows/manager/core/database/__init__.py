# SPDX-License-Identifier: Apache-2.0
"""The manager's memory: its tables, with a typed record for each row."""
