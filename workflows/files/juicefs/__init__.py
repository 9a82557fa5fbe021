# SPDX-License-Identifier: Apache-2.0
"""The driver `juicefs`: one tree of files/ over several servers. docs/design/files-on-nodes.md says how it is made."""
