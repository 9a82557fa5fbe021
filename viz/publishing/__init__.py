# SPDX-License-Identifier: Apache-2.0
"""Steps as files that VisIt, ParaView and yt follow: one file per step that never changes, and a small index.

``forebay publish RES/STREAM DIR --for visit|paraview|yt|chombo|amrex`` is the consumer.
"""
