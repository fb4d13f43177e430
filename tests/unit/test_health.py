"""What a service answers to HTTP."""

import asyncio
import contextlib
import json
import socket
from http import HTTPStatus

import pytest

from tidegate.runtime.health import answer, health_server
from tidegate.runtime.state import ServiceState


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 5)
    finally:
        writer.close()


async def test_answers_are_whole_and_end_the_connection() -> None:
    async with health_server(ServiceState(60), "127.0.0.1", 0) as port:
        said = await exchange(port, b"GET /healthz?a=b HTTP/1.1\r\nHost: some\r\n\r\n")
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK\r\n")
        assert f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"
        assert json.loads(body) == {"alive": True}
        assert (await exchange(port, b"HEAD /healthz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("request_", [b"", b"\r\n\r\n", b"GET /healthz", b"\xff\xfe\r\n\r\n", b"x" * 100_000])
async def test_what_is_no_request_gets_no_answer_and_harms_nothing(request_: bytes) -> None:
    async with health_server(ServiceState(60), "127.0.0.1", 0) as port:
        with contextlib.suppress(OSError):  # the connection may be gone before all was said
            assert b" 200 " not in await exchange(port, request_)
        assert b" 501 " in await exchange(port, b"POST /readyz HTTP/1.0\r\n\r\n")
        assert b" 200 OK" in await exchange(port, b"GET /metrics HTTP/1.0\r\n\r\n")


def stuck(port: int, state: ServiceState) -> bytes:
    """What is answered to somebody who keeps the loop's own thread until then."""
    while state.stalled_for_s is None:
        pass
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        return client.makefile("rb").read()


async def test_a_service_whose_loop_is_stuck_still_answers_and_says_so() -> None:
    state = ServiceState(0.05)
    state.set_lag("contributions", 0, 5)
    async with health_server(state, "127.0.0.1", 0) as port:
        said = stuck(port, state)
    assert b" 503 " in said
    assert b"stalled_for_s" in said


def test_only_what_is_there_can_be_asked_for() -> None:
    state = ServiceState(60)
    assert answer(state, "/").status is HTTPStatus.NOT_FOUND
    state.block("kafka", "no broker answers")
    found = answer(state, "/readyz")
    assert found.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert json.loads(found.body)["reasons"]["kafka"] == "no broker answers"
    assert answer(state, "/metrics").body.startswith(b"# HELP")
