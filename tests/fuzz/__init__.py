"""Malformed and hostile input by seed: events through ingest, definitions through `apply`."""
