"""The offset checkpoints of a root, changed by several logs of a process. Layer 5."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Container, Mapping
from typing import NamedTuple

from kstore.errors import CorruptCheckpointError
from kstore.log.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kstore.log.env import Env, join_path
from kstore.log.filenames import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    ROOT_CHECKPOINTS,
)
from kstore.types import TopicPartition

_logger = logging.getLogger("kstore.log")
# Two logs of a root never change a checkpoint of it at once.
_mutex = threading.Lock()


class PartitionMarks(NamedTuple):
    """What the checkpoints of a root say of a partition, and the end of its log."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int


def read_checkpoint(root: str, name: str, env: Env) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint, none if it is missing or malformed, of which the log tells.

    Raises: StorageError.
    """
    try:
        return read_offset_checkpoint(join_path(root, name), env) or {}
    except CorruptCheckpointError as error:
        _logger.warning("going on without a checkpoint: %s", error)
        return {}


def save_offset(root: str, name: str, topic_partition: TopicPartition, offset: int, env: Env) -> None:
    """Put one partition's offset into a checkpoint, durably.

    Raises: StorageError.
    """
    with _mutex:
        offsets = read_checkpoint(root, name, env)
        if offsets.get(topic_partition) != offset:
            write_offset_checkpoint(join_path(root, name), {**offsets, topic_partition: offset}, env)


def forget_partitions(root: str, gone: Collection[TopicPartition], env: Env) -> None:
    """Take partitions out of every checkpoint, durably, so that new ones of the same names start at 0.

    Raises: StorageError.
    """
    with _mutex:
        for name in ROOT_CHECKPOINTS:
            found = read_checkpoint(root, name, env)
            kept = {one: offset for one, offset in found.items() if one not in gone}
            if len(kept) < len(found):
                write_offset_checkpoint(join_path(root, name), kept, env)


def save_marks(
    root: str,
    take_marks: Callable[[], Mapping[TopicPartition, PartitionMarks]],
    env: Env,
    *,
    kept: Container[TopicPartition],
) -> None:
    """Put the marks of several partitions into the three checkpoints, durably; of the others those in `kept` stay.

    Args: take_marks: called where no log saves an offset of its own meanwhile: one that lowers its marks, then saves,
        finds here neither the old ones nor its own written over.
    Raises: StorageError.
    """
    with _mutex:
        marks = take_marks()
        recovery_points = {topic_partition: one.recovery_point for topic_partition, one in marks.items()}
        high_watermarks = {topic_partition: one.high_watermark for topic_partition, one in marks.items()}
        _merge(root, RECOVERY_POINT_CHECKPOINT, recovery_points, env, kept=kept)
        _merge(root, HIGH_WATERMARK_CHECKPOINT, high_watermarks, env, kept=kept)
        saved = read_checkpoint(root, LOG_START_OFFSET_CHECKPOINT, env)
        starts = {one: _start(found, saved.get(one)) for one, found in marks.items()}
        # As in a broker's, only logs of which something was deleted.
        others = {one for one in saved if one in kept and one not in starts}
        starts = {one: start for one, start in starts.items() if start or one in saved}
        _merge(root, LOG_START_OFFSET_CHECKPOINT, starts, env, kept=others)


def _start(marks: PartitionMarks, saved: int | None) -> int:
    """Return the start to save; one below the first segment stays, since tiered storage has records from there on."""
    return marks.log_start_offset if saved is None or saved > marks.log_end_offset else saved


def _merge(
    root: str, name: str, offsets: Mapping[TopicPartition, int], env: Env, *, kept: Container[TopicPartition]
) -> None:
    found = read_checkpoint(root, name, env)
    merged = {**{one: offset for one, offset in found.items() if one in kept}, **offsets}
    if merged != found:
        write_offset_checkpoint(join_path(root, name), merged, env)
