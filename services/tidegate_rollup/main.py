"""The rollup process: settings, connections, the loop; nothing else."""

from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.producer import acknowledged_producer
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.service import serve
from tidegate.runtime.settings import Settings
from tidegate.runtime.start_checks import check_installation
from tidegate.runtime.state import ServiceState
from tidegate.runtime.topic_admin import admin_client
from tidegate_rollup.outbox import SERVICE
from tidegate_rollup.owner import PartitionOwner
from tidegate_rollup.store import RoundStore


async def session(settings: Settings, state: ServiceState) -> None:
    """Fold, send, acknowledge, commit, until stopped."""
    group = f"{settings.namespace}-rollup"
    async with (
        definitions_view(settings.kafka) as view,
        admin_client(settings.kafka) as admin,
        connect_redis(settings.redis) as redis,
        acknowledged_producer(settings.kafka, group) as producer,
    ):
        assert view.installation is not None
        await check_installation(settings, view, admin, redis)
        store = RoundStore(redis, settings.namespace, settings.dedupe_horizon_s * 1000)
        owner = PartitionOwner(settings, state, view, store, producer, admin, redis, group)
        async with owner.consumer:
            while not state.stopping.is_set():
                await owner.step()
            await owner.commit()


def main() -> None:
    serve(SERVICE, Settings(), session)
