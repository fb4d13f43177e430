"""Redis: which events were seen within the horizon, and where (rule I2)."""

from collections.abc import Mapping, Sequence

from redis.asyncio import Redis


class SeenEvents:
    """One key for every event: its identity, and the mark of the record that brought it first."""

    def __init__(self, redis: Redis, namespace: str, horizon_s: int) -> None:
        self._redis, self._prefix, self._horizon_s = redis, f"{namespace}:seen:", horizon_s

    async def remember(self, marks: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        """Write the marks of identities that have none, in one round trip; of equal identities the first counts.

        Returns what each identity had before this call. Safe to repeat: a repeat returns its own marks.
        """
        if not marks:
            return {}
        distinct = dict(reversed(marks))
        pipe = self._redis.pipeline(transaction=False)
        for identity, mark in distinct.items():
            pipe.set(self._prefix + identity, mark, nx=True, get=True, ex=self._horizon_s)
        before = await pipe.execute()
        return {identity: mark for identity, mark in zip(distinct, before, strict=True) if mark is not None}
