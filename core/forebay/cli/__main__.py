# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay.cli`` is `forebay`."""

from forebay.cli.root import main

main()
