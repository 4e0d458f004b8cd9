"""sound_parts: divides a part of a .log into runs of sound batches and the damage between them.

This is the one rule of all readers that go on after damage. It trusts nothing more than salvage does: in a file with a
fault it reads only batches whose start is proven (framing.py), that are stored as they should be, and whose offsets
keep their order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import RECORD_BATCH_OVERHEAD, BatchHeader, ColumnDecoder, HeaderScan, check_crc, read_header
from kstore.config import LogConfig
from kstore.env import Env, ReadFile
from kstore.errors import CorruptionError, CorruptRecordError, KStoreError, StorageError, UnsupportedError
from kstore.log.damage import Damage, SkippedRange
from kstore.log.files.indexes import MAX_INDEX_BYTES, OffsetIndex
from kstore.log.files.names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from kstore.log.files.records import fault_of_zeros, holds_only_zeros, scan_headers
from kstore.record.batches import SIZE_UP_TO_MAGIC
from kstore.types import MAX_OFFSET, TopicPartition

if TYPE_CHECKING:
    from kstore.log.damaged.order import WholeBatch


class FileRange(NamedTuple):
    """The whole batches of [start_position, end_position) of one .log file.

    Its segment starts at base_offset and ends before next_base_offset, None for the last segment. With finds_end the
    batches may end before end_position, at what a crash left; the reader finds out where. following_offset: the first
    offset of the batch at end_position, None where the segment ends or if it is not known.
    """

    path: str
    base_offset: int
    start_position: int
    end_position: int
    next_base_offset: int | None
    finds_end: bool = False
    following_offset: int | None = None

    @property
    def offset_limit(self) -> int | None:
        """The offset that all batches are known to be below, None if there is none."""
        return self.next_base_offset if self.following_offset is None else self.following_offset

    def start(self, decoder: ColumnDecoder) -> None:
        """Start a decoder at the first of these batches."""
        decoder.start_file(
            position=self.start_position,
            end_position=self.end_position,
            base_offset=self.base_offset,
            next_base_offset=self.next_base_offset,
            path=self.path,
            finds_end=self.finds_end,
        )


class SoundRun(NamedTuple):
    """Adjacent sound batches: [position, end_position) of a .log. No offset of them is below least_offset."""

    position: int
    end_position: int
    least_offset: int


class DamagedPart(NamedTuple):
    """The bytes [position, end_position) of a .log that are not read.

    The offsets from first_missing_offset on are missing, up to next_offset, that of the next sound batch, or up to the
    end of the part that was looked at if that is None.
    """

    position: int
    end_position: int
    first_missing_offset: int
    next_offset: int | None
    reason: str

    def error(self, path: str) -> CorruptRecordError:
        """Return the error that a reader would raise for the damage."""
        message = f"damage at position {self.position} of {path}: {self.reason}"
        return CorruptRecordError(message, path=path, position=self.position, reason=self.reason)

    def skipped(self, part: FileRange, topic_partition: TopicPartition, *, end_offset: int) -> SkippedRange:
        """Return what a reader reports of the damage. Args: end_offset: where the part that was looked at ends."""
        end = self.next_offset
        if end is None:
            end = min(end_offset, MAX_OFFSET if part.offset_limit is None else part.offset_limit)
        last = None if end == MAX_OFFSET else max(end, self.first_missing_offset) - 1
        size = self.end_position - self.position
        first = self.first_missing_offset
        return SkippedRange(topic_partition, part.path, self.position, size, first, last, self.reason)


class SoundParts(NamedTuple):
    """A part of a .log: its sound batches and the damage between them, in order.

    fault: the error of a reader that does not go on, None if there is no damage. A change of the file may have caused
    it: then nothing here is true.
    """

    parts: list[SoundRun | DamagedPart]
    fault: CorruptionError | None


def sound_parts(
    file: ReadFile, part: FileRange, *, find_index: Callable[[], OffsetIndex | None], config: LogConfig
) -> SoundParts:
    """Divide a part of a .log into runs of sound batches and the damage between them.

    A batch is sound if its frame and CRC are right and its offsets are above those of the sound batch before it;
    around damage, see find_sound_batches.
    Args: find_index: returns the offset index, None if there is none; called only for a part with a fault.
    Raises: StorageError; LogReplacedError if the file is shorter than the part.
    Cost: reads the part once; with a fault, as find_whole_batches.
    """
    end, fault = _end_of_sound(file, part, config)
    if fault is None and (end == part.end_position or _is_zeros(file, end, part)):
        run = SoundRun(part.start_position, end, part.base_offset)
        return SoundParts([run] if part.start_position < end else [], None)
    batches = find_sound_batches(file, part, index=find_index(), config=config)
    parts = _Parts(file, part, batches, config).all()
    first = next((damaged for damaged in parts if isinstance(damaged, DamagedPart)), None)
    return SoundParts(parts, None if first is None else fault or first.error(part.path))


class FoundBatches(NamedTuple):
    """What find_sound_batches finds in a part of a .log, each in the order of positions.

    sound: the batches that are sound; unsound: those with a right CRC of which a field is wrong that no CRC covers, and
    why; damage: everything else, with batches that nothing proves.
    """

    sound: list[WholeBatch]
    unsound: list[tuple[WholeBatch, str]]
    damage: list[Damage]


def find_sound_batches(
    file: ReadFile, part: FileRange, *, index: OffsetIndex | None, config: LogConfig
) -> FoundBatches:
    """Tell the sound batches of a part of a .log from damage: for verify, and for readers that go on after damage.

    Sound are the batches that salvage keeps as they are: their frame and CRC are right, a rule of find_whole_batches
    proves them, and they keep their offsets by slots_in_order.
    Args: index: the offset index, None if there is none.
    Raises: StorageError.  Cost: as find_whole_batches.
    """
    from kstore.log.damaged.framing import find_whole_batches
    from kstore.log.damaged.order import slots_in_order

    whole, damage = find_whole_batches(
        file.around_damage(),
        base_offset=part.base_offset,
        next_base_offset=part.offset_limit,
        index=index,
        config=config,
        start_position=part.start_position,
        end_position=part.end_position,
    )
    kept = slots_in_order(
        whole, range(part.base_offset, MAX_OFFSET if part.offset_limit is None else part.offset_limit)
    )
    result = FoundBatches([], [], damage)
    for slot, batch in enumerate(whole):
        reason = fault_beside_crc(batch) if batch.is_mended else None
        if reason is None and slot not in kept:
            reason = f"offset {batch.first_offset}, which does not fit the batches around it"
        if reason is None:
            result.sound.append(batch)
        else:
            result.unsound.append((batch, reason))
    return result


def fault_beside_crc(batch: WholeBatch) -> str:
    """Return which field of a batch is wrong whose records have a right CRC."""
    if batch.stored_size is not None:
        return f"size {batch.stored_size}: expected {batch.size_in_bytes} by the CRC"
    return "magic byte: expected 2 by the CRC"


def is_sound(file: ReadFile, part: FileRange, config: LogConfig) -> bool:
    """Whether all batches of a part are sound, up to its end or to zeros; raises and costs as sound_parts."""
    end, fault = _end_of_sound(file, part, config)
    return fault is None and (end == part.end_position or _is_zeros(file, end, part))


def fault_at_end(
    file: ReadFile, part: FileRange, *, find_index: Callable[[], OffsetIndex | None], config: LogConfig
) -> KStoreError | None:
    """Return the error for what a walk over headers took for the end of a log, None if the log may end there.

    It may at zeros up to the end of the file, and at an incomplete batch that no sound batch follows; see sound_parts.
    It may also at a batch that a writer has completed by the time that it was looked at again.
    Args: part: from there to the end of the file.
    Raises: StorageError, LogReplacedError.
    Cost: a read of 61 bytes; for zeros that of holds_only_zeros, for an incomplete batch that of sound_parts.
    """
    position, end_position = part.start_position, part.end_position
    around = file.around_damage()
    fault = fault_of_zeros(around, position=position, end_position=end_position)
    if fault is not None or position == end_position or not any(around.pread(SIZE_UP_TO_MAGIC, position=position)):
        return fault
    fault = sound_parts(file, part, find_index=find_index, config=config).fault
    return None if fault is None or _is_whole(file, position, config) else fault


def _is_whole(file: ReadFile, position: int, config: LogConfig) -> bool:
    """Whether a whole batch with a valid CRC starts at a position of a file as it is now."""
    try:
        header = read_header(
            file.pread(RECORD_BATCH_OVERHEAD, position=position),
            position=position,
            max_batch_bytes=config.max_batch_bytes,
            end_position=file.size(),
        )
        check_crc(file.pread(header.size_in_bytes, position=position), position=position)
    except (CorruptionError, UnsupportedError):
        return False
    return True


class _Parts:
    """Joins the sound batches of a part into runs."""

    def __init__(self, file: ReadFile, part: FileRange, batches: FoundBatches, config: LogConfig) -> None:
        self._file = file
        self._part = part
        self._found = batches
        self._config = config

    def all(self) -> list[SoundRun | DamagedPart]:
        parts: list[SoundRun | DamagedPart] = []
        position, next_offset = self._part.start_position, self._part.base_offset
        for batch in self._found.sound:
            last = parts[-1] if parts else None
            if batch.position > position:
                reason = self._reason(position, end_position=batch.position)
                parts.append(DamagedPart(position, batch.position, next_offset, batch.first_offset, reason))
            if isinstance(last, SoundRun) and batch.position == position:
                parts[-1] = last._replace(end_position=batch.end_position)
            else:
                parts.append(SoundRun(batch.position, batch.end_position, next_offset))
            position, next_offset = batch.end_position, batch.last_offset + 1
        end = self._part.end_position
        if position < end and not self._is_tail(position, next_offset=next_offset):
            parts.append(DamagedPart(position, end, next_offset, None, self._reason(position, end_position=end)))
        return parts

    def _reason(self, position: int, *, end_position: int) -> str:
        missing = self._file.why_missing(position, end_position=end_position)
        if missing is not None:
            return missing
        for damage in self._found.damage:
            if damage.position < end_position and position < damage.position + damage.size_in_bytes:
                return damage.reason
        return next(reason for batch, reason in self._found.unsound if position <= batch.position < end_position)

    def _is_tail(self, position: int, *, next_offset: int) -> bool:
        """Whether the bytes from a position to the end are what a crash leaves after the last batch."""
        part = self._part
        if any(batch.position >= position for batch, _ in self._found.unsound):
            return False
        if _is_zeros(self._file, position, part):
            return part.offset_limit is None or next_offset == part.offset_limit
        return part.finds_end and (self._is_torn(position, next_offset=next_offset) or self._is_half_written(position))

    def _is_torn(self, position: int, *, next_offset: int) -> bool:
        scan = self._walk(position, next_offset=next_offset)
        return (
            scan.status == "torn"
            and scan.batch_count == 0
            and not self._leads_to_end(position, next_offset=next_offset)
        )

    def _leads_to_end(self, position: int, *, next_offset: int) -> bool:
        """Whether a row of whole batches with later offsets leads from somewhere after a position to exactly the end.

        They may be in a value of an append that was cut short, or is not finished. But that ends where a page does, and
        hardly anywhere else where a batch of a value ends.
        """
        from kstore.log.damaged.framing import PAGE_BYTES

        return self._part.end_position % PAGE_BYTES != 0 and any(
            damaged.position > position and self._walk(damaged.position, next_offset=next_offset).status == "end"
            for damaged in self._found.damage
        )

    def _walk(self, position: int, *, next_offset: int) -> HeaderScan:
        end_position = self._part.end_position
        scan = HeaderScan(
            position=position,
            end_position=end_position,
            base_offset=self._part.base_offset,
            max_batch_bytes=self._config.max_batch_bytes,
            path=self._part.path,
            previous_last_offset=next_offset - 1,
        )
        return scan_headers(self._file.around_damage(), scan, position=position, end_position=end_position)

    def _is_half_written(self, position: int) -> bool:
        """Whether a batch in preallocated space ends in zeros, and nothing but zeros follows it."""
        from kstore.log.damaged.framing import LEAST_ZEROS

        head = self._file.around_damage().pread(RECORD_BATCH_OVERHEAD, position=position)
        try:
            header = read_header(
                head,
                position=position,
                max_batch_bytes=self._config.max_batch_bytes,
                end_position=self._part.end_position - 1,
            )
        except CorruptionError:
            return False
        return _is_zeros(self._file, position + header.size_in_bytes - LEAST_ZEROS, self._part)


def skipped_batch(
    header: BatchHeader, topic_partition: TopicPartition, path: str, *, least_offset: int, reason: str
) -> SkippedRange:
    """Return what a reader reports of a batch that has a right CRC, but records that cannot be decoded.

    Args: least_offset: the offset after the batch before; the first one of a wrapper may be this.
    """
    first = header.base_offset if header.has_base_offset else least_offset
    return SkippedRange(topic_partition, path, header.position, header.size_in_bytes, first, header.last_offset, reason)


def _is_zeros(file: ReadFile, position: int, part: FileRange) -> bool:
    return holds_only_zeros(file.around_damage(), position=position, end_position=part.end_position)


def _end_of_sound(file: ReadFile, part: FileRange, config: LogConfig) -> tuple[int, CorruptionError | None]:
    """Walk the batches of a part; return where the walk ended, and the fault that ended it, if any.

    Raises: LogReplacedError.  Cost: reads the part once and decodes no record.
    """
    # Every batch is below the start offset of this decoder, which therefore checks frames, CRCs and offsets as that of
    # a scan does, and gives no row.
    from kstore.log.files.columns import ColumnSelection, DecoderChunks, column_decoder

    decoder = column_decoder(ColumnSelection(), batch_bytes=1, config=config, start_offset=MAX_OFFSET)
    part.start(decoder)
    read_chunk = partial(DecoderChunks(file, chunk_bytes=config.read_chunk_bytes).read, end_position=part.end_position)
    try:
        for _ in decoder.full_tables(read_chunk):
            pass
    except CorruptionError as error:
        return decoder.position, error
    return decoder.position, None


def read_offset_index(log_path: str, *, base_offset: int, env: Env) -> OffsetIndex | None:
    """Return the offset index beside a .log, None if it cannot be read."""
    path = log_path.removesuffix(LOG_SUFFIX) + OFFSET_INDEX_SUFFIX
    try:
        content = env.read_untrusted(path, max_bytes=MAX_INDEX_BYTES)
    except StorageError:
        return None
    return OffsetIndex(content, base_offset=base_offset, path=path)
