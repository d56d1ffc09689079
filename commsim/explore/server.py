"""The local web server: the page's files, and JSON answers. It reads no file that a request names.

Requests must name this machine as their host, and questions must be JSON: pages of other sites can
do neither.
"""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commsim.errors import CommsimError, ExploreError, TimeLimitError
from commsim.explore.answers import ANSWERS
from commsim.explore.worker import Worker

HOST = "127.0.0.1"
MOST_BODY = 1 << 19
"""Bytes of a question."""
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self' data:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def application(worker: Worker, port: int, version: str) -> Starlette:
    """The server's routes: `/`, its files by name, and `/api/KIND`."""
    pages = _pages()
    hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    async def page(request: Request) -> Response:
        if request.headers.get("host") not in hosts:
            return _error(f"host: expected {HOST}:{port}", 403)
        name = request.path_params.get("name", "index.html")
        if name not in pages:
            return _error(f"{name[:60]}: no such page; expected one of {', '.join(pages)}", 404)
        content, kind = pages[name]
        return Response(content, media_type=kind, headers=HEADERS)

    async def answer(request: Request) -> Response:
        if request.headers.get("host") not in hosts:
            return _error(f"host: expected {HOST}:{port}", 403)
        kind = request.path_params["kind"]
        if kind not in ANSWERS:
            return _error(f"{kind[:60]}: unknown question; expected {', '.join(ANSWERS)}", 404)
        try:
            question = await _question(request)
        except ExploreError as error:
            return _error(str(error), 400)
        try:
            found = await run_in_threadpool(worker.ask, kind, question)
        except TimeLimitError as error:
            return _error(str(error), 503)
        except CommsimError as error:  # a field half typed is no fault of the request
            return _error(str(error), 200)
        return _json({**found, "commsim": version})

    return Starlette(
        routes=[
            Route("/api/{kind}", answer, methods=["POST"]),
            Route("/", page),
            Route("/{name}", page),
        ]
    )


def _pages() -> dict[str, tuple[bytes, str]]:
    """Every file of the page, read once."""
    found = {}
    for file in files("commsim.explore").joinpath("static").iterdir():
        kind = TYPES.get(file.name[file.name.rfind(".") :])
        if kind:
            found[file.name] = file.read_bytes(), kind
    return found


async def _question(request: Request) -> dict[str, Any]:
    """The JSON object in a request. Raises ExploreError."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind != "application/json":
        raise ExploreError(f"content-type: expected application/json, got {kind[:60]!r}")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY:
            raise ExploreError(f"question: more than {MOST_BODY} bytes; upload a smaller file")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ExploreError(f"question: not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ExploreError(f"question: expected a JSON object, got {type(found).__name__}")
    return found


def _error(message: str, status: int) -> Response:
    return _json({"error": message}, status)


def _json(value: Any, status: int = 200) -> Response:
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return Response(text, status, HEADERS, "application/json")


def _finite(value: Any) -> Any:
    """The value as JSON can have it: a number that is infinite or not a number is None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
