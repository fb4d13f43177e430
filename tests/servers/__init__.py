"""Servers that tests start and stop themselves: a real Kafka, a real Redis, and pairs of both as backends."""
