"""rollup: contributions in, run requests out; rounds live in Redis as a fold of one log."""
