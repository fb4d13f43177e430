"""One fixed address in front of a server that moves: a TCP proxy on a thread of its own."""

import asyncio
import contextlib
import threading
from typing import Self

from tests.servers.process import HOST, free_ports


class Proxy:
    """Listens on `port` and connects every client to the target of that moment, or hangs up where there is none."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self._target: int | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def lead_to(self, port: int | None) -> None:
        """Cut every connection, and lead new ones to another port, or nowhere."""
        asyncio.run_coroutine_threadsafe(self._lead_to(port), self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port, limit=2**20)

    async def _lead_to(self, port: int | None) -> None:
        self._target = port
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._lead_to(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        ways: list[asyncio.Task[None]] = []
        writers = [writer]
        try:
            if self._target is not None:
                server_reader, server_writer = await asyncio.open_connection(HOST, self._target, limit=2**20)
                writers.append(server_writer)
                ways = [
                    asyncio.create_task(_pump(reader, server_writer)),
                    asyncio.create_task(_pump(server_reader, writer)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # the client sees a closed connection, as it should
        finally:
            self._clients.discard(task)
            for way in ways:
                way.cancel()
            for each in writers:
                each.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(2**18):
            writer.write(data)
            await writer.drain()
