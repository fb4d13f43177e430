"""Schedules one after the other on one Redis."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulation.broken import SWITCHES
from tests.simulation.redis import LocalRedis, Server
from tests.simulation.seams import seams
from tests.simulation.world import Focus, World

Judge = Callable[[int, Callable[[str], None] | None], list[str]]


@contextmanager
def simulation(broken: str | None = None, focus: Focus | None = None) -> Iterator[Judge]:
    """A function that runs the schedule of a seed and says what went wrong; with a rule broken on purpose."""
    worlds: list[World] = []

    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        redis = stack.enter_context(LocalRedis(Path(folder)))
        server = Server(redis.socket)
        stack.callback(server.close)
        stack.enter_context(seams(lambda: worlds[-1]))
        if broken is not None:
            focus = SWITCHES[broken].focus
            stack.enter_context(SWITCHES[broken].breaking(lambda: worlds[-1].loop))

        def judge(seed: int, trace: Callable[[str], None] | None = None) -> list[str]:
            world = World(seed, server, trace, focus)
            worlds[:] = [world]
            asyncio._set_running_loop(world.loop)
            try:
                world.run()
                return world.judge()
            finally:
                world.close()
                asyncio._set_running_loop(None)

        yield judge
