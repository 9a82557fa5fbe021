# SPDX-License-Identifier: Apache-2.0
"""What the manager decides and remembers. It knows nothing of HTTP and of command lines."""
