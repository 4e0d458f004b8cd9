"""verify: every batch, every index entry and the checkpoints of a log; verify_checkpoints: those of a root.

Layer 5. Reads everything once and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from kstore.errors import StorageError
from kstore.log.checkpoints import read_leader_epoch_checkpoint, read_offset_checkpoint
from kstore.log.damage import Damage, damage_of_file
from kstore.log.env import DEFAULT_ENV, ENOENT, Env, join_path
from kstore.log.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    ROOT_CHECKPOINTS,
    TIME_INDEX_SUFFIX,
    segment_path,
)
from kstore.log.index import MAX_INDEX_BYTES
from kstore.log.log import Log
from kstore.log.root_files import read_meta_properties
from kstore.log.segment import LogSegment
from kstore.log.verify_index import IndexFile, OffsetIndexCheck, TimeIndexCheck
from kstore.log.verify_segment import SegmentCheck
from kstore.log.verify_side_files import SideFileCheck

_INDEX_CHECKS = ((OFFSET_INDEX_SUFFIX, OffsetIndexCheck), (TIME_INDEX_SUFFIX, TimeIndexCheck))

IndexCheck = OffsetIndexCheck | TimeIndexCheck


class Verification:
    """A walk over one log that yields each Damage; see verify.

    batch_count and record_count (damaged batches left out, and unless deep the content of V0 and V1 wrappers) grow
    while it is iterated.
    Threads: not safe.
    """

    def __init__(self, log: Log, *, is_deep: bool, env: Env) -> None:
        self._log = log
        self._is_deep = is_deep
        self._env = env
        self.batch_count = 0
        self.record_count = 0

    def __iter__(self) -> Iterator[Damage]:
        self.batch_count = self.record_count = 0
        segments = self._log.segments
        side_files = None
        if self._is_deep:
            has_grown = bool(segments) and self._has_grown(segments[-1])
            side_files = SideFileCheck(self._log, has_grown=has_grown, env=self._env)
            yield from side_files.start()
        else:
            path = join_path(self._log.path, LEADER_EPOCH_CHECKPOINT)
            yield from damage_of_file(path, partial(read_leader_epoch_checkpoint, path, self._env), env=self._env)
        for segment in segments:
            yield from self._verify_segment(segment, side_files)
        if side_files is not None:
            yield from side_files.finish()

    def _verify_segment(self, segment: LogSegment, side_files: SideFileCheck | None) -> Iterator[Damage]:
        index_checks: list[IndexCheck] = []
        for suffix, kind in _INDEX_CHECKS:
            path = segment_path(self._log.path, segment.base_offset, suffix=suffix)
            try:
                content = self._env.read_file(path, max_bytes=MAX_INDEX_BYTES)
            except StorageError as error:
                if error.errno != ENOENT:
                    yield Damage(path, 0, 0, str(error))
                continue
            file = IndexFile(
                path=path,
                content=content,
                base_offset=segment.base_offset,
                log_size_in_bytes=segment.size_in_bytes,
                is_last=segment.is_last,
                has_grown=segment.is_last and self._has_grown(segment),
            )
            index_checks.append(kind(file))
        check = SegmentCheck(
            segment.records,
            topic_partition=self._log.topic_partition,
            config=self._log.config,
            is_deep=self._is_deep,
        )
        batch_count, record_count = self.batch_count, self.record_count
        for step in check.steps():
            self.batch_count = batch_count + check.batch_count
            self.record_count = record_count + check.record_count
            if step.damage is not None:
                yield step.damage
            for index_check in index_checks:
                yield from index_check.step(step)
            if side_files is not None:
                yield from side_files.step(segment, step.header, is_damaged=step.damage is not None)
        if side_files is not None:
            yield from side_files.finish_segment(segment)
        yield from chain.from_iterable(index_check.finish() for index_check in index_checks)

    def _has_grown(self, segment: LogSegment) -> bool:
        status = self._env.stat(segment.path)
        return status is not None and status.size_in_bytes > segment.size_in_bytes


def verify(log: Log, *, deep: bool = True, env: Env = DEFAULT_ENV) -> Verification:
    """Return a Verification: iterate it for each Damage of the log, segment by segment.

    Checked are every batch (framing, CRC, order of offsets, place in its segment), every offset and time index entry
    against the log, and the leader-epoch-checkpoint; if deep, also each record, and transaction indexes, producer
    snapshots, leader epochs and partition.metadata against the log. An incomplete batch at the very end is reported;
    zero bytes there are not, they are preallocated space. A missing file is no damage, but for the transaction index
    of a segment in which a transaction was aborted: without it a broker serves what was rolled back.
    Raises: StorageError while iterating; CorruptRecordError where a .log is cut meanwhile.
    Cost: reads everything once.
    """
    return Verification(log, is_deep=deep, env=env)


def verify_checkpoints(root: str, env: Env = DEFAULT_ENV) -> Iterator[Damage]:
    """Yield a Damage for each malformed offset checkpoint or meta.properties of a root; a missing one is none."""
    for path in (join_path(root, name) for name in ROOT_CHECKPOINTS):
        yield from damage_of_file(path, partial(read_offset_checkpoint, path, env), env=env)
    yield from damage_of_file(join_path(root, META_PROPERTIES), partial(read_meta_properties, root, env), env=env)
