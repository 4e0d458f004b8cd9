"""open_writer: opens a partition directory as its only writer, and makes it if it is not there."""

from __future__ import annotations

import errno

from kstore.config import LogConfig
from kstore.env import Env, StrPath, locate, split_path
from kstore.errors import LogNotFoundError
from kstore.log.files.checkpoints import forget_partitions
from kstore.log.files.lock import PartitionLock
from kstore.log.files.names import PartitionDirectory, find_partition
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.write.writable_log import WritableLog
from kstore.store.settings.topics import forget_settings
from kstore.store.upkeep.removal import directories_of_topic
from kstore.types import parse_partition_directory_name


def open_writer(
    path: StrPath,
    config: LogConfig,
    *,
    recovery: RecoveryMode,
    trusts_recovery_point: bool,
    lock: PartitionLock | None,
    timeout_s: float | None,
    env: Env | None,
) -> WritableLog:
    """Open the log at a path for writing; see open_log in mode "a"."""
    env, absolute = locate(path, env)
    env.check_writable(absolute)
    return WritableLog.open(
        _made_partition(absolute, env, is_locked=lock is not None, timeout_s=timeout_s),
        config=config,
        recovery=recovery,
        trusts_recovery_point=trusts_recovery_point,
        lock=lock,
        timeout_s=timeout_s,
        env=env,
    )


def _made_partition(absolute: str, env: Env, *, is_locked: bool, timeout_s: float | None) -> PartitionDirectory:
    """Return the partition directory; create it if its name has the form <topic>-<partition>."""
    root, name = split_path(absolute)
    topic_partition = parse_partition_directory_name(name)
    if topic_partition is None:
        if env.stat(absolute) is None:
            message = f"no such directory: {absolute}; to create a partition, name it <topic>-<partition>, as {name}-0"
            raise LogNotFoundError(message, path=absolute, errno=errno.ENOENT)
        return find_partition(absolute, env)
    if env.stat(absolute) is not None:
        return find_partition(absolute, env)
    if env.stat(root) is None:
        raise LogNotFoundError(f"no such directory: {root}, in which to make {name}", path=root, errno=errno.ENOENT)
    held = None if is_locked else PartitionLock.acquire(root, name, env, timeout_s=timeout_s)
    try:
        forget_partitions(root, {topic_partition}, env)
        if not directories_of_topic(root, topic_partition.topic, env):
            forget_settings(root, topic_partition.topic, env)
        if env.make_directory(absolute):
            env.sync_directory(root)
    finally:
        if held is not None:
            held.release()
    return PartitionDirectory(topic_partition, absolute, root, env)
