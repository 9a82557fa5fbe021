# SPDX-License-Identifier: Apache-2.0
"""The benchmarks behind ``./run bench``: Forebay beside its peers, in the same run, as ratios."""
