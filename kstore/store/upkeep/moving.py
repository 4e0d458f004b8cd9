"""move_partition: a partition of a closed log from one log directory of a broker to another.

It ends as Kafka's AlterReplicaLogDirs does: the copy is a `-future` directory until all of it is durable, takes the
partition's name by a rename, and then the old directory is renamed to `-delete` and removed. Killed at any point, the
partition is whole in the old root, or in the new one, or in both; a second call ends what the first began.
"""

from __future__ import annotations

import logging
import uuid
from errno import ENOENT
from typing import Any, NamedTuple

from kstore.config import LogConfig
from kstore.env import Env, FileKind, StrPath, join_path, locate
from kstore.errors import LogNotFoundError, StorageError, TopicExistsError
from kstore.log.files.checkpoints import forget_partitions, read_checkpoint, save_offset
from kstore.log.files.lock import PartitionLock
from kstore.log.files.names import (
    ROOT_CHECKPOINTS,
    TOPIC_SETTINGS,
    PartitionDirectory,
    deleted_directory_name,
    future_directory_name,
    is_future_of,
    partitions_of_root,
)
from kstore.log.files.root_files import read_meta_properties
from kstore.log.write.writable_log import WritableLog
from kstore.store.settings.file import read_settings, write_settings
from kstore.store.settings.known import KnownSettings
from kstore.store.settings.topics import forget_settings
from kstore.store.upkeep.removal import remove_tree

_logger = logging.getLogger("kstore.log")


class PlannedMove(NamedTuple):
    """A move that can be made: the directory that is there, the path it gets, its files and their bytes.

    is_copied: an earlier move was interrupted after the copy had the partition's name; what is left is to remove the
    old directory.
    """

    directory: PartitionDirectory
    target_root: str
    target: str
    file_count: int
    size_in_bytes: int
    is_copied: bool


def plan_move(directory: PartitionDirectory, target_root: StrPath) -> PlannedMove:
    """Return what move_partition would do, without a lock.

    Raises: LogNotFoundError if the other root does not exist; ValueError if it is the partition's own root, that of
        another cluster or node, or has other settings of the topic; CorruptCheckpointError; TopicExistsError if it has
        another partition of that name; StorageError, also for a partition that is a link in either root.
    """
    env, root = locate(target_root, None)
    if env.stat(root) is None:
        raise LogNotFoundError(f"no such directory: {root}", path=root, errno=ENOENT)
    if root == directory.root or _is_same_directory(root, directory.root, env):
        raise ValueError(f"{directory.topic_partition} is in {root} already")
    here, there = read_meta_properties(directory.root, env), read_meta_properties(root, env)
    if here is not None and there is None:
        raise ValueError(f"{root} has no meta.properties: expected another log directory of the broker")
    if here is not None and there is not None and (here.cluster_id, here.node_id) != (there.cluster_id, there.node_id):
        raise ValueError(
            f"{root} belongs to another cluster or node: expected cluster {here.cluster_id} and node {here.node_id}, "
            f"found {there.cluster_id} and {there.node_id}"
        )
    settings_to_carry(directory, root, env)
    target = join_path(root, str(directory.topic_partition))
    for path in (directory.path, target):
        _check_no_link(path, env)
    files = _files_in(directory.path, env)
    is_copied = env.stat(target) is not None
    if is_copied and (_is_same_directory(directory.path, target, env) or not _is_same(directory.path, target, env)):
        raise TopicExistsError(
            f"{target} exists, and is no copy of {directory.path}: remove the one that is not to be kept", path=target
        )
    return PlannedMove(directory, root, target, len(files), sum(size for _, size in files), is_copied)


def move_partition(directory: PartitionDirectory, target_root: StrPath) -> PlannedMove:
    """Move a partition to another log directory, and return what was moved.

    A log that was not closed is recovered first. The offsets that the root's checkpoints have for it move too, and so
    do the settings of its topic in kstore-topic-settings, with the defaults of the root where the other's differ. A
    `-future` directory of the partition in the other root, which is an unfinished copy, is replaced.
    Raises: as plan_move; LogLockedError; CorruptLogError if strict recovery refuses the log; StorageError. Until the
        copy has its name the partition is as it was.
    Cost: reads and writes all of its bytes once.
    Source: Kafka LogManager.replaceCurrentWithFutureLog.
    """
    env = directory.env
    plan = plan_move(directory, target_root)
    name = str(directory.topic_partition)
    target_lock = PartitionLock.acquire(plan.target_root, name, env)
    try:
        WritableLog.open(directory, config=LogConfig(), env=env).close()
        source_lock = PartitionLock.acquire(directory.root, name, env)
        try:
            plan = plan_move(directory, target_root)
            _carry_settings(plan, env)
            if not plan.is_copied:
                _copy(plan, env)
            _remove_source(directory, env)
        finally:
            source_lock.release()
    finally:
        target_lock.release()
    _logger.info("moved %s to %s", directory.path, plan.target)
    return plan


