# SPDX-License-Identifier: Apache-2.0
"""What moves data around the streams: the manager, and verified staging in and out."""
