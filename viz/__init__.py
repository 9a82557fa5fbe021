# SPDX-License-Identifier: Apache-2.0
"""Pictures of streams: scenes as TOML files, drawn off-screen to images, growing movies and browsers.

Needs the extra ``forebay[viz]``. ``forebay view`` draws a picture, a movie or a page, ``forebay render`` keeps a frame
of each step as a consumer with a cursor, ``forebay publish`` writes files that VisIt, ParaView and yt follow.
:class:`forebay.viz.painter.Painter` draws one step, :class:`forebay.viz.movie.Movie` is a movie that can be watched
while it grows.
"""
