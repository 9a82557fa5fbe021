# SPDX-License-Identifier: Apache-2.0
"""Pictures of streams: each step of a running simulation rendered off-screen, to image files and a growing movie.

Needs the extra ``forebay[viz]``. ``forebay render RES/STREAM --out DIR`` is the consumer;
:class:`forebay.viz.scene.Scene` draws one step, :class:`forebay.viz.movie.Movie` is a movie that can be watched while
it grows.
"""
