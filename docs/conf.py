# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings for `./run docs`. The pages are Markdown and read as plain files, too."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "Forebay"
author = "The Forebay developers"
version = release = version_of("forebay")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Forebay"
html_show_copyright = False

# Docstrings are in NumPy's form, and types stand in the signatures.
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # what a class lists as attributes are its properties, which are described as well
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
# A word such as dtype in a signature is the name of members of several classes; none of them is meant.
suppress_warnings = ["ref.python"]
