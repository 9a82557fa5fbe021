# SPDX-License-Identifier: Apache-2.0
"""What an agent shows its manager: that it has the pool's key, as each server of the pool has. Root of a node without a
server, for whom MUNGE speaks, has not.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from forebay.errors import PermissionDeniedError

__all__ = ["agent_proof", "check_agent_proof"]


def agent_proof(key: str, server: str, root_uuid: str, agent: str) -> str:
    """Of one run of a server's agent.

    Parameters
    ----------
    key : str
        Path of the pool's key.

    Raises
    ------
    PermissionDeniedError
        The key cannot be read.
    """
    try:
        secret = Path(key).read_bytes().strip()
    except OSError as error:
        raise PermissionDeniedError(f"the pool's key cannot be read: {error.strerror}", key) from None
    text = "\0".join(["forebay agent", server, root_uuid, agent])
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def check_agent_proof(proof: str, key: str, server: str, root_uuid: str, agent: str) -> None:
    """PermissionDeniedError if it is another one."""
    if not hmac.compare_digest(proof.encode(), agent_proof(key, server, root_uuid, agent).encode()):
        raise PermissionDeniedError(f"the agent of server {server[:80]} does not have the pool's key")
