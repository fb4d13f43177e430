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
    ROUND_CLOSED = "round-closed"
    """What waited in a round that a changed or deleted definition closed."""
    DEADLINE_FAILED = "deadline-failed"
    DEADLINE_DROPPED = "deadline-dropped"
    ROUND_FIRED = "round-fired"
    """A person fired a round as it was."""
    ROUND_DISCARDED = "round-discarded"
    MEMBER_WITHDRAWN = "member-withdrawn"
    ACTION_WITHOUT_EFFECT = "action-without-effect"
    """What a person did was about a round, or an event in it, that was not there any more."""
    # at the clock
    TICK_SHIFTED = "tick-shifted"
    """A run whose scheduled time a clock change skipped: it starts at the first real instant after it (B024)."""
    # at the dispatcher
    FIRED = "fired"
    """Rounds whose runs were taken up, in the transaction that sent their commands; one entry tells of several."""
    DISPATCH_FAILED = "dispatch-failed"
    RUN_ID_MISMATCH = "run-id-mismatch"
    # anywhere
    UNREADABLE_RECORD = "unreadable-record"
    LOG_GAP = "log-gap"


def kind_of_refusal(code: str) -> AuditKind:
    """How an event that is refused with a code is audited; a few codes have a kind of their own (B058)."""
    return AuditKind.ALIAS_WITHOUT_ASSET if code == AuditKind.ALIAS_WITHOUT_ASSET else AuditKind.EVENT_REFUSED
