"""The services in one process, on logs in memory and a real Redis, every step of theirs chosen by a seed."""
