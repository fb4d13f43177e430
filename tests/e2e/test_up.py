"""`tidegate up` on the embedded default: ready, restarting, stopped; and what `pending` says meanwhile."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers.backends import unavailable
from tidegate import load_definitions
from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.pending import PendingRound, pending_rounds
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.supervisor import SERVICES, Up, running
from tidegate.sdk import AssetEventProducer

EXAMPLE = Path(__file__).parents[2] / "examples" / "temperatures"
DAY, LOST = "2010-03-14", "2010-03-14T02:00:00"
HOURS = [f"{DAY}T{hour:02}:00:00" for hour in range(24) if hour != 3]  # as the files label them

pytestmark = pytest.mark.skipif(unavailable("embedded") is not None, reason=str(unavailable("embedded")))


async def until(condition: Callable[[], Awaitable[bool]], what: str, timeout: float = 60) -> None:
    deadline = asyncio.get_running_loop().time() + timeout
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited for {what}"
        await asyncio.sleep(0.1)


async def open_rounds(up: Up, job: str) -> tuple[PendingRound, ...]:
    async with definitions_view(up.kafka) as view, connect_redis(up.redis) as redis:
        assert view.installation is not None
        return (await pending_rounds(redis, "tidegate", view.installation.shards, view, job, 10)).rounds


async def publish(up: Up, city: str, hours: list[str]) -> None:
    async with AssetEventProducer(up.kafka, "/tests") as producer:
        for hour in hours:
            await producer.send(f"{city}_hourly", partition_key=hour, extra={"fahrenheit": 50.5})


def is_running(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


async def test_everything_comes_up_waits_by_name_survives_kills_and_stops(tmp_path: Path) -> None:
    notices: list[str] = []
    async with running(
        tmp_path,
        definitions=load_definitions(EXAMPLE / "definitions.py"),
        workers=[str(EXAMPLE / "worker.py")],
        env={"TEMPERATURES_RESULTS": str(tmp_path / "results")},
        notice=notices.append,
    ) as up:
        assert set(up.children) == {*SERVICES, "worker-1"}
        assert os.getpgid(up.children["rollup"].pid or 0) != os.getpgid(0)
        await publish(up, "seattle", [hour for hour in HOURS if hour != LOST])
        await publish(up, "san_francisco", HOURS)

        async def lacks_one() -> bool:
            rounds = await open_rounds(up, "daily_temperatures")
            return [[asset.arrived for asset in each.assets] for each in rounds] == [[22, 23]]

        await until(lacks_one, "the day that lacks an hour")
        (waiting,) = await open_rounds(up, "daily_temperatures")
        assert waiting.key == DAY
        seattle, san_francisco = waiting.assets
        assert (seattle.asset, seattle.expected, len(seattle.missing)) == ("seattle_hourly", 23, 1)
        assert seattle.missing[0].startswith("2010-03-14T03")  # what the wall clock called it
        assert san_francisco.missing == ()

        before = {name: child.pid for name, child in up.children.items()}
        for child in up.children.values():
            child.kill()

        async def are_back() -> bool:
            return all(child.pid not in (None, before[name]) for name, child in up.children.items())

        await until(are_back, "the restarts")
        assert sum("is started again" in notice for notice in notices) == len(up.children)
        await publish(up, "seattle", [LOST])

        async def has_followed() -> bool:
            return [each.key for each in await open_rounds(up, "monthly_temperatures")] == ["2010-03"]

        await until(has_followed, "the month that follows from the day")
        assert await open_rounds(up, "daily_temperatures") == ()
        month = (await open_rounds(up, "monthly_temperatures"))[0].assets[0]
        assert (month.arrived, month.expected, len(month.missing)) == (1, 31, 30)
        pids = [child.pid for child in up.children.values()]
        broker: dict[str, Any] = json.loads((tmp_path / "broker" / "ports.json").read_text(encoding="utf-8"))
    assert not any(is_running(pid) for pid in [*pids, broker["pid"]])
    assert sum("is started again" in notice for notice in notices) == len(up.children)
