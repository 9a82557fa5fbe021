# SPDX-License-Identifier: Apache-2.0
"""An instance's processes: they are started, ended, and looked for."""
