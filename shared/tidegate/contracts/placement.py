"""Which partition and which shard a record belongs to. Fixed for the life of an installation (rule E3).

CRC-32 of UTF-8: stable across processes and machines, and in the standard library. Producers of ours name partitions
explicitly, since clients of other languages hash keys differently.
"""

from functools import lru_cache
from zlib import crc32


def partition_of(name: str, partitions: int) -> int:
    """The partition of everything that concerns one asset or one job."""
    return crc32(name.encode()) % partitions


def shard_of(job: str, key: str, shards: int) -> int:
    """The shard of Redis that holds the rounds of (job, downstream key)."""
    return crc32(key.encode(), _crc_of(job)) % shards


@lru_cache(maxsize=16_384)
def _crc_of(job: str) -> int:
    """The check sum of a job and what parts it from the key, from where that of the key goes on."""
    return crc32(f"{job}\0".encode())


def contributions_partition(shard: int, partitions: int) -> int:
    """The partition of `contributions` that feeds a shard: one each, so that a shard follows one log."""
    return shard % partitions


def shards_of_partition(partition: int, partitions: int, shards: int) -> range:
    """The shards that a partition of `contributions` feeds."""
    return range(partition, shards, partitions)
