"""One seed, one plan."""

from collections import Counter

import pytest

from tests.chaos.jobs import FACTS, SCATTERED, definitions
from tests.chaos.plan import EVERY, KILLS, plan
from tidegate import PartitionedAssetTimetable


def test_a_seed_gives_one_plan_and_another_seed_another() -> None:
    assert plan(1, 500, 10) == plan(1, 500, 10)
    assert plan(1, 500, 10).records != plan(2, 500, 10).records
    assert plan(1, 500, 10).faults != plan(2, 500, 10).faults


@pytest.mark.parametrize("events", [500, 20_000])
def test_a_plan_has_as_many_records_as_asked_for(events: int) -> None:
    assert len(plan(3, events, 0).records) == events


def test_a_plan_has_the_kills_it_is_asked_for_and_every_other_fault() -> None:
    kinds = Counter(fault.kind for fault in plan(4, 10, 40).faults)
    assert sum(kinds[kind] for kind in KILLS) == 40
    assert kinds.keys() == {*KILLS, *EVERY}
    assert {fault.kind for fault in plan(4, 10, 40, ["crash", "flush"]).faults} == {"crash", "flush"}
    assert [fault.kind for fault in plan(4, 10, 3, ["zombie"]).faults] == ["zombie"] * 3
    with pytest.raises(ValueError, match="kil"):
        plan(4, 10, 1, ["kil"])


def test_keys_of_scattered_assets_are_on_several_partitions_and_others_on_one() -> None:
    found: dict[str, set[int]] = {}
    for record in plan(5, 4_000, 0).records:
        found.setdefault(record.key, set()).add(record.partition)
    assert {asset for asset, partitions in found.items() if len(partitions) > 1} == SCATTERED


def test_facts_and_definitions_name_the_same_assets() -> None:
    for job in definitions(tuple(FACTS)):
        assert isinstance(job.schedule, PartitionedAssetTimetable)
        names = [getattr(asset, "name", "") for asset in job.schedule.assets_in_order]
        assert tuple(names) == FACTS[job.id].assets
        waits = any(job.schedule.mapper_for(asset).is_rollup for asset in job.schedule.assets_in_order)
        assert waits == (FACTS[job.id].kind != "each")
