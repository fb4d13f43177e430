"""One fixed address in front of a server that moves: a TCP proxy on a thread of its own."""

import asyncio
import contextlib
import threading
from typing import Final, Self

from tests.servers.process import HOST, free_ports

_PATIENCE_S: Final = 5.0


class Proxy:
    """Listens on `port` and leads every client to the target of that moment.

    A client whose server goes away is hung up on if it waits for an answer. Otherwise it does not even notice: what it
    sends next goes to the new target, as behind proxies that keep their clients' connections.
    """

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

    def lead_to(self, port: int, *, cut: bool = True) -> None:
        """Lead to another port; every client is hung up on unless `cut` is false."""
        asyncio.run_coroutine_threadsafe(self._lead_to(port, cut), self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port, limit=2**20)

    async def _lead_to(self, port: int | None, cut: bool) -> None:
        self._target = port
        if cut and self._clients:
            for client in self._clients:
                client.cancel()
            await asyncio.wait(self._clients)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._lead_to(None, cut=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        way: _Way | None = None
        try:
            while data := await reader.read(2**18):
                if way is None or way.is_over:
                    way = _Way(*await self._connect(), writer)
                await way.ask(data)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client sees a closed connection, as it should
        finally:
            self._clients.discard(task)
            if way is not None:
                way.close()
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                with contextlib.suppress(OSError):
                    return await asyncio.open_connection(HOST, self._target, limit=2**20)
                await asyncio.sleep(0.02)


class _Way:
    """One client's connection to one server."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        self._reader, self._writer, self._client = reader, writer, client
        self._owes = False
        self.is_over = False
        self._answering = asyncio.create_task(self._answer())

    async def ask(self, data: bytes) -> None:
        self._owes = True
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._answering.cancel()
        self._writer.close()

    async def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._reader.read(2**18):
                self._owes = False
                self._client.write(data)
                await self._client.drain()
        self.is_over = True
        self._writer.close()
        if self._owes:
            self._client.close()
