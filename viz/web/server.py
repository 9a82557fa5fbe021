# SPDX-License-Identifier: Apache-2.0
"""Serves a scene to browsers of this machine by trame: drawn here, sent as pictures, moved by the mouse there.

All pages of one server share step and camera. A page needs the server's token, which is in the address that is printed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import secrets
import shlex
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from aiohttp import web
from trame.app import get_server
from trame.ui.html import DivLayout
from trame.widgets import html, rca
from vtkmodules.vtkInteractionStyle import vtkInteractorStyleTrackballCamera
from vtkmodules.vtkRenderingCore import vtkRenderWindowInteractor

from forebay import Notice, Stream
from forebay.errors import ForebayError, StepNotFoundError, UnsupportedError
from forebay.visible_text import visible
from forebay.viz.scenes.description import SceneDescription
from forebay.viz.scenes.picture import ScenePicture
from forebay.viz.web.live_steps import LiveSteps
from forebay.viz.web.own_connections import keep_own

__all__ = ["serve"]

_HOST = "127.0.0.1"
_WEBSOCKET = "/ws"
_PAGE_STYLE = (
    "position: fixed; inset: 0; display: flex; flex-direction: column; background: #0b0f16; color: #dbe3f0; "
    "font-family: sans-serif"
)
_BAR_STYLE = "display: flex; gap: 1.5rem; align-items: center; padding: 0.6rem 1rem"


def serve(
    stream: Stream, scene: SceneDescription, port: int, on_notice: Callable[[Notice], object] | None = None
) -> int:
    """Shows a stream until interrupted, or until standard input ends where that is a pipe; returns the exit status.

    Parameters
    ----------
    stream : Stream
        Has a step already.
    port : int
        0: any free one. The address, with the token, is printed on standard output.
    on_notice : callable, optional
        Called from a thread with each notice of what the stream waits for, or passes over.
    """
    with tempfile.TemporaryDirectory(prefix="forebay-view-") as folder:
        # In a file of this user alone: an argument or variable would be seen by others.
        token = secrets.token_urlsafe(32)
        key = Path(folder) / "token"
        key.touch(0o600)
        key.write_text(token)
        # trame reads the command line of the process unless this names its options.
        os.environ["TRAME_ARGS"] = f"--server --authKeyFile {shlex.quote(str(key))}"
        # They print what strangers send, as it is, and a traceback of each request that is none.
        for name in ("wslink", "aiohttp"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        viewer = _Viewer(stream, scene, token, on_notice)
        try:
            viewer.run(port)
        except OSError as error:
            raise UnsupportedError(f"port {port} cannot be used: {error}; take another, or --port 0") from error
        finally:
            viewer.close()
    return 0


def _refuse_what_is_no_websocket(server: Any) -> None:
    """wslink keeps what asks for its websocket and is none, and cannot end then."""

    async def refuse(request: web.Request, handler: Callable[..., Any]) -> Any:
        if request.path == _WEBSOCKET and not web.WebSocketResponse().can_prepare(request):
            raise web.HTTPBadRequest
        return await handler(request)

    server.app.middlewares.append(web.middleware(refuse))


class _Viewer:
    """The page, the window behind it, and what connects them with the stream."""

    def __init__(
        self, stream: Stream, scene: SceneDescription, token: str, on_notice: Callable[[Notice], object] | None = None
    ) -> None:
        self._stream, self._token, self._on_notice = stream, token, on_notice
        # The mouse moves the camera here.
        self._picture = ScenePicture(
            dataclasses.replace(scene, camera=dataclasses.replace(scene.camera, sway=0.0, path=scene.camera.path[:1]))
        )
        self._interactor = vtkRenderWindowInteractor()
        self._interactor.SetRenderWindow(self._picture.window)
        self._interactor.SetInteractorStyle(vtkInteractorStyleTrackballCamera())
        self._server: Any = get_server(f"forebay-{secrets.token_hex(4)}", client_type="vue3")
        self._web_server: Any = None  # of wslink, once it is bound
        self._changed: asyncio.Event | None = None
        self._live: LiveSteps | None = None
        # The loop keeps weak references only, and a task that nobody holds may vanish.
        self._tasks: list[asyncio.Task[None]] = []
        self._shown: tuple[int, int] | None = None  # number, and epoch of the newest step then
        info = stream.info
        if info.oldest is None or info.committed is None:
            raise StepNotFoundError("the stream has no steps yet", f"stream {stream.address}")
        state = self._server.state
        state.trame__title = visible(str(stream.address))
        state.oldest, state.newest, state.step = info.oldest, info.committed, info.committed
        state.live, state.now, state.message = True, "", ""
        state.change("step", "live")(self._chosen)
        self._server.controller.on_server_bind.add(self._bound)
        self._server.controller.on_server_ready.add(self._ready)
        self._server.controller.on_server_exited.add(self._finish)
        self._show(info.committed)
        self._build_page()

    def run(self, port: int) -> None:
        """Serves until interrupted."""
        self._server.start(
            port=port,
            host=_HOST,
            timeout=0,
            open_browser=False,
            show_connection_info=False,
            disable_logging=True,
        )

    def close(self) -> None:
        """Stops following."""
        if self._live is not None:
            self._live.close()

    def _build_page(self) -> None:
        # Plain HTML: nothing of the page comes from elsewhere.
        with DivLayout(self._server, style=_PAGE_STYLE):
            with html.Div(style=_BAR_STYLE):
                html.B(visible(str(self._stream.address)))
                html.Span("{{ now }}", id="now")
                html.Input(
                    id="step",
                    type="range",
                    v_model_number="step",
                    min=("oldest",),
                    max=("newest",),
                    disabled=("live",),
                    style="flex: 1; max-width: 40rem",
                )
                with html.Label():
                    html.Input(id="live", type="checkbox", v_model="live")
                    html.Span(" live")
            html.Div("{{ message }}", id="message", style="color: #ff8080; padding: 0 1rem")
            with html.Div(style="flex: 1; min-height: 0"):
                area = rca.RemoteControlledArea(name="scene", display="image", style="width: 100%; height: 100%")
                self._view = area.create_view_handler(self._picture.window, encoder="jpeg")

    def _bound(self, server: Any, **_: Any) -> None:
        self._web_server = server
        _refuse_what_is_no_websocket(server)

    def _ready(self, **_: Any) -> None:
        keep_own(self._web_server.runner.server)
        loop = asyncio.get_running_loop()
        changed = self._changed = asyncio.Event()
        self._live = LiveSteps(self._stream, lambda: loop.call_soon_threadsafe(changed.set), self._on_notice)
        self._tasks.append(loop.create_task(self._draw_changes()))
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            Thread(target=self._wait_for_parent, args=(loop,), daemon=True).start()
        sys.stdout.write(f"http://{_HOST}:{self._server.port}/?secret={self._token}\n")
        sys.stdout.flush()

    def _wait_for_parent(self, loop: asyncio.AbstractEventLoop) -> None:
        """A parent that gave a pipe and is gone has closed it."""
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(lambda: self._tasks.append(loop.create_task(self._server.stop())))

    def _chosen(self, **_: Any) -> None:
        if self._changed is not None:
            self._changed.set()

    async def _draw_changes(self) -> None:
        assert self._changed is not None
        assert self._live is not None
        while True:
            await self._changed.wait()
            self._changed.clear()
            with self._server.state as state:
                if self._live.newest is not None:
                    state.newest = self._live.newest
                if state.live:
                    state.step = state.newest
                if (int(state.step), self._live.epoch) != self._shown:
                    self._show(int(state.step))
                    self._view.update()

    async def _finish(self, **_: Any) -> None:
        """The server has ended: so do the tasks beside it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._view.close()

    def _show(self, number: int) -> None:
        """Puts a step into the window; what is wrong with it is said on the page."""
        state = self._server.state
        try:
            with self._stream[number] as step:
                self._picture.show(step)
            state.message = ""
        except ForebayError as error:
            state.message = visible(str(error))
        self._shown = (number, 0 if self._live is None else self._live.epoch)
        state.now = f"step {number}"
