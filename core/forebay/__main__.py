# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay`` is `forebay`."""

from forebay.cli.root import main

main()
