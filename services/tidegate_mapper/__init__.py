"""mapper: accepted events in, contributions out."""