def settings_to_carry(directory: PartitionDirectory, target_root: str, env: Env) -> dict[str, Any]:
    """Return what the other root is to say of a topic so that the settings by which kstore deletes stay the same.

    Raises: ValueError if the other root has other settings of the topic; CorruptCheckpointError; StorageError.
    """
    topic = directory.topic_partition.topic
    here, there = KnownSettings(directory.root, directory.env), KnownSettings(target_root, env)
    for known in (here, there):
        if known.file_damage is not None:
            raise known.file_damage
    defaults = {name: value for name, value in here.defaults.items() if there.defaults.get(name) != value}
    wanted = {**defaults, **here.file.changed.get(topic, {})}
    found = there.file.changed.get(topic)
    if found is not None and {**there.defaults, **found} != {**here.defaults, **wanted}:
        raise ValueError(
            f"{target_root} has other settings of topic {topic} in its {TOPIC_SETTINGS}: expected {wanted}, "
            f"found {found}"
        )
    return wanted


def _carry_settings(plan: PlannedMove, env: Env) -> None:
    """Durably write the settings into the other root, before the partition has its name there."""
    topic = plan.directory.topic_partition.topic
    wanted = settings_to_carry(plan.directory, plan.target_root, env)
    kept = read_settings(plan.target_root, env)
    if wanted and kept.changed.get(topic) != wanted:
        alone = kept.limits_alone | ({topic} & read_settings(plan.directory.root, env).limits_alone)
        carried = kept._replace(changed={**kept.changed, topic: wanted}, limits_alone=alone)
        write_settings(plan.target_root, carried, env)


def _copy(plan: PlannedMove, env: Env) -> None:
    """Copy the directory, durably, and give the copy the partition's name."""
    topic_partition, root = plan.directory.topic_partition, plan.target_root
    for name in env.listdir(root):
        if is_future_of(name, topic_partition):
            _logger.warning("%s is an unfinished copy, and is made again", join_path(root, name))
            remove_tree(join_path(root, name), env)
    future = join_path(root, future_directory_name(topic_partition, uuid.uuid4()))
    _copy_tree(plan.directory.path, future, env)
    env.sync_directory(root)
    # With its name a partition begins with what the checkpoints of its root say.
    forget_partitions(root, {topic_partition}, env)
    for name in ROOT_CHECKPOINTS:
        offset = read_checkpoint(plan.directory.root, name, env).get(topic_partition)
        if offset is not None:
            save_offset(root, name, topic_partition, offset, env)
    env.rename(future, plan.target)
    env.sync_directory(root)


def _remove_source(directory: PartitionDirectory, env: Env) -> None:
    deleted = join_path(directory.root, deleted_directory_name(directory.topic_partition, uuid.uuid4()))
    env.rename(directory.path, deleted)
    env.sync_directory(directory.root)
    forget_partitions(directory.root, {directory.topic_partition}, env)
    remove_tree(deleted, env)
    topic = directory.topic_partition.topic
    if all(other.topic_partition.topic != topic for other in partitions_of_root(directory.root, env)):
        forget_settings(directory.root, topic, env)


def _copy_tree(source: str, target: str, env: Env) -> None:
    env.make_directory(target)
    for name in env.listdir(source):
        inner, copied = join_path(source, name), join_path(target, name)
        status = env.stat(inner, follow_symlinks=False)
        if status is None:
            continue
        if status.kind is FileKind.DIRECTORY:
            _copy_tree(inner, copied, env)
        elif status.kind is FileKind.FILE:
            _copy_file(inner, copied, env)
        else:
            raise StorageError(f"expected files and directories, found another kind: {inner}", path=inner)
    env.sync_directory(target)


def _copy_file(source: str, target: str, env: Env) -> None:
    with env.open_read(source) as file, env.open_write(target) as copy:
        position, size = 0, file.size()
        for chunk in file.chunks(size, position=0):
            copy.pwrite(chunk, position=position)
            position += len(chunk)
        copy.sync()
    env.copy_modification_time(source, target)


def _files_in(path: str, env: Env) -> list[tuple[str, int]]:
    files = []
    for name in sorted(env.listdir(path)):
        inner = join_path(path, name)
        status = env.stat(inner, follow_symlinks=False)
        if status is not None and status.kind is FileKind.DIRECTORY:
            files += _files_in(inner, env)
        elif status is not None:
            files.append((inner, status.size_in_bytes))
    return files


def _is_same_directory(path: str, other: str, env: Env) -> bool:
    """Whether two paths lead to one directory, which then is no copy of itself."""
    first, second = env.stat(path), env.stat(other)
    return first is not None and second is not None and first.identity[:2] == second.identity[:2]


def _check_no_link(path: str, env: Env) -> None:
    """Raise StorageError for a link: the directory that it leads to may be the only one there is."""
    status = env.stat(path, follow_symlinks=False)
    if status is not None and status.kind is not FileKind.DIRECTORY:
        raise StorageError(f"expected a directory, found a link or file: {path}", path=path)


def _is_same(source: str, target: str, env: Env) -> bool:
    """Whether two directories have the same files, byte for byte."""
    ours, theirs = _files_in(source, env), _files_in(target, env)
    if [(path.removeprefix(source), size) for path, size in ours] != [
        (path.removeprefix(target), size) for path, size in theirs
    ]:
        return False
    return all(_is_same_file(one, other, size, env) for (one, size), (other, _) in zip(ours, theirs, strict=True))


def _is_same_file(one: str, other: str, size: int, env: Env) -> bool:
    with env.open_read(one) as first, env.open_read(other) as second:
        pairs = zip(first.chunks(size, position=0), second.chunks(size, position=0), strict=True)
        return all(chunk == same for chunk, same in pairs)
