"""The schedule of a job that runs when the partitions it depends on are complete (AIP-76)."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from tidegate.core.conditions import Condition, Leaf
from tidegate.core.dates import ContributedDate, resolve_partition_date
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.mappers.base import PartitionMapper
from tidegate.core.mappers.identity import IdentityMapper
from tidegate.core.plain import check_fields, expect, from_plain, plain
from tidegate.core.rounds import RerunPolicy, rerun_policy_named
from tidegate.core.timetables.asset_triggered import as_condition
from tidegate.core.timetables.base import UntimedTimetable

MAX_ASSETS = 1_000


@dataclass(frozen=True)
class PartitionedAssetTimetable(UntimedTimetable):
    """Run once per downstream partition key, when `assets` is satisfied for that key.

    `partition_mapper_config` gives single assets a mapper of their own; every other asset uses
    `default_partition_mapper`. `rerun_policy` says what an event does whose round has fired: `ignore` (the default for
    keys that stand for a date), `refire` or `new_round` (the default for other keys); without a rollup every event
    that satisfies `assets` is a run, whatever it says. Raises DefinitionError for a configured asset that `assets` does
    not name, and for another rerun policy.
    """

    assets: Condition
    default_partition_mapper: PartitionMapper = field(default_factory=IdentityMapper)
    partition_mapper_config: dict[Leaf, PartitionMapper] = field(default_factory=dict, hash=False)
    rerun_policy: RerunPolicy | None = None

    description = "Triggered by the partitions of assets"
    periodic = False
    partitioned = True
    run_ordering = ("partition_date", "run_after")

    def __post_init__(self) -> None:
        object.__setattr__(self, "assets", as_condition(self.assets, "PartitionedAssetTimetable.assets"))
        expect(
            self.default_partition_mapper,
            PartitionMapper,
            "PartitionedAssetTimetable.default_partition_mapper",
        )
        if self.rerun_policy is not None:
            object.__setattr__(self, "rerun_policy", rerun_policy_named(self.rerun_policy))
        named = [leaf for leaf in self.assets_in_order if isinstance(leaf, Leaf)]  # refuses too many clauses
        if len(named) > MAX_ASSETS:
            raise DefinitionError(
                f"PartitionedAssetTimetable.assets names {len(named)} assets: at most {MAX_ASSETS} are allowed"
            )
        config = expect(
            self.partition_mapper_config, dict, "PartitionedAssetTimetable.partition_mapper_config"
        )
        for leaf, mapper in config.items():
            expect(mapper, PartitionMapper, "PartitionedAssetTimetable.partition_mapper_config value")
            if not any(expect(leaf, Leaf, "partition_mapper_config key").same_asset(one) for one in named):
                raise DefinitionError(
                    f"partition_mapper_config names {leaf!r}, which the condition does not: add it to assets or"
                    " remove it"
                )

    @property
    def summary(self) -> str:
        return "Partitioned asset"

    @property
    def asset_condition(self) -> Condition:
        return self.assets

    @cached_property
    def assets_in_order(self) -> tuple[Condition, ...]:
        """The distinct assets; an asset's place here is its index in contributions."""
        return self.assets.clauses()[0]

    def mapper_for(self, leaf: Condition) -> PartitionMapper:
        """The mapper of an asset, which the configuration may name by other means than the condition does (F25)."""
        config = self.partition_mapper_config
        if not isinstance(leaf, Leaf):
            return self.default_partition_mapper
        if leaf in config:
            return config[leaf]
        named = next((one for one in config if one.same_asset(leaf)), None)
        return self.default_partition_mapper if named is None else config[named]

    def resolve_partition_date(self, key: str | None) -> datetime | None:
        """The date that the assets' mappers agree on for a key that a person gives, None where they read none.

        Raises InvalidPartitionKeyError for a key that one of them cannot have made.
        """
        if key is None:
            return None
        read = {self.mapper_for(leaf).to_partition_date(key) for leaf in self.assets_in_order}
        return resolve_partition_date(ContributedDate(at, True) for at in read if at is not None).at

    def serialize(self) -> dict[str, Any]:
        data = {
            "assets": plain(self.assets),
            "default_partition_mapper": plain(self.default_partition_mapper),
        }
        if self.partition_mapper_config:
            data["partition_mapper_config"] = [
                [plain(leaf), plain(mapper)] for leaf, mapper in self.partition_mapper_config.items()
            ]
        if self.rerun_policy is not None:
            data["rerun_policy"] = self.rerun_policy.value
        return data

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "PartitionedAssetTimetable":
        check_fields(cls, data)
        pairs = data.get("partition_mapper_config", [])
        if not isinstance(pairs, list) or not all(isinstance(one, list) and len(one) == 2 for one in pairs):
            raise DefinitionTypeError(
                "PartitionedAssetTimetable.partition_mapper_config as plain data must be a list of pairs,"
                f" [[an asset, its mapper]], not {pairs!r:.200}"
            )
        config = {from_plain(leaf): from_plain(mapper) for leaf, mapper in pairs}
        rest = {name: value for name, value in data.items() if name != "partition_mapper_config"}
        return cls(
            **{name: from_plain(value) for name, value in rest.items()}, partition_mapper_config=config
        )
