"""ingest: raw events in, accepted events out, dead letters aside."""
