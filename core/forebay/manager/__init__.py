# SPDX-License-Identifier: Apache-2.0
"""The manager as its clients see it: its typed client, the jobs that it is given, the states of stages.

The manager itself is `forebay.workflows.manager`.
"""

import lazy_loader

# Who asks the manager for one thing does not wait for what others need; the names stand in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
