"""What recovery asks of index files: whether they may stay, and which aborted transactions a segment holds. Layer 5."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from kstore.errors import CorruptIndexError, CorruptSnapshotError, StorageError
from kstore.log.env import ENOENT
from kstore.log.filenames import OFFSET_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, segment_path
from kstore.log.index import MAX_INDEX_BYTES, OffsetIndex, TimeIndex
from kstore.log.partition_files import SegmentFiles
from kstore.log.producer_append import ProducerBatch
from kstore.log.producer_snapshot import read_snapshot
from kstore.log.recovery_context import RecoveryContext
from kstore.log.transaction_index import AbortedTxn, decode_aborted_txns, encode_aborted_txn
from kstore.log.verify_index import IndexFile, OffsetIndexCheck, TimeIndexCheck


class OpenTransactions:
    """The transactions that are open at map_end_offset, and, batch by batch, the ones that end in an abort."""

    def __init__(self, first_offsets: dict[int, int], *, map_end_offset: int) -> None:
        self._first_offsets = first_offsets
        self.map_end_offset = map_end_offset

    @classmethod
    def of_snapshots(
        cls, context: RecoveryContext, snapshot_offsets: Iterable[int], *, base_offset: int
    ) -> OpenTransactions:
        """Return those that the last readable snapshot up to base_offset has; none are open where there is none."""
        for offset in sorted((one for one in snapshot_offsets if one <= base_offset), reverse=True):
            path = segment_path(context.path, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX)
            try:
                entries = read_snapshot(path, context.env)
            except CorruptSnapshotError:
                continue
            open_ones = {
                one.producer_id: one.current_txn_first_offset for one in entries if one.current_txn_first_offset >= 0
            }
            return cls(open_ones, map_end_offset=offset)
        return cls({}, map_end_offset=0)

    def keep_only(self, others: OpenTransactions) -> None:
        """Forget the transactions that are not among the others, where they may begin earlier."""
        begun = others._first_offsets
        self._first_offsets = {
            producer_id: first_offset
            for producer_id, first_offset in self._first_offsets.items()
            if begun.get(producer_id, first_offset + 1) <= first_offset
        }

    def aborted_of(self, batches: Iterable[ProducerBatch]) -> bytes:
        """Take the batches from map_end_offset on; return the content of a transaction index of them."""
        content = []
        for batch in batches:
            if batch.last_offset < self.map_end_offset:
                continue
            if not batch.is_control:
                if batch.is_transactional:
                    self._first_offsets.setdefault(batch.producer_id, batch.base_offset)
            elif batch.marker is not None:
                first_offset = self._first_offsets.pop(batch.producer_id, None)
                if batch.marker.is_abort and first_offset is not None:
                    stable = min(self._first_offsets.values(), default=batch.base_offset + 1)
                    aborted = AbortedTxn(batch.producer_id, first_offset, batch.base_offset, stable)
                    content.append(encode_aborted_txn(aborted))
        return b"".join(content)


def index_content(context: RecoveryContext, name: str) -> bytes | None:
    """Return the whole index file, None if it is not there or too large to be one."""
    try:
        return context.env.read_file(context.path_of(name), max_bytes=MAX_INDEX_BYTES)
    except StorageError as error:
        if error.errno in (None, ENOENT):
            return None
        raise


def plausible_aborted_txns(content: bytes, *, base_offset: int) -> tuple[AbortedTxn, ...] | None:
    """Return the entries of a transaction index, None if without the log it shows that they can't be right."""
    try:
        entries = decode_aborted_txns(content, base_offset=base_offset, path="")
    except CorruptIndexError:
        return None
    return entries if all(one.first_offset <= one.last_offset for one in entries) else None


def forgets_aborted(content: bytes | None, aborted: bytes, *, base_offset: int) -> bool:
    """Tell whether a transaction index lacks one of the aborted transactions, or is damaged.

    It may know more, or an earlier first offset: a cleaner removes the data of aborted transactions, not their entries.
    """
    if content is None:
        return bool(aborted)
    entries = plausible_aborted_txns(content, base_offset=base_offset)
    if entries is None:
        return True
    known = {(one.producer_id, one.last_offset): one.first_offset for one in entries}
    return any(
        known.get((one.producer_id, one.last_offset), one.last_offset) > one.first_offset
        for one in decode_aborted_txns(aborted, base_offset=base_offset, path="")
    )


def is_wrong_index(
    context: RecoveryContext, files: SegmentFiles, content: bytes | None, *, suffix: str, next_base_offset: int
) -> bool:
    """Hold an offset or time index of a whole segment against its batches; a missing one is wrong, so is an empty one.

    Cost: reads the segment.
    """
    if not content:
        return True
    kind = OffsetIndexCheck if suffix == OFFSET_INDEX_SUFFIX else TimeIndexCheck
    check = kind(
        IndexFile(
            path=segment_path(context.path, files.base_offset, suffix=suffix),
            content=content,
            base_offset=files.base_offset,
            log_size_in_bytes=files.size_in_bytes,
            is_last=False,
            has_grown=False,
        )
    )
    with context.check_of(files, next_base_offset=next_base_offset) as walk:
        return any(any(check.step(step)) for step in walk.steps()) or any(check.finish())


def reaches_beyond(
    content: bytes | None, *, suffix: str, base_offset: int, end_position: int, next_offset: int, least_beyond: int
) -> bool:
    """Tell whether an index is in order and its last entry speaks of a batch behind the end of the log file.

    Such an index bears witness of records that are gone; one that is out of order, or has an offset from least_beyond
    on, where the segment can't have had any, bears witness of nothing.
    """
    if not content:
        return False
    if suffix == OFFSET_INDEX_SUFFIX:
        offsets = OffsetIndex(content, base_offset=base_offset, path="")
        entries = [offsets.entry(slot) for slot in range(offsets.entry_count)]
        rises = all(one.offset < two.offset and one.position < two.position for one, two in pairwise(entries))
        found = [entry.offset for entry in entries]
        is_beyond = bool(entries) and entries[-1].position >= end_position
    else:
        times = TimeIndex(content, base_offset=base_offset, path="")
        rises = times.is_increasing()
        found = [times.entry(slot).offset for slot in range(times.entry_count)]
        is_beyond = bool(found) and found[-1] >= next_offset
    return is_beyond and rises and base_offset <= found[0] and found[-1] < least_beyond
