"""Which segment of a tier serves which offsets: choose_pieces.

A log's lineage is its leader epochs with their start offsets, and (epoch, offset) determines a record: every finished
segment that has an offset in its part of the lineage's epoch has the log's record there, whichever was uploaded when.

Source: Kafka RemoteLogMetadataCache.remoteLogSegmentMetadata, UnifiedLog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from kstore.log.files.checkpoints import EpochEntry
from kstore.types import MAX_OFFSET


class RemoteSegment(NamedTuple):
    """A segment of a tier: its offsets, both inclusive; its leader epochs, the first one from start_offset on.

    size_in_bytes: of the `.log` as the broker had it; custom_metadata: what the plugin noted of it, None for nothing.
    """

    segment_id: str
    start_offset: int
    end_offset: int
    epochs: tuple[EpochEntry, ...]
    size_in_bytes: int
    max_timestamp_ms: int
    custom_metadata: bytes | None = None


class Piece(NamedTuple):
    """The offsets [first, last] of a log, and the segment that has them; None for a gap. reason: of a gap, if known."""

    segment: RemoteSegment | None
    first: int
    last: int
    reason: str | None = None


def valid_parts(segment: RemoteSegment, lineage: Sequence[EpochEntry]) -> list[tuple[int, int]]:
    """Return the offsets of a segment whose epochs agree with a lineage: [first, last] each, adjacent ones joined."""
    starts = {entry.epoch: entry.start_offset for entry in lineage}
    ends = {entry.epoch: following.start_offset - 1 for entry, following in pairwise(lineage)}
    parts: list[tuple[int, int]] = []
    for (epoch, start), end in _with_ends(segment):
        if epoch not in starts:
            continue
        first, last = max(start, starts[epoch]), min(end, ends.get(epoch, MAX_OFFSET))
        if first > last:
            continue
        if parts and parts[-1][1] + 1 == first:
            parts[-1] = parts[-1][0], last
        else:
            parts.append((first, last))
    return parts


def choose_pieces(
    segments: Iterable[RemoteSegment], lineage: Sequence[EpochEntry], *, start_offset: int, end_offset: int | None
) -> list[Piece]:
    """Return which segment serves which offsets of [start_offset, end_offset), in order; gaps between are pieces too.

    Where several serve, those that go on furthest are taken, so that few are. Where two overlap, the later one takes
    over from its first offset on, if that is possible, so that it is not cut in front.
    Args: end_offset: from where on the log is elsewhere; None up to the last offset that any serves. What is missing
        before the first one that serves is no gap: the log starts there.
    """
    limit = MAX_OFFSET if end_offset is None else end_offset - 1
    parts = sorted(
        (first, last, segment)
        for segment in segments
        for first, last in valid_parts(segment, lineage)
        if last >= start_offset and first <= limit
    )
    pieces: list[Piece] = []
    position, at = start_offset, 0
    while position <= limit:
        best: tuple[int, int, RemoteSegment] | None = None
        while at < len(parts) and parts[at][0] <= position:
            best = parts[at] if best is None or parts[at][1] > best[1] else best
            at += 1
        if best is None or best[1] < position:
            following = parts[at][0] if at < len(parts) else None
            if following is None:
                break
            if pieces:
                pieces.append(Piece(None, position, following - 1))
            position = following
            continue
        _append(pieces, best, position=position, limit=limit)
        position = best[1] + 1
    if pieces and end_offset is not None and position <= limit:
        pieces.append(Piece(None, position, limit))
    return pieces


def _append(pieces: list[Piece], part: tuple[int, int, RemoteSegment], *, position: int, limit: int) -> None:
    """Add the piece of a part from `position` on, or from where it may take over from the piece before."""
    first, last, segment = part
    before = pieces[-1] if pieces else None
    if before is not None and before.segment is not None and before.first < first < position:
        pieces[-1] = before._replace(last=first - 1)
        position = first
    pieces.append(Piece(segment, position, min(last, limit)))


def epochs_within(lineage: Sequence[EpochEntry], *, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
    """Return the epochs of [start_offset, end_offset] by all epochs of the log up to there, the first one from
    start_offset on.
    """
    inside = tuple(entry for entry in lineage if start_offset < entry.start_offset <= end_offset)
    before = [entry for entry in lineage if entry.start_offset <= start_offset]
    return (EpochEntry(before[-1].epoch, start_offset), *inside) if before else inside


def heads_of(segments: Iterable[RemoteSegment]) -> list[RemoteSegment]:
    """Return segments in the order of how much their leader epochs tell: first the one whose epochs are the whole
    lineage as far as a tier knows it, with the highest last epoch and, of these, the highest end offset.
    """
    with_epochs = [segment for segment in segments if segment.epochs]
    return sorted(with_epochs, key=lambda segment: (segment.epochs[-1].epoch, segment.end_offset), reverse=True)


def as_of_epoch(segments: Iterable[RemoteSegment], epoch: int) -> list[RemoteSegment]:
    """Return the segments with records of a leader epoch, as far as they go before the next epoch."""
    return [
        segment._replace(
            epochs=tuple(entry for entry in segment.epochs if entry.epoch <= epoch),
            end_offset=min((entry.start_offset - 1 for entry in segment.epochs if entry.epoch > epoch), default=end),
        )
        for segment in segments
        for end in (segment.end_offset,)
        if any(entry.epoch == epoch for entry in segment.epochs)
    ]


def epochs_beside(segments: Iterable[RemoteSegment], lineage: Sequence[EpochEntry]) -> list[int]:
    """Return the last epochs of segments that end on another lineage, above the start of this one; in order."""
    start = lineage[0].start_offset if lineage else 0
    found = set()
    for segment in segments:
        parts = valid_parts(segment, lineage)
        if segment.epochs and segment.end_offset >= start and (not parts or parts[-1][1] < segment.end_offset):
            found.add(segment.epochs[-1].epoch)
    return sorted(found)


def _with_ends(segment: RemoteSegment) -> Iterable[tuple[EpochEntry, int]]:
    ends = [*(following.start_offset - 1 for following in segment.epochs[1:]), segment.end_offset]
    return zip(segment.epochs, ends, strict=False)
