# SPDX-License-Identifier: Apache-2.0
"""The driver `commands`: a site's own engine, whose operations are programs that the site names."""
