# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay.adios2`` prints docs/adios2-parameters.md."""

from forebay.adios2.document import parameters_page

print(parameters_page(), end="")
