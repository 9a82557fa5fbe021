# SPDX-License-Identifier: Apache-2.0
"""The suites, each a module that makes one: what is measured and against what."""
