# SPDX-License-Identifier: Apache-2.0
"""The same fixtures as in the suite `workflows`."""

from tests.workflows.conftest import instance, workflow

__all__ = ["instance", "workflow"]
