# SPDX-License-Identifier: Apache-2.0
"""A scene in a browser of this machine: ``forebay view RES/STREAM --web``. Needs the extra ``forebay[web]``."""
