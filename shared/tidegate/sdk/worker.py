"""Running jobs: functions that are called for every round that fires."""

import asyncio
import contextlib
import logging
import re
import signal
from collections.abc import Callable
from typing import Final, TypeVar

from tidegate.contracts.topics import ASSET_EVENTS, RUN_COMMANDS_PREFIX
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.definitions.asset import Asset
from tidegate.definitions.decorators import AssetDefinition, MultiAssetDefinition
from tidegate.definitions.job import Job
from tidegate.sdk.asset_function import function_of
from tidegate.sdk.errors import WorkerError
from tidegate.sdk.execute import Function
from tidegate.sdk.session import Options, Session

log = logging.getLogger(__name__)

_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 5.0
_GRACE_S: Final = 10.0  # to commit and to leave the group after the last run
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)

F = TypeVar("F", bound=Function)


class Worker:
    """Receives run commands and calls the job's function for each; workers of one group share the work.

        worker = Worker("127.0.0.1:9092")

        @worker.job("daily_temperatures")
        def daily(run: Run) -> None:
            ...

        worker.main()

    The runs of one partition follow each other, partitions work side by side. A function may be `async`, or plain and
    blocking: then it gets a thread. Either may be a generator, which yields Metadata for its outlets. What it publishes
    and the report on it appear exactly once, in one transaction with the place in the log; the function itself is
    called again when a worker dies in the middle of it. A function that raises fails its run. Workers of one group must
    serve the same jobs where they read the same topic. Functions declared with `@asset` are registered with `add`.

    `instance_id` makes this a static member of its group, that a restart takes over at once; needed where the broker
    keeps no session timeouts. `accept_gaps` goes on where commands were lost to retention. `stop` waits at most
    `shutdown_deadline_s` for runs at hand; those are run again by the next worker.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str = "tidegate-worker",
        namespace: str = "tidegate",
        events_topic: str = ASSET_EVENTS,
        instance_id: str | None = None,
        accept_gaps: bool = False,
        session_timeout_ms: int = 10_000,
        shutdown_deadline_s: float = 20.0,
    ) -> None:
        for name, value in (("group", group), ("namespace", namespace)):
            if not _NAME.fullmatch(value):
                raise DefinitionError(
                    f"Worker.{name} {value!r} must have 1 to 100 letters, digits, '.', '_' or '-'"
                )
        self._options = Options(
            bootstrap=bootstrap,
            group=group,
            namespace=namespace,
            events_topic=events_topic,
            instance_id=instance_id,
            accept_gaps=accept_gaps,
            session_timeout_ms=session_timeout_ms,
            shutdown_deadline_s=shutdown_deadline_s,
        )
        self._functions: dict[str, Function] = {}
        self._topics: dict[str, str] = {}
        self._declared: list[Asset] = []
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def jobs(self) -> tuple[str, ...]:
        """Ids of the jobs that this worker serves."""
        return tuple(self._functions)

    def job(self, job: str | Job, topic: str | None = None) -> Callable[[F], F]:
        """Register the decorated function for a job; `topic` where its commands have a topic of their own."""
        name = job.id if isinstance(job, Job) else job
        if isinstance(job, Job):
            topic = topic or job.run_commands_topic
        if not isinstance(name, str) or not name:
            raise DefinitionTypeError(
                f"Worker.job takes a job or its id, not {job!r}: use @worker.job('my_job')"
            )

        def register(function: F) -> F:
            if not callable(function):
                raise DefinitionTypeError(f"the function of job {name!r} must be callable, not {function!r}")
            if name in self._functions:
                raise DefinitionError(f"job {name!r} already has a function in this worker")
            self._functions[name] = function
            self._topics[name] = topic or RUN_COMMANDS_PREFIX + name
            return function

        return register

    def add(self, *definitions: AssetDefinition | MultiAssetDefinition) -> None:
        """Register what `@asset` and `@asset.multi` declared: the jobs, with their functions.

        A function is called with `self` (the asset), `context` (`Run.context`, by Airflow's names) and `outlet_events`
        where it has such parameters, and for any other with the asset of that name; its URI is known where the asset
        is in the schedule or made by this worker. Raises DefinitionTypeError for anything else, DefinitionError for a
        job that has a function already.
        """
        for definition in definitions:
            if not isinstance(definition, AssetDefinition | MultiAssetDefinition):
                raise DefinitionTypeError(
                    f"Worker.add takes what @asset or @asset.multi declared, not {definition!r:.100}: use @worker.job"
                    " for functions of a run"
                )
            self.job(definition.job)(function_of(definition, self._declared))
            made = [definition] if isinstance(definition, AssetDefinition) else definition.job.outlets
            self._declared += (asset for asset in made if isinstance(asset, Asset))

    async def run(self) -> None:
        """Work until `stop` or cancellation; whatever fails in between is logged and tried again."""
        if not self._functions:
            raise WorkerError(
                "the worker serves no job: register one with @worker.job('my_job') or worker.add"
            )
        if self._stopping is not None:
            raise WorkerError("the worker is already running")
        stopping = self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            sessions = asyncio.create_task(self._sessions(stopping))
            stopped = asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait({sessions, stopped}, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait({sessions}, timeout=self._options.shutdown_deadline_s + _GRACE_S)
            finally:
                stopped.cancel()
                sessions.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sessions
        finally:
            self._stopping = self._loop = None

    async def _sessions(self, stopping: asyncio.Event) -> None:
        wait_s = _FIRST_WAIT_S
        clock = asyncio.get_running_loop().time
        while not stopping.is_set():
            started = clock()
            try:
                session = Session(self._options, dict(self._functions), set(self._topics.values()), stopping)
                await session.run()
            except (Exception, asyncio.CancelledError) as error:
                # The next session starts from what is committed. A client of aiokafka that is stopped while its broker
                # is away may pass on the cancellation of a task of its own.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                log.error("worker was interrupted, will try again: %s: %s", type(error).__name__, error)
                wait_s = _FIRST_WAIT_S if clock() - started > 30 else wait_s
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), wait_s)
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def stop(self) -> None:
        """Let `run` end when the runs at hand have; may be called from any thread."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)

    def main(self) -> None:
        """Run as the program's main part: until SIGTERM or Ctrl-C, and at once at the second Ctrl-C."""
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
            logging.getLogger("aiokafka").setLevel(logging.WARNING)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self._main())

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        await self.run()
