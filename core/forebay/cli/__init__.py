# SPDX-License-Identifier: Apache-2.0
"""The command line `forebay`: its root, and the commands that need nothing but a staging server.

Other packages add commands by the entry-point group ``forebay.commands``, checks for ``forebay doctor`` by
``forebay.checks``, and variables for ``forebay env`` by ``forebay.environment``.
"""

from forebay.cli.root import main

__all__ = ["main"]
