"""Many rounds of many segments each, under SIGKILL: as many runs, each once, each with every segment (B109).

The rounds are dealt out to a dozen jobs, so that they are in many shards. Events of one asset keep their order, so that
the events of every run are known beforehand.
"""

import json
import random
import zlib
from collections import Counter, defaultdict
from typing import Any, Final

from tests.chaos.driver import Scenario
from tests.chaos.jobs import BUCKET
from tests.chaos.oracle import TELLING, Logs, Verdict
from tests.chaos.plan import EVENT_TYPE, Fault, Plan, Planned
from tidegate import (
    Asset,
    FixedKeyMapper,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    WaitForAll,
)
from tidegate.core.rounds import RerunPolicy

VICTIMS: Final = ("rollup", "rollup", "ingest", "ingest", "mapper", "dispatcher")
_JOBS: Final = 12
_SOURCE: Final = "/segments"


def segments_plan(seed: int, rounds: int, segments: int, kills: int, partitions: int = 4) -> Plan:
    """`rounds` times every segment, the ones of a round mixed with those of the other jobs' rounds."""
    dice = random.Random(f"{seed} segments")
    records = []
    for first in range(0, rounds, _JOBS):
        block = [
            _record(number, at, partitions)
            for number in range(first, min(first + _JOBS, rounds))
            for at in range(segments)
        ]
        dice.shuffle(block)
        records += block
    return Plan(seed, partitions, records, [Fault("kill", dice.randrange(2**32)) for _ in range(kills)])


def segments_scenario(rounds: int, segments: int) -> Scenario:
    names = [str(each) for each in range(segments)]
    window = RollupMapper(FixedKeyMapper(BUCKET), SegmentWindow(names), WaitForAll())
    jobs = tuple(
        Job(
            id=_job(number),
            schedule=PartitionedAssetTimetable(
                assets=Asset(_job(number)),
                default_partition_mapper=window,
                rerun_policy=RerunPolicy.NEW_ROUND,
            ),
        )
        for number in range(min(_JOBS, rounds))
    )
    return Scenario(jobs, lambda logs: check_segments(logs, rounds, segments))


def check_segments(logs: Logs, rounds: int, segments: int) -> Verdict:
    """One run per round, generations in order, with exactly the round's events; and not one audit entry."""
    verdict = Verdict(commands=len(logs.commands), rounds=rounds)
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for raw in logs.commands:
        command = json.loads(raw.value or b"null")
        found[command["job"], command["generation"]].append(command)
    for number in range(rounds):
        place = (_job(number), number // _JOBS + 1)
        some = found.pop(place, [])
        verdict.lost += not some
        verdict.doubled += max(0, len(some) - 1)
        right = Counter(_id(number, at) for at in range(segments))
        if [Counter(event["id"] for event in each["triggering_asset_events"]) for each in some] != [right]:
            verdict.problems.append(f"round {number} has {len(some)} runs, or not its {segments} events")
            verdict.unexplained += len(some) == 1
    verdict.doubled += sum(map(len, found.values()))
    verdict.problems += [f"run {place} should not be" for place in found]
    odd = [raw for raw in logs.audit if json.loads(raw.value or b"{}").get("kind") not in TELLING]
    for raw in (*logs.rejected, *odd):
        verdict.unexpected(f"{raw.position} says that something is wrong: {raw.value!r:.300}")
    for job, _ in logs.open or ():
        verdict.unexpected(f"a round of {job} is still open")
    if len({(raw.partition, raw.offset) for raw in logs.events}) != rounds * segments:
        verdict.unexpected(f"{len(logs.events)} events were published, not {rounds * segments}")
    return verdict


def _job(number: int) -> str:
    return f"segments_{number % _JOBS}"


def _id(number: int, at: int) -> str:
    return f"{number}-{at}"


def _record(number: int, at: int, partitions: int) -> Planned:
    asset = _job(number)
    data = {"asset": asset, "partition_key": str(at)}
    event = {"specversion": "1.0", "id": _id(number, at), "source": _SOURCE, "type": EVENT_TYPE, "data": data}
    return Planned(zlib.crc32(asset.encode()) % partitions, asset, json.dumps(event).encode())
