# SPDX-License-Identifier: Apache-2.0
"""What makes an instance's server one of a pool: ROOT/pool.json, which `forebay up` writes and reads again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from forebay.errors import CorruptError
from forebay.instance import Instance

__all__ = ["PoolMembership"]


@dataclass(frozen=True, slots=True)
class PoolMembership:
    """A server's place in its pool."""

    name: str  #: of the server, in the pool
    listen: str  #: HOST:PORT, where the others find it
    key: str  #: path of the pool's key
    manager: str = ""  #: HOST:PORT of the server on the manager's node; "": the manager is this instance's

    @classmethod
    def read(cls, instance: Instance) -> PoolMembership | None:
        """None: the instance's server belongs to no pool.

        Raises
        ------
        CorruptError
            The file is damaged.
        """
        path = instance.pool_membership
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, PermissionError):
            return None  # also where the user may not look: they use another instance
        except (TypeError, ValueError) as error:
            raise CorruptError(
                f"this does not say which pool the server belongs to ({error}); remove it, then run `forebay up` with "
                "--join or --pool-key again",
                str(path),
            ) from None

    @property
    def text(self) -> str:
        """What the file has. The key itself is not in it."""
        return json.dumps(asdict(self)) + "\n"
