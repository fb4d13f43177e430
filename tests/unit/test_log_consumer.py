"""Looking into logs."""

import asyncio

import pytest

from tidegate.runtime.log_consumer import _stop


class _Fetching:
    """A consumer whose own fetch is cancelled as it stops, as that of aiokafka 0.14 is while it waits to try again."""

    async def stop(self) -> None:
        fetch = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        fetch.cancel()
        await fetch


async def test_a_fetch_that_is_cancelled_at_the_end_cancels_nobody_else() -> None:
    await _stop(_Fetching())


async def test_who_is_cancelled_while_a_consumer_stops_learns_of_it() -> None:
    class _Slow:
        async def stop(self) -> None:
            await asyncio.sleep(60)

    stopping = asyncio.create_task(_stop(_Slow()))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
