"""The small HTTP server of every service: `/healthz`, `/readyz`, `/metrics`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tidegate.runtime.state import ServiceState


@asynccontextmanager
async def health_server(state: ServiceState, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port, which is a free one where `port` is 0."""

    async def healthz(request: web.Request) -> web.Response:
        if (stalled := state.stalled_for_s) is not None:
            return web.json_response({"alive": False, "stalled_for_s": round(stalled, 1)}, status=503)
        return web.json_response({"alive": True})

    async def readyz(request: web.Request) -> web.Response:
        return web.json_response(
            {"ready": state.is_ready, "reasons": state.reasons, "lag": sum(state.lag.values())},
            status=200 if state.is_ready else 503,
        )

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
