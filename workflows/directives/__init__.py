# SPDX-License-Identifier: Apache-2.0
"""What job scripts and commands ask for in words: `#DW`, `#BB` and `#FB` lines, rules of stages."""
