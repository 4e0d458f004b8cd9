"""A slow, obvious model of compaction: lists and dicts, one round over a whole log, nothing of kstore's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class ModelRecord:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class ModelBatch:
    """One batch. ends: "commit" or "abort" for a marker; horizon_ms: None if it has none."""

    base_offset: int
    last_offset: int
    records: tuple[ModelRecord, ...]
    magic: int = 2
    codec: str = "none"
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    ends: str | None = None
    horizon_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.ends is None and not self.records


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a round is given. last_data: of each producer the offset of its last data or -1, and its epoch."""

    first_dirty_offset: int
    end_offset: int
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    last_data: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def aborted_batches(batches: Sequence[ModelBatch]) -> set[int]:
    """Return the base offsets of the data of aborted transactions."""
    found: set[int] = set()
    pending: dict[int, list[int]] = {}
    for batch in batches:
        if batch.ends is None:
            if batch.is_transactional:
                pending.setdefault(batch.producer_id, []).append(batch.base_offset)
        else:
            data = pending.pop(batch.producer_id, [])
            if batch.ends == "abort":
                found.update(data)
    return found


def cleaned(batches: Sequence[ModelBatch], given: Round) -> list[ModelBatch]:
    """Return what a round leaves of a log; batches from the end offset on stay as they are."""
    aborted = aborted_batches(batches)
    newest: dict[bytes, int] = {}
    for batch in batches:
        if batch.ends is None and batch.base_offset not in aborted:
            for record in batch.records:
                if record.key is not None and given.first_dirty_offset <= record.offset < given.end_offset:
                    newest[record.key] = record.offset
    left = []
    seen: dict[tuple[int, str], bool] = {}
    for batch in batches:
        if batch.base_offset >= given.end_offset:
            left.append(batch)
            continue
        if batch.ends is not None:
            kept = _cleaned_marker(batch, given, had_data=seen.pop((batch.producer_id, batch.ends), False))
        else:
            is_aborted = batch.base_offset in aborted
            if batch.is_transactional:
                seen[batch.producer_id, "abort" if is_aborted else "commit"] = True
            kept = _cleaned_data(batch, given, newest, is_aborted=is_aborted)
        if kept is not None:
            left.append(kept)
    return left


def _cleaned_marker(batch: ModelBatch, given: Round, *, had_data: bool) -> ModelBatch | None:
    if had_data:
        return batch
    if batch.horizon_ms is None:
        return replace(batch, horizon_ms=given.now_ms + given.delete_retention_ms)
    if given.now_ms < batch.horizon_ms:
        return batch
    offset, epoch = given.last_data.get(batch.producer_id, (-1, -2))
    # Its epoch is all that is left of the producer, or it ends the log: it stays, though without its record.
    if (offset < 0 and epoch == batch.producer_epoch) or _ends_log(batch, given):
        return replace(batch, ends="", horizon_ms=None)
    return None


def _cleaned_data(
    batch: ModelBatch, given: Round, newest: Mapping[bytes, int], *, is_aborted: bool
) -> ModelBatch | None:
    def stays(record: ModelRecord) -> bool:
        if is_aborted:
            return False
        if record.offset >= given.end_offset:
            return True
        if record.key is None or record.offset < newest.get(record.key, -1):
            return False
        if record.value is not None or batch.magic < 2:
            return True
        return batch.horizon_ms is None or given.now_ms < batch.horizon_ms

    kept = tuple(record for record in batch.records if stays(record))
    if not kept:
        offset, _ = given.last_data.get(batch.producer_id, (-1, -2))
        is_last = (batch.producer_id >= 0 and offset == batch.last_offset) or _ends_log(batch, given)
        return replace(batch, records=(), codec="none", horizon_ms=None) if is_last else None
    horizon_ms = batch.horizon_ms
    if batch.magic == 2 and horizon_ms is None and any(record.value is None for record in kept):
        horizon_ms = given.now_ms + given.delete_retention_ms
    return replace(batch, records=kept, horizon_ms=horizon_ms)


def _ends_log(batch: ModelBatch, given: Round) -> bool:
    return batch.magic == 2 and batch.last_offset + 1 == given.high_watermark


def replayed(batches: Sequence[ModelBatch], *, start_offset: int = 0) -> dict[bytes, bytes]:
    """Return the values by key that a reader of committed records from an offset on ends with."""
    aborted = aborted_batches(batches)
    values: dict[bytes, bytes] = {}
    for batch in batches:
        for record in batch.records if batch.ends is None and batch.base_offset not in aborted else ():
            if record.key is None or record.offset < start_offset:
                continue
            if record.value is None:
                values.pop(record.key, None)
            else:
                values[record.key] = record.value
    return values
