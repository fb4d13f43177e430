"""What a service answers to HTTP."""

import asyncio
import contextlib
import json
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
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"
        assert json.loads(body) == {"alive": True}
        assert (await exchange(port, b"HEAD /healthz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("request_", [b"", b"\r\n\r\n", b"GET /healthz", b"\xff\xfe\r\n\r\n", b"x" * 100_000])
async def test_what_is_no_request_gets_no_answer_and_harms_nothing(request_: bytes) -> None:
    async with health_server(ServiceState(60), "127.0.0.1", 0) as port:
        with contextlib.suppress(ConnectionError):
            assert await exchange(port, request_) == b""
        assert b" 200 OK" in await exchange(port, b"GET /metrics HTTP/1.0\r\n\r\n")


async def test_only_what_is_there_can_be_asked_for() -> None:
    state = ServiceState(60)
    assert answer(state, "GET", "/")[0] is HTTPStatus.NOT_FOUND
    assert answer(state, "POST", "/readyz")[0] is HTTPStatus.METHOD_NOT_ALLOWED
    state.block("kafka", "no broker answers")
    status, _, body = answer(state, "GET", "/readyz")
    assert status is HTTPStatus.SERVICE_UNAVAILABLE
    assert json.loads(body)["reasons"]["kafka"] == "no broker answers"
    assert answer(state, "GET", "/metrics")[2].startswith(b"# HELP")
