# SPDX-License-Identifier: Apache-2.0
"""The manager's HTTP interface as a whole: its routers, and what an error looks like.

Callers are known by their socket's peer credentials.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from forebay.errors import ErrorCode, ForebayError

__all__ = ["build_api"]

_HTTP_STATUS = {
    ErrorCode.INVALID_ARGUMENT: 400,
    ErrorCode.PERMISSION_DENIED: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.ALREADY_EXISTS: 409,
    ErrorCode.BUSY: 409,
    ErrorCode.REFUSED: 409,
    ErrorCode.DISCONNECTED: 503,
    ErrorCode.NO_SPACE: 507,
}


class _AsciiResponse(JSONResponse):
    """Texts may have bytes that are no UTF-8, such as names of files."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def build_api(routers: Iterable[APIRouter]) -> FastAPI:
    """The application that answers what the routers know."""
    api = FastAPI(title="Forebay manager", version=version("forebay"), default_response_class=_AsciiResponse)
    for router in routers:
        api.include_router(router)

    @api.exception_handler(ForebayError)
    async def tell_error(_request: Request, error: ForebayError) -> JSONResponse:
        content = {"error": {"code": error.code.value, "what": error.what, "where": error.where}}
        return _AsciiResponse(content, status_code=_HTTP_STATUS.get(error.code, 500))

    @api.exception_handler(UnicodeEncodeError)
    async def tell_no_text(_request: Request, _error: UnicodeEncodeError) -> JSONResponse:
        what = "a text of the request has characters that no text has"
        content = {"error": {"code": ErrorCode.INVALID_ARGUMENT, "what": what, "where": ""}}
        return _AsciiResponse(content, status_code=400)

    @api.exception_handler(RequestValidationError)
    async def tell_mistake(_request: Request, error: RequestValidationError) -> JSONResponse:
        mistakes = [f"{'.'.join(map(str, found['loc']))[-80:]}: {found['msg'][:120]}" for found in error.errors()[:3]]
        content = {"error": {"code": ErrorCode.INVALID_ARGUMENT, "what": "; ".join(mistakes), "where": ""}}
        return _AsciiResponse(content, status_code=400)

    return api
