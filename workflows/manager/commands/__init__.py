# SPDX-License-Identifier: Apache-2.0
"""The commands that ask the manager. They know its client alone."""
