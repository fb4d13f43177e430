"""Every metric of every service, with its unit. Labels have few values: keys and ids belong in logs."""

from prometheus_client import Counter, Gauge, Histogram

RECORDS_READ = Counter("tidegate_records_read_total", "Kafka records read", ["topic"])
ENTRIES_READ = Counter("tidegate_entries_read_total", "Messages in the records read", ["topic"])
REPEATS_DROPPED = Counter(
    "tidegate_repeats_dropped_total", "Messages dropped by their coordinates (E1)", ["topic"]
)
RECORDS_SENT = Counter("tidegate_records_sent_total", "Kafka records sent and acknowledged", ["topic"])
EVENTS_ACCEPTED = Counter("tidegate_events_accepted_total", "Asset events that ingest accepted")
AUDIT_ENTRIES = Counter(
    "tidegate_audit_entries_total",
    "Audit entries acknowledged; an entry that is written again after a crash is counted again",
    ["kind", "service"],
)
BATCH_SECONDS = Histogram(
    "tidegate_batch_seconds",
    "Time from a poll's return to its offsets committed",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
LAG = Gauge("tidegate_lag_records", "Records behind the end of the partition", ["topic", "partition"])
READY = Gauge("tidegate_ready", "1 while the service is ready")
SESSIONS = Counter(
    "tidegate_sessions_total", "Times the service loop started, by how the last one ended", ["ended"]
)
REBALANCES = Counter("tidegate_rebalances_total", "Partition assignments received")
ROUNDS_FIRED = Counter("tidegate_rounds_fired_total", "Rounds whose run request was sent")
STATE_MISMATCHES = Counter(
    "tidegate_state_mismatches_total", "Offsets in Redis that differed from the expected (R1, T3)"
)
COMMANDS_SENT = Counter("tidegate_commands_sent_total", "Run commands committed")
REPORTS_FORWARDED = Counter(
    "tidegate_reports_forwarded_total", "Reports passed on to the partition of their job (T5)"
)
RUNS_QUEUED = Counter("tidegate_runs_queued_total", "Runs that had to wait for their command")
FENCED = Counter(
    "tidegate_fenced_total", "Transactions that failed because another process took the partition over"
)
