"""The dispatcher process: settings, connections, the loop; nothing else."""

from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.service import serve
from tidegate.runtime.settings import Settings
from tidegate.runtime.start_checks import check_installation
from tidegate.runtime.state import ServiceState
from tidegate.runtime.topic_admin import admin_client
from tidegate_dispatcher.decide import SERVICE
from tidegate_dispatcher.owner import Dispatcher


async def session(settings: Settings, state: ServiceState) -> None:
    """Read, decide, commit, until stopped."""
    async with (
        definitions_view(settings.kafka) as view,
        admin_client(settings.kafka) as admin,
        connect_redis(settings.redis) as redis,
    ):
        assert view.installation is not None
        await check_installation(settings, view, admin, redis)
        dispatcher = Dispatcher(settings, state, view, admin, redis)
        try:
            async with dispatcher.consumer:
                while not state.stopping.is_set():
                    await dispatcher.step()
        finally:
            await dispatcher.close()


def main() -> None:
    serve(SERVICE, Settings(), session)
