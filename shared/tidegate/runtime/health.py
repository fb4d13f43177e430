"""The small HTTP server of every service: `/healthz`, `/readyz`, `/metrics`.

That of the standard library, in threads: to import a larger one took a third of the time that a service needs to
start. It answers also while the service's loop is stuck, which `/healthz` then says.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AI_PASSIVE, SOCK_STREAM, getaddrinfo
from socketserver import TCPServer
from threading import Thread
from typing import Any, Final, NamedTuple

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tidegate.runtime.state import ServiceState

log = structlog.get_logger()

_REQUEST_S: Final = 10
"""A client that says nothing for so long is left."""
_LOOK_EVERY_S: Final = 0.1
"""How long the end may take."""


class Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


@asynccontextmanager
async def health_server(state: ServiceState, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port, which is a free one where `port` is 0."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S

        def do_GET(self) -> None:
            self.wfile.write(self._begun())

        def do_HEAD(self) -> None:
            self._begun()

        def _begun(self) -> bytes:
            """All of an answer but its body, which is returned."""
            found = answer(state, self.path)
            self.send_response(found.status)
            self.send_header("Content-Type", found.content_type)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            return found.body

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing: a probe a second is no news."""

    with _Server(host, port, Handler) as server:
        Thread(target=server.serve_forever, args=(_LOOK_EVERY_S,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        found = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)
        self.address_family = found[0][0]
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Without asking for the name of the host, which takes seconds where nobody knows it."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no error of the service."""
        log.debug("health_request_failed", client=client_address[0], error=repr(sys.exception()))


def answer(state: ServiceState, target: str) -> Answer:
    """What is said to a request."""
    path = target.partition("?")[0]
    if path == "/metrics":
        return Answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest())
    if path == "/readyz":
        told = {"ready": state.is_ready, "reasons": state.reasons, "lag": sum(state.lag.values())}
        return _json(told, is_well=state.is_ready)
    if path == "/healthz":
        if (stalled := state.stalled_for_s) is not None:
            return _json({"alive": False, "stalled_for_s": round(stalled, 1)}, is_well=False)
        return _json({"alive": True}, is_well=True)
    return Answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"404: Not Found")


def _json(told: dict[str, Any], *, is_well: bool) -> Answer:
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json; charset=utf-8", json.dumps(told).encode())
