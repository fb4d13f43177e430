"""The life of a service process: signals, health, sessions that start again after every failure (rule E5)."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from aiokafka.errors import KafkaError
from redis.exceptions import RedisClusterException, RedisError

from tidegate.core.errors import TidegateError
from tidegate.definitions.plugins import load_plugins
from tidegate.runtime import metrics
from tidegate.runtime.health import health_server
from tidegate.runtime.log import configure_logging
from tidegate.runtime.settings import Settings
from tidegate.runtime.state import ServiceState

log = structlog.get_logger()

S = TypeVar("S", bound=Settings)
Session = Callable[[S, ServiceState], Awaitable[None]]

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 5.0


def serve(name: str, settings: S, session: Session[S]) -> None:
    """Run `session` until SIGTERM or SIGINT; a session that fails is logged and started again with back-off.

    Types of installed plugins are known before the first session; a plugin that fails is logged and left out.

    A session opens its own connections, so that everything it knew is read again from Kafka and Redis. It returns
    when `state.stopping` is set; where it does not within the shutdown deadline, the process ends without waiting for
    it, which the protocol allows at any point.
    """
    configure_logging(name, settings)
    for failure in load_plugins():
        log.warning("plugin_failed", entry_point=failure.source, error=failure.reason[:500])
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    asyncio.run(_serve(name, settings, session))


async def _serve(name: str, settings: S, session: Session[S]) -> None:
    state = ServiceState(settings.stall_after_s)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_note)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, state.stopping.set)
    async with health_server(state, settings.health_host, settings.health_port) as port:
        log.info("service_started", kafka=settings.kafka, health_port=port, pid=os.getpid())
        sessions = asyncio.create_task(_sessions(settings, state, session))
        stopping = asyncio.create_task(state.stopping.wait())
        await asyncio.wait((sessions, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        _, busy = await asyncio.wait((sessions,), timeout=settings.shutdown_deadline_s)
        if busy:
            log.error("shutdown_deadline_passed", deadline_s=settings.shutdown_deadline_s)
            os._exit(1)
        sessions.result()
    log.info("service_stopped")


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """One line for what no task asked for: aiokafka leaves such futures behind when a transaction is fenced."""
    log.warning("unasked_error", message=context.get("message"), error=repr(context.get("exception"))[:500])


async def _sessions(settings: S, state: ServiceState, session: Session[S]) -> None:
    wait_s, reason = _FIRST_WAIT_S, "the service is connecting"
    while not state.stopping.is_set():
        started = asyncio.get_running_loop().time()
        state.block("session", reason)  # that of the last failure, until the next session goes on
        state.unblock("starting")
        try:
            await session(settings, state)
            ended = "stopped"
        except (Exception, asyncio.CancelledError) as error:
            # Whatever failed, the next session starts from what is stored. A client of aiokafka that is stopped while
            # its broker is away may pass on the cancellation of a task of its own: nobody asked this one to end.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            ended = type(error).__name__
            reason = f"{ended}: {error}"[:500]
            state.block("session", reason)
            expected = isinstance(
                error, (KafkaError, RedisError, RedisClusterException, OSError, TidegateError)
            )
            log.error("session_failed", error=f"{ended}: {error}"[:1000], exc_info=not expected)
        metrics.SESSIONS.labels(ended).inc()
        if ended != "stopped":
            if asyncio.get_running_loop().time() - started > 30:
                wait_s = _FIRST_WAIT_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(state.stopping.wait(), wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
        state.step()
