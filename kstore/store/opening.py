"""open_log: opens a partition directory for reading, or for reading and writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from kstore.config import LogConfig, config_or_default
from kstore.env import Env, StrPath
from kstore.errors import KStoreError, LogNotFoundError
from kstore.log.files.names import PartitionDirectory, find_partition, partition_named
from kstore.log.recovery.modes import RecoveryMode, check_recovery
from kstore.types import MAX_OFFSET
from kstore.waiting import checked_timeout, results_in_threads

if TYPE_CHECKING:
    from kstore.log.files.lock import PartitionLock
    from kstore.log.log import Log
    from kstore.log.write.writable_log import WritableLog

_Found = TypeVar("_Found")


@overload
def open_log(
    path: StrPath,
    mode: Literal["r"] = "r",
    config: LogConfig | None = None,
    *,
    tier: StrPath | None = None,
    tier_keys: Mapping[str, StrPath] | None = None,
    tier_epoch: int | None = None,
    env: Env | None = None,
) -> Log: ...


@overload
def open_log(
    path: StrPath,
    mode: Literal["a"],
    config: LogConfig | None = None,
    *,
    recovery: RecoveryMode = "strict",
    trusts_recovery_point: bool = False,
    lock: PartitionLock | None = None,
    timeout: float | None = 0.0,
    env: Env | None = None,
) -> WritableLog: ...


def open_log(
    path: StrPath,
    mode: Literal["r", "a"] = "r",
    config: LogConfig | None = None,
    *,
    recovery: RecoveryMode = "strict",
    trusts_recovery_point: bool = False,
    lock: PartitionLock | None = None,
    timeout: float | None = 0.0,
    tier: StrPath | None = None,
    tier_keys: Mapping[str, StrPath] | None = None,
    tier_epoch: int | None = None,
    env: Env | None = None,
) -> Log:
    """Open the log in one directory, for reading as it is now ("r"; refresh() sees more) or as its only writer ("a").

    The path may be a URL (docs/urls.md), for reading only. env: reads and writes the files; None for that of the path.

    A log that is opened for reading is a snapshot: it holds the segments, and of each the bytes, that exist now. What a
    writer appends later, also one in this process, is seen after refresh(), or by the next open_log. A log that is
    opened for writing sees its own appends.
    Mode "a" creates the directory if its parent exists, and recovers a log that was not closed.
    Args: recovery: what to do about damage, "strict", "point_in_time" or "salvage" (docs/durability.md);
        trusts_recovery_point: recover only from the recovery point on, as Kafka does, instead of reading the whole log
        once; lock: this partition's lock, held by the caller and released by close(); None to acquire it; timeout: how
        long to wait for that while another log, store or process has it, in seconds, None without limit; tier: path or
        URL of the tiered storage that has the older segments, or of a tier alone as the parent of `path`
        (docs/tiers.md), for mode "r"; tier_keys: the paths of its private keys, by key id; tier_epoch: the leader epoch
        of the lineage that is read where only the tier says any, None for that of its newest segment.
    Raises: LogNotFoundError if there is no partition directory at the path, and in mode "a" none can be created;
        LogReplacedError if the directory changes during each of many looks, as while a cleaner that replaces segments
        does not go on; StorageError; SegmentTooLargeError for a .log above 2147483647 bytes; ValueError for an unknown
        mode or recovery, salvage with trusts_recovery_point, or an impossible timeout; TypeError.
        Mode "a" also: LogLockedError; CorruptLogError if strict recovery refuses the log.
    Cost: one listing and one stat per segment; mode "r" opens no file, and mode "a" only those of the last segment if
        the log was closed.
    """
    settings = config_or_default(config)
    check_recovery(recovery, trusts_recovery_point=trusts_recovery_point)
    timeout_s = checked_timeout(timeout)
    if mode == "r":
        env = tiered_env([path], tier, keys=tier_keys, epoch=tier_epoch, config=settings, env=env)
        named = partition_named(path, env)
        # Where a look is a request, the listing that find_partition makes answers what is asked next.
        if named is not None and not named.env.is_high_latency:
            with suppress(LogNotFoundError):
                return open_found(named, settings)
        return open_found(find_partition(path, env), settings)
    if mode != "a":
        raise ValueError(f'mode must be "r" or "a", got {mode!r}')
    env = check_no_tier(tier, env)
    from kstore.store.writer import open_writer

    return open_writer(
        path,
        settings,
        recovery=recovery,
        trusts_recovery_point=trusts_recovery_point,
        lock=lock,
        timeout_s=timeout_s,
        env=env,
    )


def tiered_env(
    paths: Sequence[StrPath],
    tier: StrPath | None,
    *,
    keys: Mapping[str, StrPath] | None = None,
    epoch: int | None = None,
    config: LogConfig | None = None,
    env: Env | None = None,
) -> Env | None:
    """Return the Env that shows paths with the segments of their tier, or `env` if there is no tier.

    Args: as of open_tier.
    Raises: ValueError for keys or an epoch without a tier; as open_tier.
    """
    if tier is None:
        if keys:
            raise ValueError("tier_keys are of no use without tier, the path or URL of tiered storage")
        if epoch is not None:
            raise ValueError("tier_epoch is of no use without tier, the path or URL of tiered storage")
        return env
    from kstore.tier.opening import open_tier

    return open_tier(paths, tier, keys=keys, epoch=epoch, config=config, env=env).env


def check_no_tier(tier: StrPath | None, env: Env | None) -> Env | None:
    """Return the Env of what is opened for writing.  Raises: ValueError for a tier of it."""
    if tier is not None:
        raise ValueError('tiered storage is only read: tier is an option of mode "r"')
    return env


def open_found(directory: PartitionDirectory, config: LogConfig | None = None) -> Log:
    """Open a partition directory, found or named before, for reading, as open_log does.

    Raises: LogNotFoundError if it is gone, or is no partition directory; otherwise as open_log.
    Cost: as open_log.
    """
    from kstore.log.directory_source import DirectorySource
    from kstore.log.log import Log

    source = DirectorySource(directory, config=config_or_default(config))
    if not source.segments:
        find_partition(directory.path, directory.env)
    return Log(source)


def look_into(
    directories: Sequence[PartitionDirectory], look: Callable[[PartitionDirectory], _Found], *, threads: int = 1
) -> Iterator[_Found]:
    """Yield look(directory) of each partition, in order; of several at a time with more threads, and of a store that
    answers slowly.
    """
    at_once = max((threads, *(directory.env.parallel_requests for directory in directories)))
    return results_in_threads(look, directories, threads=at_once, name="kstore-plan")


def log_size_in_bytes(
    partitions: Iterable[PartitionDirectory], *, start_offset: int = 0, end_offset: int = MAX_OFFSET
) -> int:
    """Return the size of the segments that hold offsets of a range. A partition that can't be opened counts as 0."""
    total = 0
    for partition in partitions:
        with suppress(KStoreError), open_found(partition) as log:
            total += sum(
                segment.size_in_bytes
                for segment in log.segments
                if segment.base_offset < end_offset
                and (segment.next_base_offset is None or segment.next_base_offset > start_offset)
            )
    return total
