# SPDX-License-Identifier: Apache-2.0
"""The environment of a stage's process. Its user can read it, so nothing of whoever ran `forebay up` may be in it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from forebay.errors import NotFoundError
from forebay.manager.records import StageRow
from forebay.workflows.manager.core.stages.stage_secret import stage_secret

__all__ = ["stage_environment"]

#: How this installation, and the system's language and time, are found: the only names that are handed on to another
#: user, and what they say is known to all.
_HANDED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "FOREBAY_CONFIG")


def stage_environment(row: StageRow, root: Path, configured: Mapping[str, str]) -> dict[str, str]:
    """The variables: for a stage of the manager's own user those of the manager, else ones made for the stage's user.

    Parameters
    ----------
    configured : mapping
        What the centre's configuration adds for everybody.

    Raises
    ------
    NotFoundError
        The stage's user has no account on this machine.
    """
    if row.owner_uid == os.geteuid():
        variables = dict(os.environ)
    else:
        try:
            account = pwd.getpwuid(row.owner_uid)
        except KeyError:
            raise NotFoundError(
                f"user {row.owner_uid} has no account on this machine, so no stage can run as that user"
            ) from None
        variables = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        variables |= {
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "SHELL": account.pw_shell or "/bin/sh",
        }
    return {
        **variables,
        **configured,
        "FOREBAY_ROOT": str(root),
        "FOREBAY_SOCKET": "",
        "FOREBAY_STAGE_SECRET": stage_secret(root, row.owner_uid, row.job),
    }
