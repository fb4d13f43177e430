"""Names of the keys in Redis that more than one program reads. What they hold stands on top of the rollup's script.

Every key of a shard starts with `<namespace>:{<shard>}:`, its one hash tag: the first braces of a key decide its slot,
so braces in users' keys cannot move it (B123).
"""


def installation_key(namespace: str) -> str:
    """The text "<partitions> <shards> <incarnation>" of the installation that the namespace's state was made by."""
    return f"{namespace}:installation"


def shard_prefix(namespace: str, shard: int) -> str:
    return f"{namespace}:{{{shard}}}:"


def round_name(job: str, incarnation: str, key: str) -> str:
    """How a round is named; job ids and incarnations hold no slash, and the key of a job without partitions is empty.

    Rounds of a job that was deleted and created again have nothing to do with those of the one before (D7).
    """
    return f"{job}/{incarnation}/{key}"


def round_key(namespace: str, shard: int, name: str) -> str:
    """The hash that holds an open round."""
    return f"{shard_prefix(namespace, shard)}round:{name}"


def open_key(namespace: str, shard: int) -> str:
    """The sorted set that names the shard's open rounds, all with score 0, so that they are ordered by name."""
    return f"{shard_prefix(namespace, shard)}open"


def due_key(namespace: str, shard: int) -> str:
    """The sorted set "<then>/<round>" -> when its deadline is, milliseconds since 1970."""
    return f"{shard_prefix(namespace, shard)}due"


def marks_key(namespace: str, shard: int) -> str:
    """The hash round -> what its last firing left."""
    return f"{shard_prefix(namespace, shard)}marks"


def runs_prefix(namespace: str, partition: int) -> str:
    """How the keys of one partition of `runs` start; their hash tag is no shard's."""
    return f"{namespace}:{{d{partition}}}:"


def runs_key(namespace: str, partition: int) -> str:
    """The hash run id -> its state."""
    return f"{runs_prefix(namespace, partition)}runs"
