"""Salvage: a .log written anew from the batches that are still whole, wherever damage lies between them.

Layer 5. A batch whose CRC is right is kept even if its offset or magic byte, which no CRC of magic 2 covers, can't be
right: then it is put directly behind the batch before it. Everything else is reported, and a copy of it kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from typing import NamedTuple

from kstore._core import MAGIC_POSITION, check_crc, read_header, set_last_offset
from kstore.config import LogConfig
from kstore.errors import CorruptionError, CorruptRecordError, UnsupportedError
from kstore.log.atomic_file import replace_file
from kstore.log.damage import Damage
from kstore.log.env import ReadFile
from kstore.log.filenames import LOG_SUFFIX, segment_path
from kstore.log.partition_files import SegmentFiles
from kstore.log.quarantine import Quarantine
from kstore.log.recovery_context import RecoveryContext
from kstore.log.recovery_plan import RecoveryPlan, SegmentPlan
from kstore.log.segment_walk import SegmentWalk
from kstore.record import RecordBatch
from kstore.types import MAX_OFFSET

# Larger than any relative offset inside a wrapper.
_ANY_OFFSET = 2**40


class Piece(NamedTuple):
    """Bytes of the old file that stay; last_offset: of a single batch that is moved there, None for bytes as they are.

    first_offset, end_offset: of its batches, as they will be.
    """

    position: int
    size_in_bytes: int
    first_offset: int
    end_offset: int
    last_offset: int | None = None


class SalvagedSegment(NamedTuple):
    """A segment: what stays of it, in order, and what is wrong with it; pieces is None if it stays as it is."""

    files: SegmentFiles
    next_offset: int
    pieces: tuple[Piece, ...] | None = None
    damage: tuple[Damage, ...] = ()

    @property
    def lost_bytes(self) -> int:
        """How many bytes do not stay."""
        if self.pieces is None:
            return 0
        return self.files.size_in_bytes - sum(piece.size_in_bytes for piece in self.pieces)


class _Batch(NamedTuple):
    """A batch with a right CRC; span: its last offset less its first; has_magic_2: its magic byte says otherwise."""

    position: int
    size_in_bytes: int
    last_offset: int
    span: int
    has_magic_2: bool


def plan_salvage(context: RecoveryContext, segments: tuple[SegmentFiles, ...]) -> list[SalvagedSegment]:
    """Look through all segments, and find what is whole in the damaged ones.

    Raises: StorageError.  Cost: reads the log once, damaged segments twice.
    """
    found = []
    for files, following in zip_longest(segments, segments[1:]):
        next_base_offset = None if following is None else following.base_offset
        walk = _walk_whole(context, files, next_base_offset)
        if walk.status == "end":
            found.append(SalvagedSegment(files, walk.next_offset))
        else:
            found.append(_Salvage(context, files, next_base_offset).run())
    return found


def _walk_whole(context: RecoveryContext, files: SegmentFiles, next_base_offset: int | None) -> SegmentWalk:
    """Return the last walk over a segment, which begins where it is still to be split for the last time."""
    walk = context.walk(files.log_name, base_offset=files.base_offset, next_base_offset=next_base_offset)
    start = 0
    while walk.status == "overflow":
        start += walk.end_position
        walk = context.walk(
            files.log_name,
            base_offset=walk.overflow_base_offset,
            next_base_offset=next_base_offset,
            start_position=start,
        )
    return walk


def carry_out_salvage(context: RecoveryContext, salvaged: Iterable[SalvagedSegment], *, quarantine: Quarantine) -> None:
    """Write the damaged segments anew, each replaced in one step; their indexes are to be rebuilt afterwards.

    Raises: StorageError.
    """
    for segment in salvaged:
        if segment.pieces is None:
            continue
        target = segment_path(context.path, segment.files.base_offset, suffix=LOG_SUFFIX)
        for damage in segment.damage:
            quarantine.keep_range(target, position=damage.position, size_in_bytes=damage.size_in_bytes)
        with context.env.open_read(target) as source:
            replace_file(target, chain.from_iterable(_chunks(source, piece) for piece in segment.pieces), context.env)


def as_if_salvaged(plan: RecoveryPlan, salvaged: Iterable[SalvagedSegment]) -> None:
    """Turn a plan, which ends at the first damage, into what a salvage leads to; for a dry run."""
    plan.segments = [
        SegmentPlan(
            base_offset=one.files.base_offset,
            log_name=one.files.log_name,
            size_in_bytes=one.files.size_in_bytes,
            end_position=one.files.size_in_bytes - one.lost_bytes,
            next_offset=one.next_offset,
        )
        for one in salvaged
    ]
    plan.cuts, plan.older, plan.dropped = [], [], []


class _Salvage:
    """The search for whole batches in one segment."""

    def __init__(self, context: RecoveryContext, files: SegmentFiles, next_base_offset: int | None) -> None:
        self._context = context
        self._config = context.config
        self._log_path = context.path_of(files.log_name)
        self._files = files
        self._next_base_offset = next_base_offset
        self._end_offset = MAX_OFFSET if next_base_offset is None else next_base_offset
        self._damage: list[Damage] = []

    def run(self) -> SalvagedSegment:
        with self._context.env.open_read(self._log_path) as file:
            whole = self._whole_batches(file)
        pieces = tuple(self._placed(whole))
        next_offset = pieces[-1].end_offset if pieces else self._files.base_offset
        return SalvagedSegment(self._files, next_offset, pieces, tuple(self._damage))

    def _whole_batches(self, file: ReadFile) -> list[_Batch]:
        """Return the batches with a right CRC; note the ranges without one as damage."""
        found = []
        with self._context.check_of(self._files, next_base_offset=self._next_base_offset) as check:
            for step in check.steps():
                size = step.end_position - step.start_position
                batch = self._batch_of(file, step.start_position, size_in_bytes=size)
                if batch is not None:
                    found.append(batch)
                else:
                    reason = "no whole batch" if step.damage is None else step.damage.reason
                    self._damage.append(Damage(self._log_path, step.start_position, size, reason))
        return found

    def _batch_of(self, file: ReadFile, position: int, *, size_in_bytes: int) -> _Batch | None:
        """Return the batch that these bytes are, perhaps with another magic byte."""
        if size_in_bytes > self._config.max_batch_bytes:
            return None
        data = bytearray(file.pread(size_in_bytes, position=position))
        for has_magic_2 in (False, True):
            if has_magic_2 and len(data) > MAGIC_POSITION:
                data[MAGIC_POSITION] = 2
            try:
                header = read_header(data, position=position, max_batch_bytes=self._config.max_batch_bytes)
                if header.size_in_bytes != size_in_bytes:
                    return None
                check_crc(data, position=position)
                span = header.last_offset - header.base_offset
                if not header.has_base_offset:
                    span = _span_of_wrapper(bytearray(data), self._config)
            except (CorruptionError, UnsupportedError):
                continue
            return _Batch(position, size_in_bytes, header.last_offset, span, has_magic_2)
        return None

    def _placed(self, batches: list[_Batch]) -> Iterator[Piece]:
        """Yield what stays; a batch with an offset that can't be right goes behind the one before."""
        end = self._files.base_offset
        piece: Piece | None = None
        for slot, batch in enumerate(batches):
            first, last, is_moved = batch.last_offset - batch.span, batch.last_offset, False
            limit = self._limit_behind(batches, slot, least=end + batch.span + 1)
            if first < end or last >= limit:
                reason = f"offset {first}, expected {end}"
                has_room = end + batch.span < self._end_offset
                if not has_room:
                    most = self._end_offset - end
                    reason = f"{batch.span + 1} offsets from {first}, expected at most {most} from {end}"
                self._damage.append(Damage(self._log_path, batch.position, batch.size_in_bytes, reason))
                if not has_room:
                    continue
                first, last, is_moved = end, end + batch.span, True
            if batch.has_magic_2:
                reason = "magic byte, by the CRC expected 2"
                self._damage.append(Damage(self._log_path, batch.position, batch.size_in_bytes, reason))
            end = last + 1
            if is_moved or batch.has_magic_2:
                if piece is not None:
                    yield piece
                yield Piece(batch.position, batch.size_in_bytes, first, end, last)
                piece = None
            elif piece is not None and piece.position + piece.size_in_bytes == batch.position:
                size = piece.size_in_bytes + batch.size_in_bytes
                piece = piece._replace(size_in_bytes=size, end_offset=end)
            else:
                if piece is not None:
                    yield piece
                piece = Piece(batch.position, batch.size_in_bytes, first, end)
        if piece is not None:
            yield piece

    def _limit_behind(self, batches: list[_Batch], slot: int, *, least: int) -> int:
        """Return an offset that a batch must stay below: that of the next two if they agree, and of the next segment.

        The next two count only from `least` on, where they leave room for the batch.
        """
        if slot + 2 < len(batches):
            one, two = batches[slot + 1], batches[slot + 2]
            if least <= one.last_offset - one.span and one.last_offset < two.last_offset - two.span:
                return min(one.last_offset - one.span, self._end_offset)
        return self._end_offset


def _span_of_wrapper(data: bytearray, config: LogConfig) -> int:
    """Return the last offset less the first of the records in a V0 or V1 wrapper, whatever its own offset is.

    Raises: CorruptionError, UnsupportedError.
    """
    set_last_offset(data, last_offset=_ANY_OFFSET)
    offsets = [record.offset for record in RecordBatch(memoryview(data), config=config)]
    if not offsets:
        raise CorruptRecordError("a wrapper without records")
    return offsets[-1] - offsets[0]


def _chunks(source: ReadFile, piece: Piece) -> Iterable[bytes]:
    if piece.last_offset is None:
        return source.chunks(piece.size_in_bytes, position=piece.position)
    data = bytearray(source.pread(piece.size_in_bytes, position=piece.position))
    if data[MAGIC_POSITION] > 2:
        data[MAGIC_POSITION] = 2
    set_last_offset(data, last_offset=piece.last_offset)
    return [bytes(data)]
