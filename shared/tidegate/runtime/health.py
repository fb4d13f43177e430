"""The small HTTP server of every service: `/healthz`, `/readyz`, `/metrics`.

By hand, one answer for a connection: importing a web server was a sixth of all that a service imports.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tidegate.runtime.state import ServiceState

_REQUEST_S: Final = 10.0
Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""


@asynccontextmanager
async def health_server(state: ServiceState, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port, which is a free one where `port` is 0."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, ValueError, EOFError, TimeoutError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_REQUEST_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                    method, target, _ = request.decode("latin-1").split("\r\n", 1)[0].split(" ", 2)
                    status, kind, body = answer(state, method, target.partition("?")[0])
                    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                    writer.write(head.encode() + (b"" if method == "HEAD" else body))
                    await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, host, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def answer(state: ServiceState, method: str, path: str) -> Answer:
    """What is said to a request."""
    if path not in ("/healthz", "/readyz", "/metrics"):
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"404: Not Found"
    if method not in ("GET", "HEAD"):
        return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", b"405: Method Not Allowed"
    if path == "/metrics":
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest()
    if path == "/readyz":
        told = {"ready": state.is_ready, "reasons": state.reasons, "lag": sum(state.lag.values())}
        return _json(told, is_well=state.is_ready)
    if (stalled := state.stalled_for_s) is not None:
        return _json({"alive": False, "stalled_for_s": round(stalled, 1)}, is_well=False)
    return _json({"alive": True}, is_well=True)


def _json(told: dict[str, Any], *, is_well: bool) -> Answer:
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return status, "application/json; charset=utf-8", json.dumps(told).encode()
