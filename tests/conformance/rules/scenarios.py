"""What docs/rules.md makes of whole scenarios: a second model of rounds, on top of the second model of mappers.

It looks at the list of steps as a whole. Every event counts at once and every satisfied round is a run (D16), so that
ticks only say when to count.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tests.conformance.harness import Answer, Rule, Vector
from tests.conformance.rules import decided as mapping
from tests.conformance.rules.model import (
    MEMBER_OF,
    Model,
    Refused,
    Subject,
    floor,
    instant,
    listed,
    needed,
    period_of,
    wall,
)

IDENTITY: Subject = {"type": "IdentityMapper"}


class _Event:
    """One event of the scenario."""

    def __init__(self, given: Mapping[str, Any], key: str | None) -> None:
        self.asset: str = given["asset"]
        self.key = key
        date = given.get("partition_date")
        self.date = None if date is None else datetime.fromisoformat(date).astimezone(UTC)


class _Slot:
    """One contribution of an event: which member of which downstream key, and how much that key needs."""

    def __init__(self, event: _Event, key: str, member: Any, threshold: int, *, waits: bool) -> None:
        self.event, self.key, self.member, self.threshold, self.waits = event, key, member, threshold, waits


class Scenario:
    """A consumer, step by step."""

    def __init__(self, subject: Subject) -> None:
        self.model = Model()
        self.touched: dict[str, None] = {}
        self.paused = bool(subject.get("paused"))
        self.runs: list[dict[str, Any]] = []
        self.held: list[dict[str, Any]] = []
        self.audit: list[str] = []
        self.open: dict[str, list[_Slot]] = {}
        """Events of open rounds by downstream key, in the order in which rounds opened."""
        self.fired: dict[str, set[tuple[str, Any]]] = {}
        self.unpartitioned: set[str] = set()
        self.last_tick = 0
        self.fired_since_tick: dict[str, int] = {}
        self._define(subject)

    def _define(self, subject: Subject) -> None:
        self.subject = subject
        for mapper in subject["assets"].values():
            if mapper is not None:
                self.model.check(mapper)
        if any(how == "uri" for how in subject.get("config_refs", {}).values()):
            self.touch("F25")

    def touch(self, decision: str) -> None:
        self.touched[decision] = None

    def mapper(self, asset: str) -> Subject:
        found: Subject = self.subject["assets"].get(asset) or self.subject.get("default_mapper") or IDENTITY
        return found

    @property
    def windowed(self) -> bool:
        return any(self.mapper(asset)["type"] == "RollupMapper" for asset in self.subject["assets"])

    # ---- steps ----

    def event(self, event: _Event) -> None:
        if event.asset not in self.subject["assets"]:
            self.touch("D18")
            return
        if not self.subject.get("partitioned", True):
            if event.key is None:
                self.unpartitioned.add(event.asset)
            return
        if event.key is None:
            self.audit.append("missing partition key")
            return
        try:
            slots = list(self._slots(event, event.key))
        except Refused:
            self.audit.append("failed to map partition_key")
            return
        if len(slots) > min(1000, self.mapper(event.asset).get("max_downstream_keys") or 1000):
            self.audit.append("partition fan-out exceeded")
            return
        for slot in slots:
            self._take(slot)

    def redefine(self, subject: Subject) -> None:
        before = self.subject
        self._define(subject)
        names = ("assets", "condition", "default_mapper", "partitioned")
        if all(before.get(name) == subject.get(name) for name in names):
            return
        self.touch("F23")
        waiting = {id(slot.event): slot.event for slots in self.open.values() for slot in slots}
        self.open = {}
        for event in waiting.values():
            self.event(event)

    def pause(self, paused: bool) -> None:
        self.paused = paused
        if not paused:
            if self.held:
                self.touch("F24")
            self.runs += self.held
            self.held = []

    def tick(self, loop_cap: int) -> int:
        seen = len(self.fired_since_tick) + len(self.open)
        if seen > loop_cap:
            self.touch("F06")
        self.fired_since_tick = {}
        return len(self.runs)

    # ---- rounds ----

    def _slots(self, event: _Event, key: str) -> Iterator[_Slot]:
        mapper = self.mapper(event.asset)
        if mapper["type"] != "RollupMapper":
            for downstream in dict.fromkeys(listed(self.model.downstream(mapper, key))):
                yield _Slot(event, downstream, None, 1, waits=False)
            return
        covered = self.model.covers(mapper, key)
        if not covered["counts"]:
            self.touch("D23")
            return
        threshold = needed(mapper.get("wait_policy", {"type": "WaitForAll"}), covered["window_size"])
        for downstream in listed(covered["downstream"]):
            yield _Slot(event, downstream, self._member(mapper, key), threshold, waits=True)

    def _member(self, mapper: Subject, key: str) -> Any:
        window, upstream = mapper["window"], mapper["upstream_mapper"]
        if window["type"] == "SegmentWindow":
            return key
        zone = upstream.get("timezone", "UTC")
        member = floor(MEMBER_OF[period_of(window)], self.model.read(upstream, key), zone)
        if self.model._merges(mapper):
            member = instant(wall(member, zone).replace(tzinfo=None), zone)
        return member

    def _take(self, slot: _Slot) -> None:
        place = (slot.event.asset, slot.member)
        if slot.key in self.fired and self.windowed:
            if self._is_dated(slot.key):
                self.touch("F09")  # late, or a member again: the audit says so
                return
            if place not in self.fired[slot.key]:
                self.touch("D23")
        there = self.open.setdefault(slot.key, [])
        keeps = slot.waits or not self.windowed
        for index, other in enumerate(there):
            same_member = (other.event.asset, other.member) == place
            if same_member and (other.event.key == slot.event.key or not keeps):
                self.touch("D21")
                there[index] = slot
                break
        else:
            there.append(slot)
        if self._is_satisfied(there):
            self._fire(slot.key)

    def _is_satisfied(self, slots: list[_Slot]) -> bool:
        judge = any if self.subject.get("condition") == "any" else all
        return judge(self._has_enough(asset, slots) for asset in self.subject["assets"])

    @staticmethod
    def _has_enough(asset: str, slots: list[_Slot]) -> bool:
        own = [slot for slot in slots if slot.event.asset == asset]
        return bool(own) and len({slot.member for slot in own}) >= own[0].threshold

    def _fire(self, key: str) -> None:
        slots = self.open.pop(key)
        times = self.fired_since_tick.get(key, 0) + 1
        self.fired_since_tick[key] = times
        if times > 1:
            self.touch("D16")
        self.fired[key] = {(slot.event.asset, slot.member) for slot in slots}
        run = {"partition_key": key, "partition_date": self._date(key, slots), "events": len(slots)}
        (self.held if self.paused else self.runs).append(run)

    # ---- dates ----

    def _is_dated(self, key: str) -> bool:
        return any(self._read(asset, key) is not None for asset in self.subject["assets"])

    def _read(self, asset: str, key: str) -> datetime | None:
        try:
            return self.model.date(self.mapper(asset), key)
        except Refused:
            return None

    def _date(self, key: str, slots: list[_Slot]) -> str | None:
        read = {self._read(slot.event.asset, key) for slot in slots} - {None}
        return _one(read) if read else self._carried(slots)

    def _carried(self, slots: list[_Slot]) -> str | None:
        carried = {self.model.carry(self.mapper(slot.event.asset), slot.event.date) for slot in slots} - {
            None
        }
        if len(carried) > 1:
            self.touch("F05")
        return _one(carried)

    # ---- the end ----

    def final(self) -> dict[str, Any]:
        pending = []
        for key, slots in self.open.items():
            received: dict[str, list[str]] = {}
            for slot in slots:
                received.setdefault(slot.event.asset, []).append(str(slot.event.key))
            received = {asset: sorted(keys) for asset, keys in received.items()}
            pending.append({"partition_key": key, "carried_date": self._carried(slots), "received": received})
            if self.fired_since_tick.get(key):
                self.touch("D16")
        final: dict[str, Any] = {"audit": self.audit, "pending": pending, "runs": self.runs}
        if not self.subject.get("partitioned", True):
            final["unpartitioned_queue"] = len(self.unpartitioned)
        return final


def _one(dates: Any) -> str | None:
    return next(iter(dates)).astimezone(UTC).isoformat() if len(dates) == 1 else None


def _play(subject: Subject, given: Mapping[str, Any]) -> tuple[Answer, tuple[str, ...]]:
    scenario: Scenario | None = None
    counts: list[int] = []
    touched: dict[str, None] = {}
    try:
        scenario = Scenario(subject)
        for step in given["steps"]:
            (what, value), *_ = step.items()
            if what == "event":
                scenario.event(_Event(value, value.get("partition_key")))
            elif what == "events":
                for key in value["partition_keys"]:
                    scenario.event(_Event(value, key))
            elif what == "redefine":
                scenario.redefine(value)
            elif what == "pause":
                scenario.pause(value)
            elif what in ("deactivate", "activate"):
                scenario.touch("D18")
            else:
                counts.append(scenario.tick(given.get("loop_cap", 500)))
        if "tick" not in given["steps"][-1]:
            counts.append(len(scenario.runs))
        answer: Answer = {"runs_after_each_tick": counts, "final": scenario.final()}
    except Refused as refused:
        answer = {"error": refused.name}
        touched["F11"] = None
    if scenario is not None:
        touched |= scenario.touched | scenario.model.touched
    return answer, tuple(touched)


@lru_cache(maxsize=4096)
def _played(subject: str, given: str) -> tuple[Answer, tuple[str, ...]]:
    return _play(json.loads(subject), json.loads(given))


def _of(vector: Vector) -> tuple[Answer, tuple[str, ...]]:
    return _played(json.dumps(vector["subject"]), json.dumps(vector["input"]))


def _rests_on(decision: str) -> Callable[[Vector], bool]:
    return lambda vector: vector["op"] == "scenario" and decision in _of(vector)[1]


ABOUT = {
    "F11": "a consumer whose mapper is refused does not exist",
    "F25": "a mapper attached by uri works",
    "F24": "runs of a paused job are kept and go out on resume",
    "F23": "progress is kept when the definition changes",
    "F09": "an event after the firing of a dated key starts nothing",
    "F01": "hour mapper and day window make one run a day",
    "F02": "backward rollups fire",
    "F03": "real local periods at clock changes",
    "F12": "fan-out keys are distinct",
    "F13": "a fan-out's default mapper takes the zone of the upstream mapper",
    "F06": "every complete window fires, however many are pending",
    "D18": "an asset that no Dag names is not switched off",
    "D16": "two events that each complete a round give two runs",
    "D21": "within a round an event replaces an older one with the same key",
    "D23": "members and keys that are none",
    "F05": "several carried dates are a conflict, in every order",
}
ABOUT |= {decision: about for decision, about in mapping.ABOUT.items() if decision not in ABOUT}

RULES = [
    Rule(decision, about, _rests_on(decision), lambda vector: _of(vector)[0])
    for decision, about in ABOUT.items()
]
