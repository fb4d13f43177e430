"""A worker's sessions: whatever ends one, the next begins."""

import asyncio
from typing import Any

import pytest

from tidegate.sdk import Worker
from tidegate.sdk import worker as module


async def test_a_cancellation_that_a_client_passes_on_ends_the_session_and_not_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker("nobody:9092", group="g")
    worker.job("j")(lambda run: None)
    sessions = 0

    class Broken:
        def __init__(self, *_: Any) -> None: ...

        async def run(self) -> None:
            nonlocal sessions
            sessions += 1
            if sessions == 1:
                task = asyncio.create_task(asyncio.sleep(60))
                task.cancel()
                await task
            worker.stop()
            await asyncio.sleep(0.01)

    monkeypatch.setattr(module, "Session", Broken)
    await asyncio.wait_for(worker.run(), 20)
    assert sessions == 2
