# SPDX-License-Identifier: Apache-2.0
"""Scenes as configuration: what a picture of a step shows, said in a TOML file.

:mod:`forebay.viz.scenes.description` is the file, :mod:`forebay.viz.scenes.picture` draws it.
"""
