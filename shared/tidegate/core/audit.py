"""The closed list of what can be audited; logs, metrics, the services and simulations use the same words."""

from enum import StrEnum


class AuditKind(StrEnum):
    """Why something was refused, dropped, late, in conflict or odd."""

    # at ingest
    EVENT_REFUSED = "event-refused"
    ALIAS_WITHOUT_ASSET = "alias-without-asset"
    """An event that names an alias, but no asset that it stood for (D13)."""
    DUPLICATE_EVENT = "duplicate-event"
    UNKNOWN_ASSET = "unknown-asset"
    CLOCK_SKEW = "clock-skew"
    """An event that says it was made long before or after the broker received it; it counts all the same (B097)."""
    # at the mapper
    NO_PARTITION_KEY = "no-partition-key"
    PARTITIONED_EVENT = "partitioned-event"
    """An event about one partition, for a job without partitions: it starts nothing (B010)."""
    CROSS_TEAM = "cross-team"
    MAPPING_FAILED = "mapping-failed"
    NOT_A_MEMBER = "not-a-member"
    """A key that belongs to a window, but to none of the members that it waits for."""
    FAN_OUT_EXCEEDED = "partition-fan-out-exceeded"
    PARTITION_DATE_FAILED = "partition-date-failed"
    """A mapper's hook raised: that costs the date, never the event (B014)."""
    # at the rollup
    MEMBER_REPLACED = "member-replaced"
    MEMBER_LATE = "member-late"
    MEMBER_RERUN = "member-rerun"
    WINDOW_UNSATISFIABLE = "window-unsatisfiable"
    """A window that can never be complete, said when it opens (B018)."""
    PARTITION_DATE_CONFLICT = "partition-date-conflict"
    DEFINITION_CHANGED = "definition-changed"
    """A round, or an event on its way to one, that was mapped again by a newer definition (R6)."""
    ROUND_CLOSED = "round-closed"
    """An event that waited in a round and counts nowhere any more, since its job was changed or deleted."""
    DEADLINE_FAILED = "deadline-failed"
    DEADLINE_DROPPED = "deadline-dropped"
    ROUND_FIRED = "round-fired"
    """A person fired a round as it was."""
    ROUND_DISCARDED = "round-discarded"
    MEMBER_WITHDRAWN = "member-withdrawn"
    ACTION_WITHOUT_EFFECT = "action-without-effect"
    """What a person did was about a round, an event in it, a run or a job that was not as it would have to be."""
    # at the clock
    TICK_SHIFTED = "tick-shifted"
    """A run whose scheduled time a clock change skipped: it starts at the first real instant after it (B024)."""
    # at the dispatcher
    FIRED = "fired"
    """Rounds whose runs were taken up, in the transaction that sent their commands; one entry tells of several."""
    DISPATCH_FAILED = "dispatch-failed"
    RUN_ID_MISMATCH = "run-id-mismatch"
    DISPATCH_CAP_REACHED = "dispatch-cap-reached"
    """More runs were ready than one transaction takes; said once until all have gone out (B007)."""
    JOB_PAUSED = "job-paused"
    JOB_RESUMED = "job-resumed"
    RUN_TRIGGERED = "run-triggered"
    """A person started a run."""
    RUN_REDRIVEN = "run-redriven"
    """A person had a run sent again that was undeliverable."""
    RUN_FAILED = "run-failed"
    """A person ended a run as failed that had no end."""
    # where definitions are applied
    CONSUMER_REGISTERED = "consumer-registered"
    """A job was created, or created again: the events that its definitions' place in the log lets in reach it (D7)."""
    REPLAYED = "replayed"
    """A job took stored events that had come before it (D7)."""
    # by people
    REDRIVEN = "redriven"
    """A dead letter was sent again to the topic that it came from."""
    # anywhere
    UNREADABLE_RECORD = "unreadable-record"
    LOG_GAP = "log-gap"
    STATE_REPAIRED = "state-repaired"
    """A person had `tidegate check` repair what did not agree with Kafka."""


def kind_of_refusal(code: str) -> AuditKind:
    """How an event that is refused with a code is audited; a few codes have a kind of their own (B058)."""
    return AuditKind.ALIAS_WITHOUT_ASSET if code == AuditKind.ALIAS_WITHOUT_ASSET else AuditKind.EVENT_REFUSED
