"""Start one service as `python -m tests.chaos.launch` with what only tests may do to it: sabotage, and another clock.

TIDEGATE_CHAOS_SERVICE names the service. TIDEGATE_CHAOS_SABOTAGE breaks it on purpose, so that the driver can show that
it would notice. TIDEGATE_CHAOS_CLOCK names a file that holds the seconds by which this process's clock is wrong.
"""

import itertools
import os
import time
import uuid
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

SERVICE: Final = "TIDEGATE_CHAOS_SERVICE"
SABOTAGE: Final = "TIDEGATE_CHAOS_SABOTAGE"
CLOCK: Final = "TIDEGATE_CHAOS_CLOCK"

_ONE_IN: Final = 40


def _lose() -> None:
    """The rollup drops some of what it sends to the dispatcher."""
    from tidegate.contracts.topics import RUN_REQUESTS

    owner: Any = import_module("tidegate_rollup.owner")
    send_all, count = owner.send_all, itertools.count(1)

    async def forgetful(producer: Any, records: Sequence[Any]) -> Any:
        kept = [each for each in records if each.topic != RUN_REQUESTS or next(count) % _ONE_IN]
        return await send_all(producer, kept)

    owner.send_all = forgetful


def _double() -> None:
    """The dispatcher sends some commands twice."""
    from tidegate.contracts.topics import RUN_COMMANDS_PREFIX
    from tidegate.runtime.transactions import PartitionTransactions

    transactions: Any = PartitionTransactions
    commit, count = transactions.commit, itertools.count(1)

    async def repeating(self: Any, records: Sequence[Any], *rest: Any) -> Any:
        again = [
            each
            for each in records
            if each.topic.startswith(RUN_COMMANDS_PREFIX) and not next(count) % _ONE_IN
        ]
        return await commit(self, [*records, *again], *rest)

    transactions.commit = repeating


def _unaudited() -> None:
    """Every service forgets some audit entries."""
    module: Any = import_module(
        {
            "ingest": "tidegate_ingest.main",
            "mapper": "tidegate_mapper.main",
            "rollup": "tidegate_rollup.owner",
            "dispatcher": "tidegate_dispatcher.partition",
        }[os.environ[SERVICE]]
    )
    audit_records, count = module.audit_records, itertools.count(1)

    def silent(entries: Sequence[Any], partitions: int) -> Any:
        return audit_records([each for each in entries if next(count) % _ONE_IN], partitions)

    module.audit_records = silent


def _unclosed() -> None:
    """The rollup says nothing of events that count nowhere under a job's new definition."""
    owner: Any = import_module("tidegate_rollup.owner")
    map_again = owner.map_again

    def silent(*given: Any) -> Any:
        mapped, _ = map_again(*given)
        return mapped, []

    owner.map_again = silent


def _nocas() -> None:
    """The script applies whatever it is given, wherever the shard stands."""
    store: Any = import_module("tidegate_rollup.store")
    comparison = " or (next_offset or '') ~= believed then"
    script = store._SCRIPT.replace(comparison, " then", 1)
    assert script != store._SCRIPT, "the script does not compare where it used to"
    store._SCRIPT = script


def _nofence() -> None:
    """A dispatcher takes partitions over without ending what its predecessor has open."""
    from tidegate.runtime.transactions import PartitionTransactions

    transactions: Any = PartitionTransactions
    begin = transactions.__init__

    def unbound(self: Any, bootstrap: str, partition_id: str, *rest: Any) -> None:
        begin(self, bootstrap, f"{partition_id}-{uuid.uuid4().hex}", *rest)

    transactions.__init__ = unbound


SABOTAGES: Final[dict[str, tuple[tuple[str, ...], Callable[[], None]]]] = {
    "lose": (("rollup",), _lose),
    "double": (("dispatcher",), _double),
    "unaudited": (("ingest", "mapper", "rollup", "dispatcher"), _unaudited),
    "unclosed": (("rollup",), _unclosed),
    "nocas": (("rollup",), _nocas),
    "nofence": (("dispatcher",), _nofence),
}
"""Each with the services that it breaks."""


def _step_clock(file: Path) -> None:
    right = time.time

    def wrong() -> float:
        try:
            return right() + float(file.read_text(encoding="ascii") or 0)
        except OSError:
            return right()

    time.time = wrong


def main() -> None:
    service = os.environ[SERVICE]
    if CLOCK in os.environ:
        _step_clock(Path(os.environ[CLOCK]))
    module = import_module(f"tidegate_{service}.main")
    broken = os.environ.get(SABOTAGE)
    if broken and service in SABOTAGES[broken][0]:
        SABOTAGES[broken][1]()
    module.main()


if __name__ == "__main__":
    main()
