"""verify: every batch, every index entry and the checkpoints of a log; verify_checkpoints: those of a root.

Layer 5. Reads everything once and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from kstore.errors import LogReplacedError, StorageError
from kstore.log.checkpoints import read_leader_epoch_checkpoint, read_offset_checkpoint
from kstore.log.damage import Damage, damage_of_file
from kstore.log.env import DEFAULT_ENV, ENOENT, Env, join_path, split_path
from kstore.log.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    ROOT_CHECKPOINTS,
    TIME_INDEX_SUFFIX,
    segment_path,
)
from kstore.log.index import MAX_INDEX_BYTES
from kstore.log.log import Log
from kstore.log.replaced import ERRORS_OF_A_CHANGE, MOST_LOOKS, ListedFile
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
        self._first_listed: dict[str, ListedFile | None] = {}
        # The end of the last sound batch of the segment at hand.
        self._sound_end = 0
        self.batch_count = 0
        self.record_count = 0

    def __iter__(self) -> Iterator[Damage]:
        self.batch_count = self.record_count = 0
        self._first_listed = {one.path: one.listed for one in self._log.segments}
        side_files, early = None, False
        if self._is_deep:
            side_files = SideFileCheck(self._log, has_grown=self._has_changed, env=self._env)
            found = list(side_files.start())
            # A broker writes a snapshot in place, so what is wrong with one is looked at again at the end.
            early = bool(found) and self._is_written()
            yield from () if early else found
        else:
            path = join_path(self._log.path, LEADER_EPOCH_CHECKPOINT)
            yield from damage_of_file(path, partial(read_leader_epoch_checkpoint, path, self._env), env=self._env)
        following: int | None = 0
        looks_left = MOST_LOOKS
        while following is not None and self._log.segments:
            segment = self._segment_of(following)
            counts = self.batch_count, self.record_count
            state = None if side_files is None else side_files.state()
            try:
                damage = self._confirmed(segment, side_files)
            except ERRORS_OF_A_CHANGE as error:
                looks_left -= 1
                self.batch_count, self.record_count = counts
                if side_files is not None and state is not None:
                    side_files.restore(state)
                self._log.renew_after(error, looks_left=looks_left)
                continue
            yield from damage
            following = segment.next_base_offset
        if early:
            again = {
                one.path: one for one in SideFileCheck(self._log, has_grown=self._has_changed, env=self._env).start()
            }
            yield from (again[one.path] for one in found if one.path in again)
        if side_files is not None:
            yield from side_files.finish()

    def _segment_of(self, offset: int) -> LogSegment:
        """Return the segment with an offset, the next one if it is gone."""
        return next(one for one in self._log.segments if one.next_base_offset is None or one.next_base_offset > offset)

    def _confirmed(self, segment: LogSegment, side_files: SideFileCheck | None) -> list[Damage]:
        """Return the damage of a segment that is found twice.

        The second time it is listed again. Somebody may write the log: an append that is half done, files that belong
        to different moments are no damage.
        """
        counts = self.batch_count, self.record_count
        state = None if side_files is None else side_files.state()
        damage = list(self._verify_segment(segment, side_files))
        if not damage:
            return damage
        first = {(one.path, one.position) for one in damage}
        self._log.renew_listing()
        self.batch_count, self.record_count = counts
        again = self._segment_of(segment.base_offset)
        if again.base_offset != segment.base_offset:
            raise LogReplacedError(f"{segment.path} was removed since it was listed", path=segment.path)
        if side_files is not None and state is not None:
            # Where a cleaner was over the segments before, its transaction indexes know no more of what they held.
            side_files.restore(state._replace(open={}) if self._has_moved_before(again) else state)
        damage = [one for one in self._verify_segment(again, side_files) if (one.path, one.position) in first]
        if again.is_last and any(self._is_at_the_end(one, again) for one in damage) and self._is_written():
            damage = [one for one in damage if not self._is_at_the_end(one, again)]
        return damage

    def _has_moved_before(self, segment: LogSegment) -> bool:
        """Tell whether the segments before one are other files than when the log was first listed."""
        before = [one for one in self._log.segments if one.base_offset < segment.base_offset]
        first = [path for path in self._first_listed if path < segment.path]
        if first != [one.path for one in before]:
            return True
        pairs = ((one.listed, self._first_listed[one.path]) for one in before)
        return any(now is not None and then is not None and now.identity != then.identity for now, then in pairs)

    def _is_at_the_end(self, damage: Damage, segment: LogSegment) -> bool:
        """Tell whether damage is where an append may be half done."""
        return damage.path == segment.path and damage.position >= self._sound_end

    def _is_written(self) -> bool:
        """Tell whether a broker, or kstore, holds the log open to write it."""
        return self._env.is_locked(join_path(split_path(self._log.path)[0], LOCK_FILE))

    def _has_changed(self) -> bool:
        """Tell whether the log was appended to, or its segments are others, since it was listed."""
        listed = [(one.path, one.size_in_bytes) for one in self._log.segments]
        found = ((path, self._env.stat(path)) for path, _ in listed)
        now = [(path, None if status is None else status.size_in_bytes) for path, status in found]
        logs = [name for name in self._env.listdir(self._log.path) if name.endswith(LOG_SUFFIX)]
        return now != listed or len(logs) != len(listed)

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
        self._sound_end = 0
        for step in check.steps():
            if step.header is not None and step.damage is None:
                self._sound_end = step.end_position
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
    The log may be written meanwhile: damage is told if it is found a second time after the log was listed again, and at
    the very end only if nobody holds the lock of the root.
    Raises: StorageError while iterating; LogReplacedError if another log, or none, has the path by now.
    Cost: reads everything once, a damaged segment twice.
    """
    return Verification(log, is_deep=deep, env=env)


def verify_checkpoints(root: str, env: Env = DEFAULT_ENV) -> Iterator[Damage]:
    """Yield a Damage for each malformed offset checkpoint or meta.properties of a root; a missing one is none."""
    for path in (join_path(root, name) for name in ROOT_CHECKPOINTS):
        yield from damage_of_file(path, partial(read_offset_checkpoint, path, env), env=env)
    yield from damage_of_file(join_path(root, META_PROPERTIES), partial(read_meta_properties, root, env), env=env)
