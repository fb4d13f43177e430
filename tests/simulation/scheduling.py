"""An event loop with a time of its own, and processes that wait at every call until they are chosen."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, Final

START_S: Final = 1_700_000_000.0


class _NoFiles:
    """A selector for a loop that has no files."""

    def select(self, timeout: float | None = None) -> Sequence[Any]:
        return ()

    def close(self) -> None: ...


class Loop(asyncio.BaseEventLoop):
    """Runs what is ready and returns; time moves only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_S
        self._selector = _NoFiles()
        self.set_exception_handler(lambda *_: None)  # what nobody awaits ends with its process
        self._clock_resolution = 1e-3  # what is due now must run now, and `now` has no room for nanoseconds

    def time(self) -> float:
        return self.now

    def _process_events(self, events: Sequence[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def settle(self) -> None:
        """Run until every task waits for a call or for a later time."""
        while self._ready or (self._scheduled and self._scheduled[0]._when <= self.now):  # type: ignore[attr-defined]
            self._run_once()  # type: ignore[attr-defined]


class Call:
    """A call to a server that has not been made yet."""

    __slots__ = ("future", "is_ready", "kind", "perform", "process", "what")

    def __init__(
        self,
        process: "Process",
        kind: str,
        perform: Callable[[], Any],
        is_ready: Callable[[], bool] | None,
        future: "asyncio.Future[Any]",
    ) -> None:
        self.process, self.kind, self.perform, self.is_ready = process, kind, perform, is_ready
        self.future = future
        self.what = ""
        """For a trace."""


class Process:
    """One process of a service: it can be killed between any two calls, frozen, and left behind as a zombie."""

    def __init__(
        self, calls: "Calls", service: str, number: int, life: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self.service, self.name, self.is_alive = service, f"{service}-{number}", True
        self.frozen_until = 0
        """The step from which on it may be chosen again."""
        self.deaf_until = 0
        """The step up to which it does not hear that its partitions are another's."""
        self.clock_off = 0.0
        """Seconds by which its clock is fast."""
        self.members: list[Any] = []
        """Its consumers that are members of a group."""
        context = copy_context()
        context.run(current.set, self)
        self._calls = calls
        self.task: asyncio.Task[None] = calls.loop.create_task(life(), name=self.name, context=context)

    def kill(self) -> None:
        """End it where it is: nothing that it does from here on has an effect."""
        self.is_alive = False
        self.task.cancel()
        for call in self._calls.waiting:
            if call.process is self:
                call.future.cancel()
        self._calls.loop.settle()


current: ContextVar[Process] = ContextVar("process")


class Calls:
    """The calls that processes wait for."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.waiting = loop, list[Call]()

    def add(self, kind: str, perform: Callable[[], Any], is_ready: Callable[[], bool] | None = None) -> Call:
        """A call of the current process; `is_ready` says of one that may wait whether there is an answer."""
        process = current.get()
        call = Call(process, kind, perform, is_ready, self.loop.create_future())
        if process.is_alive:
            self.waiting.append(call)
        else:
            call.future.cancel()
        return call

    async def make(
        self, kind: str, perform: Callable[[], Any], is_ready: Callable[[], bool] | None = None
    ) -> Any:
        return await self.add(kind, perform, is_ready).future

    def open(self, step: int | None = None) -> list[Call]:
        """Those that still wait; with a step, those of processes that are not frozen then."""
        self.waiting = [call for call in self.waiting if not call.future.done()]
        if step is None:
            return self.waiting
        return [call for call in self.waiting if call.process.frozen_until <= step]

    def answer(self, call: Call, error: Exception | None = None, *, is_performed: bool = True) -> None:
        """Make a call and hand over its answer, or `error` in the place of it."""
        result: Any = None
        if is_performed:
            try:
                result = call.perform()
            except Exception as raised:
                error = error or raised
        if not call.future.done():  # its process may have ended by what was performed
            if error is None:
                call.future.set_result(result)
            else:
                call.future.set_exception(error)
        self.loop.settle()

    def answer_empty(self, call: Call) -> None:
        """Let a call that waits for records come back without any."""
        call.future.set_result({})
        self.loop.settle()
