"""Salvage: rewrites a .log from the batches that are still whole, wherever the damage is.

A batch with a valid CRC is kept even if its size, offset or magic byte (which the CRC of magic 2 does not cover) is
impossible, as long as the right value is certain. Everything else is reported, and a copy of it kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from kstore.env import ReadFile
from kstore.log.damage import Damage, SuspectedLoss
from kstore.log.damaged.framing import find_whole_batches
from kstore.log.damaged.order import WholeBatch, first_offsets_from, longest_in_order, slots_in_order
from kstore.log.damaged.sound import fault_beside_crc
from kstore.log.files.checkpoints import replace_file
from kstore.log.files.indexes import OffsetIndex
from kstore.log.files.names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_path
from kstore.log.files.records import holds_only_zeros, is_preallocated
from kstore.log.recovery.context import DamageOutcome, RecoveryContext
from kstore.log.recovery.evidence import HeldSegment, Marks, find_losses
from kstore.log.recovery.files import PartitionFiles, Quarantine, SegmentFiles
from kstore.log.recovery.foretold import FilePart, ForetoldFiles, JoinedFile
from kstore.log.recovery.plan import drop_segment, index_content
from kstore.log.recovery.walk import SegmentWalk
from kstore.types import MAX_OFFSET


class Piece(NamedTuple):
    """A range of bytes of the old file that remains. changed: the single batch in it, if that does not remain
    unchanged.

    first_offset, end_offset: of its batches after the salvage.
    """

    position: int
    size_in_bytes: int
    first_offset: int
    end_offset: int
    changed: WholeBatch | None = None


class SalvagedSegment(NamedTuple):
    """A segment: what remains of it, in order, and its damage. pieces is None if it remains unchanged.

    removed: the ranges that the quarantine keeps a copy of; damage: the same, split as `verify` reports them.
    is_stray: it lies inside another segment and is removed entirely. next_base_offset: of the next segment, None for
    the last one. preallocated_bytes: the zeros at the end of a segment that remains unchanged.
    """

    files: SegmentFiles
    next_offset: int
    pieces: tuple[Piece, ...] | None = None
    removed: tuple[Damage, ...] = ()
    damage: tuple[Damage, ...] = ()
    is_stray: bool = False
    next_base_offset: int | None = None
    preallocated_bytes: int = 0

    @property
    def lost_bytes(self) -> int:
        """How many bytes are removed."""
        if self.pieces is None:
            return 0
        return self.files.size_in_bytes - sum(piece.size_in_bytes for piece in self.pieces)

    def outcomes(self) -> list[DamageOutcome]:
        """Return the outcome of each damaged range, in the order of `damage`."""
        return [self._outcome(damaged) for damaged in self.damage]

    def _outcome(self, damage: Damage) -> DamageOutcome:
        pieces = self.pieces or ()
        before = next((piece for piece in reversed(pieces) if piece.position <= damage.position), None)
        if before is not None and damage.position < before.position + before.size_in_bytes:
            return DamageOutcome("mended", before.first_offset, before.first_offset)
        following = next((piece for piece in pieces if piece.position > damage.position), None)
        start = self.files.base_offset if before is None else before.end_offset
        return DamageOutcome("removed", start, self.next_base_offset if following is None else following.first_offset)


def plan_salvage(context: RecoveryContext, segments: tuple[SegmentFiles, ...], *, point: int) -> list[SalvagedSegment]:
    """Check all segments, and find what is whole in the damaged ones.

    Args: point: the offset below which the log was durable: zeros after that are preallocated space.
    Raises: StorageError.  Cost: reads the log once, damaged segments twice.
    """
    salvaged: list[SalvagedSegment] = []
    left = list(segments)
    while left:
        files, *left = left
        walk = _walk_whole(context, files, left[0].base_offset if left else None, point)
        while left and walk.status != "end" and (damage := _stray_in(context, files, left)) is not None:
            stray = left.pop(0)
            salvaged.append(SalvagedSegment(stray, stray.base_offset, damage=(damage,), is_stray=True))
            walk = _walk_whole(context, files, left[0].base_offset if left else None, point)
        if walk.status == "end":
            space = files.size_in_bytes - walk.end_position
            salvaged.append(SalvagedSegment(files, walk.next_offset, preallocated_bytes=space))
        else:
            salvaged.append(_Salvage(context, files, left[0].base_offset if left else None).run())
    return sorted(salvaged, key=lambda one: one.files.base_offset)


def _stray_in(context: RecoveryContext, files: SegmentFiles, later: list[SegmentFiles]) -> Damage | None:
    """Return the damage to report for the next of the later segments if it lies inside `files` and must be removed,
    else None.

    It must if whole batches of `files` continue across its base offset up to exactly where the segment after it starts,
    or if fewer offsets are lost with it than with those batches.
    """
    stray = later[0]
    next_base_offset = later[1].base_offset if len(later) > 1 else None
    own = _whole_in_order(context, files, next_base_offset)
    over = [batch for batch in own if batch.last_offset >= stray.base_offset]
    if not over:
        return None
    others = _whole_in_order(context, stray, next_base_offset)
    if over[-1].last_offset + 1 != next_base_offset and (
        _only_in(others, own) >= _only_in(over, others)
        or (_may_have_a_wrong_offset(own, over, files, stray) and not _holds_nothing(context, stray))
    ):
        return None
    path = context.path_of(stray.log_name)
    end_offset = over[-1].last_offset + 1
    reason = f"stray segment: its base offset is inside segment {files.base_offset}, which ends at offset {end_offset}"
    return Damage(path, 0, stray.size_in_bytes, reason)


def _may_have_a_wrong_offset(
    own: list[WholeBatch], over: list[WholeBatch], files: SegmentFiles, following: SegmentFiles
) -> bool:
    """True if only the last batch of a segment is above the start of the following one, after a gap of offsets, and has
    room below it: then its offset may be wrong, as nothing but that batch says that the segment goes on.
    """
    end_offset = own[-2].last_offset + 1 if len(own) > 1 else files.base_offset
    return len(over) == 1 and end_offset < over[0].first_offset and end_offset + over[0].span < following.base_offset


def _holds_nothing(context: RecoveryContext, files: SegmentFiles) -> bool:
    with context.env.open_read(context.path_of(files.log_name)) as file:
        return holds_only_zeros(file, position=0, end_position=files.size_in_bytes)


def _whole_in_order(context: RecoveryContext, files: SegmentFiles, next_base_offset: int | None) -> list[WholeBatch]:
    """Return the proven batches of a segment that keep their offsets."""
    batches, _ = _whole_batches(context, files, next_base_offset)
    kept = longest_in_order(batches, range(files.base_offset, _end_offset(next_base_offset)))
    return [batches[slot] for slot in sorted(kept)]


def _whole_batches(
    context: RecoveryContext, files: SegmentFiles, next_base_offset: int | None
) -> tuple[list[WholeBatch], list[Damage]]:
    index_name = files.index_names.get(OFFSET_INDEX_SUFFIX)
    content = None if index_name is None else index_content(context, index_name)
    with context.env.open_read(context.path_of(files.log_name)) as file:
        return find_whole_batches(
            file,
            base_offset=files.base_offset,
            next_base_offset=next_base_offset,
            index=None if content is None else OffsetIndex(content, base_offset=files.base_offset, path=""),
            config=context.config,
        )


def _only_in(batches: list[WholeBatch], others: list[WholeBatch]) -> int:
    """Return how many offsets of `batches` are in none of `others`. Offsets rise in both."""
    count, slot = 0, 0
    for batch in batches:
        first_offset = batch.first_offset
        while slot < len(others) and others[slot].last_offset < first_offset:
            slot += 1
        at = slot
        while at < len(others) and others[at].first_offset <= batch.last_offset:
            count += max(others[at].first_offset - first_offset, 0)
            first_offset = others[at].last_offset + 1
            at += 1
        count += max(batch.last_offset + 1 - first_offset, 0)
    return count


def _end_offset(next_base_offset: int | None) -> int:
    return MAX_OFFSET if next_base_offset is None else next_base_offset


def _walk_whole(context: RecoveryContext, files: SegmentFiles, next_base_offset: int | None, point: int) -> SegmentWalk:
    """Return the last walk over a segment: the one over the last part that it must be split into.

    Its end_position is that in the file.
    """
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
    if walk.status == "zeros":
        with context.env.open_read(context.path_of(files.log_name)) as file:
            is_padded = is_preallocated(
                file,
                position=start + walk.end_position,
                end_position=files.size_in_bytes,
                next_offset=walk.next_offset,
                next_base_offset=next_base_offset,
                cleaned_below=context.cleaned_below,
                point=point,
            )
        walk = walk._replace(status="end") if is_padded else walk
    return walk._replace(end_position=start + walk.end_position)


def carry_out_salvage(
    context: RecoveryContext,
    salvaged: Iterable[SalvagedSegment],
    *,
    quarantine: Quarantine,
    foretold: ForetoldFiles | None,
) -> None:
    """Rewrite the damaged segments, each replaced in one step; the caller must rebuild their indexes afterwards.

    Stray segments are removed first.
    Args: foretold: the files of a dry run, which alone are rewritten then.
    Raises: StorageError.
    """
    for segment in salvaged:
        if segment.is_stray:
            drop_segment(segment.files, quarantine=quarantine)
    for segment in salvaged:
        if segment.pieces is None:
            continue
        target = segment_path(context.path, segment.files.base_offset, suffix=LOG_SUFFIX)
        for damage in segment.removed:
            quarantine.keep_range(target, position=damage.position, size_in_bytes=damage.size_in_bytes)
        if foretold is not None:
            rewritten = partial(_joined, segment.pieces)
            foretold.rewrite(target, rewritten, size_in_bytes=sum(piece.size_in_bytes for piece in segment.pieces))
            continue
        with context.env.open_read(target) as source:
            replace_file(target, chain.from_iterable(_chunks(source, piece) for piece in segment.pieces), context.env)


def _joined(pieces: Sequence[Piece], source: ReadFile) -> ReadFile:
    """Return the pieces of a file that remain as one file."""
    return JoinedFile(source, [FilePart(piece.size_in_bytes, partial(_part, source, piece)) for piece in pieces])


def _part(source: ReadFile, piece: Piece, at: int, *, size_in_bytes: int) -> bytes:
    if piece.changed is None:
        return source.pread(size_in_bytes, position=piece.position + at)
    return b"".join(_chunks(source, piece))[at : at + size_in_bytes]


def losses_of_salvage(
    context: RecoveryContext, listed: PartitionFiles, salvaged: Iterable[SalvagedSegment], *, marks: Marks
) -> list[SuspectedLoss]:
    """Return what find_losses says of a log beside its damage.  Raises: StorageError."""
    segments = [
        HeldSegment(
            segment.files,
            segment.files.base_offset,
            segment.next_offset,
            segment.files.size_in_bytes - segment.lost_bytes - segment.preallocated_bytes,
            is_damaged=bool(segment.damage),
        )
        for segment in salvaged
        if not segment.is_stray
    ]
    return find_losses(context, segments, orphans=listed.orphans, snapshot_offsets=listed.snapshot_offsets, marks=marks)


class _Salvage:
    """Works out what remains of one segment."""

    def __init__(self, context: RecoveryContext, files: SegmentFiles, next_base_offset: int | None) -> None:
        self._context = context
        self._log_path = context.path_of(files.log_name)
        self._files = files
        self._next_base_offset = next_base_offset
        self._end_offset = _end_offset(next_base_offset)
        self._damage: list[Damage] = []

    def run(self) -> SalvagedSegment:
        whole, gaps = _whole_batches(self._context, self._files, self._next_base_offset)
        self._damage = list(gaps)
        pieces = tuple(self._pieces(whole))
        next_offset = pieces[-1].end_offset if pieces else self._files.base_offset
        removed = tuple(sorted(self._damage, key=lambda one: one.position))
        return SalvagedSegment(
            self._files,
            next_offset,
            pieces,
            removed,
            tuple(self._verified(removed, gaps)),
            next_base_offset=self._next_base_offset,
        )

    def _verified(self, removed: tuple[Damage, ...], gaps: list[Damage]) -> Iterator[Damage]:
        """Yield what is removed, and the gaps in it as `verify` names them, which divides them by their headers."""
        gap_set = set(gaps)
        with self._context.check_of(self._files, next_base_offset=self._next_base_offset) as check:
            for damage in removed:
                parts = check.divided(damage) if damage in gap_set else []
                is_all = sum(part.size_in_bytes for part in parts) == damage.size_in_bytes
                yield from parts if is_all else [damage]

    def _pieces(self, batches: list[WholeBatch]) -> Iterator[Piece]:
        """Yield what remains; adjacent unchanged batches form one piece."""
        piece: Piece | None = None
        for batch, first_offset in self._placed(batches):
            if batch.is_mended:
                self._note(batch, fault_beside_crc(batch))
            end_offset = first_offset + batch.span + 1
            is_changed = batch.is_mended or first_offset != batch.first_offset
            if (
                piece is not None
                and piece.changed is None
                and not is_changed
                and piece.position + piece.size_in_bytes == batch.position
            ):
                size = piece.size_in_bytes + batch.size_in_bytes
                piece = piece._replace(size_in_bytes=size, end_offset=end_offset)
                continue
            if piece is not None:
                yield piece
            changed = batch if is_changed else None
            piece = Piece(batch.position, batch.size_in_bytes, first_offset, end_offset, changed)
        if piece is not None:
            yield piece

    def _placed(self, batches: list[WholeBatch]) -> Iterator[tuple[WholeBatch, int]]:
        """Yield each batch that remains, with its first offset.

        Most keep theirs. A batch whose offset contradicts the others is placed directly after the batch before it or
        directly before the batch after it, if no bytes are lost between the two and enough offsets are left; otherwise
        it is dropped.
        """
        offsets = range(self._files.base_offset, self._end_offset)
        kept = slots_in_order(batches, offsets)
        limits = first_offsets_from(batches, kept, end_offset=self._end_offset)
        end, end_position = self._files.base_offset, 0
        for slot, batch in enumerate(batches):
            first_offset = batch.first_offset
            if slot not in kept:
                room = limits[slot + 1] - end
                if batch.span >= room:
                    reason = f"{batch.span + 1} offsets from {first_offset}, expected at most {room} from {end}"
                    self._note(batch, reason)
                    continue
                if batch.position == end_position:
                    first_offset = end
                elif slot + 1 in kept and batches[slot + 1].position == batch.end_position:
                    first_offset = limits[slot + 1] - batch.span - 1
                else:
                    self._note(batch, f"doubtful: offset {first_offset}, and no neighbour shows the correct one")
                    continue
                self._note(batch, f"offset {batch.first_offset}, expected {first_offset}")
            yield batch, first_offset
            end, end_position = first_offset + batch.span + 1, batch.end_position

    def _note(self, batch: WholeBatch, reason: str) -> None:
        self._damage.append(Damage(self._log_path, batch.position, batch.size_in_bytes, reason))


def _chunks(source: ReadFile, piece: Piece) -> Iterable[bytes]:
    if piece.changed is None:
        return source.chunks(piece.size_in_bytes, position=piece.position)
    content = source.pread(piece.size_in_bytes, position=piece.position)
    return [piece.changed.mended(content, last_offset=piece.end_offset - 1)]
