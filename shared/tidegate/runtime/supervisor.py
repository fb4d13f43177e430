"""The whole of Tidegate on one machine: broker, topics, the four services, workers; what `tidegate up` runs.

Services are programs of their own, so that they fail and start again alone, as they do elsewhere.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.contracts.definitions import Installation
from tidegate.core.errors import TidegateError
from tidegate.definitions import Definitions
from tidegate.runtime.children import HOST, Child, Notice, free_port

if TYPE_CHECKING:
    from tidegate.runtime.applying import Applied

SERVICES: Final = ("ingest", "mapper", "rollup", "dispatcher")
_READY_DEADLINE_S: Final = 60.0
_STOP_DEADLINE_S: Final = 15.0  # a service gives itself 10 s
_WORKER_STOP_DEADLINE_S: Final = 30.0  # a worker finishes the runs at hand
_LOOK_EVERY_S: Final = 0.05
_SAY_EVERY_S: Final = 5.0
_BROKER_SILENT_S: Final = 10.0


class NotReadyError(TidegateError, RuntimeError):
    """Something did not come up in time, or went away for good."""


@dataclass(slots=True)
class Up:
    """What is running."""

    kafka: str
    redis: str
    folder: Path
    children: Mapping[str, Child]
    """By name: the services, then `worker-1` ..."""
    is_embedded: bool
    applied: "Applied | None" = None
    broken: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Raises when something is gone that cannot be started again."""

    @property
    def log_folder(self) -> Path:
        return self.folder / "logs"


@asynccontextmanager
async def running(
    folder: Path,
    *,
    kafka: str | None = None,
    redis: str | None = None,
    installation: Installation | None = None,
    multi_team: bool | None = None,
    replication: int = 1,
    definitions: Definitions | None = None,
    workers: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    ports: tuple[int, int] = (0, 0),
    notice: Notice = lambda line: None,
) -> AsyncIterator[Up]:
    """Everything, ready; stopped at the end of the block, services first and the broker last.

    The embedded broker runs in `folder` unless `kafka` and `redis` name others. `workers` are modules or files for
    `tidegate worker`. `env` adds to the children's environment; `ports` are those of the embedded Kafka and Redis, 0
    for the ones the folder had before, or free ones. `multi_team` switches the filters of teams, None leaves them as
    they are. Raises NotReadyError with the end of the log of what did not come up, InstallationMismatchError where the
    counts are others than those recorded.
    """
    if (kafka is None) != (redis is None):
        raise NotReadyError("give both a Kafka and a Redis, or neither")
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        is_embedded = kafka is None or redis is None
        if kafka is None or redis is None:
            from tidegate.runtime.embedded import embedded

            broker = await stack.enter_async_context(embedded(folder / "broker", *ports))
            kafka, redis = broker.kafka, broker.redis
        up = Up(kafka, redis, folder, {}, is_embedded)
        up.children = _children(up, workers, env or {}, notice)
        services = [up.children[name] for name in SERVICES]
        stack.push_async_callback(_stop, list(up.children.values()))
        for child in services:
            child.start(held=True)
        await asyncio.sleep(0)  # they load while we do
        from tidegate.runtime.installing import install

        # Before any service: one that asks for a missing topic makes some brokers create it with their own settings.
        await install(kafka, installation or Installation(), replication, multi_team=multi_team)
        for child in services:
            child.release()
        if definitions is not None:
            from tidegate.runtime.applying import apply_definitions

            up.applied = await apply_definitions(kafka, definitions)
        for child in up.children.values():
            if child not in services:
                child.start()
        await _wait_ready(up.children.values(), notice)
        if is_embedded:
            watching = asyncio.create_task(_watch_broker(up))
            stack.push_async_callback(_cancel, watching)
        yield up


def _children(up: Up, workers: Sequence[str], env: Mapping[str, str], notice: Notice) -> Mapping[str, Child]:
    common = {
        **os.environ,
        "TIDEGATE_KAFKA": up.kafka,
        "TIDEGATE_REDIS": up.redis,
        "TIDEGATE_HEALTH_HOST": HOST,
        "PYTHONUNBUFFERED": "1",
        **env,
    }
    found: dict[str, Child] = {}
    for name in SERVICES:
        port = free_port()
        own = {"TIDEGATE_HEALTH_PORT": str(port)}
        if up.is_embedded:
            # The embedded broker never drops a killed member: its successor must be known as the same one.
            own["TIDEGATE_INSTANCE_ID"] = "1"
        command = [sys.executable, "-m", "tidegate.runtime.held", f"tidegate_{name}"]
        log_file = up.log_folder / f"{name}.log"
        found[name] = Child(name, command, {**common, **own}, log_file, notice, port)
    for number, target in enumerate(workers, start=1):
        name = f"worker-{number}"
        command = [sys.executable, "-m", "tidegate.cli", "worker", target, "--kafka", up.kafka]
        log_file = up.log_folder / f"{name}.log"
        own = {"TIDEGATE_INSTANCE_ID": name} if up.is_embedded else {}
        found[name] = Child(name, command, {**common, **own}, log_file, notice)
    return found


async def _wait_ready(children: Iterable[Child], notice: Notice) -> None:
    waiting, clock = list(children), asyncio.get_running_loop().time
    deadline, say_at = clock() + _READY_DEADLINE_S, clock() + _SAY_EVERY_S
    reasons: dict[str, str] = {}
    while waiting:
        reasons = {child.name: why for child in waiting if (why := await child.why_not_ready()) is not None}
        waiting = [child for child in waiting if child.name in reasons]
        if waiting and clock() > say_at:
            say_at = clock() + _SAY_EVERY_S
            notice("not ready yet: " + "; ".join(f"{name}: {why}" for name, why in reasons.items()))
        if waiting and clock() > deadline:
            child = waiting[0]
            raise NotReadyError(
                f"{child.name} is not ready after {_READY_DEADLINE_S:g} s: {reasons[child.name]}; {child.log_tail()}"
            )
        if waiting:
            await asyncio.sleep(_LOOK_EVERY_S)


async def _watch_broker(up: Up) -> None:
    """The embedded broker is not started again by itself: what it lost is for a person to see."""
    host, _, port = up.kafka.partition(":")
    clock = asyncio.get_running_loop().time
    answered = clock()
    while clock() - answered < _BROKER_SILENT_S:
        await asyncio.sleep(1)
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            answered = clock()
    if not up.broken.done():
        up.broken.set_exception(
            NotReadyError(f"the embedded broker at {up.kafka} has gone; its log is in {up.folder / 'broker'}")
        )


async def _stop(children: Sequence[Child]) -> None:
    """All at once: none needs another to stop well."""
    await asyncio.gather(
        *(
            child.stop(_STOP_DEADLINE_S if child.health_port else _WORKER_STOP_DEADLINE_S)
            for child in children
        )
    )


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
