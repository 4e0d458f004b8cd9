"""SegmentRecords: the batches of one segment's .log file, by positioned reads and without an index.

Nothing here trusts what the file says about itself: sizes are compared with the bytes left, offsets with those before
them and with the segment's bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kstore._core import RECORD_BATCH_OVERHEAD, BatchHeader, HeaderScan, check_crc, iterate_records, read_header
from kstore.compression import decompress
from kstore.config import MAX_INT32, MAX_INT64, MIB, LogConfig
from kstore.env import ENOENT, Env, FileKind, FileStatus, Identity, OpenFiles, ReadFile
from kstore.env.cache import Loan
from kstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KStoreError,
    LogReplacedError,
    SegmentTooLargeError,
    StorageError,
    UnsupportedMagicError,
)
from kstore.log.files.names import deleted_paths

# Size of one read. It fits the L2 cache, so that the comparison finds the data there that was just read.
_ZEROS = bytes(256 * 1024)


def is_zeros(data: bytes | bytearray) -> bool:
    """Whether all bytes are zero.  Cost: a memcmp."""
    return all(data.startswith(_ZEROS[: len(data) - start], start) for start in range(0, len(data), len(_ZEROS)))


def holds_only_zeros(file: ReadFile, *, position: int, end_position: int) -> bool:
    """Whether all bytes of [position, end_position) exist and are zero.

    Raises: StorageError.  Cost: reads everything except holes, up to the first chunk with another byte.
    """
    buffer = bytearray(min(len(_ZEROS), max(end_position - position, 0)))
    while position < end_position:
        position = file.skip_hole(position)
        wanted = end_position - position
        if wanted <= 0:
            break
        if wanted < len(buffer):
            del buffer[wanted:]
        if file.pread_into(buffer, position=position) < len(buffer) or not is_zeros(buffer):
            return False
        position += len(buffer)
    return position >= end_position


def fault_of_zeros(file: ReadFile, *, position: int, end_position: int) -> KStoreError | None:
    """Return the error for zeros in place of the batch at `position`, None if the log may end there.

    It may at any other bytes, at zeros up to end_position, and at zeros that a writer has overwritten by the time that
    other bytes were found after them.
    Raises: StorageError.  Cost: a read of 61 bytes; if these begin with zeros, that of holds_only_zeros.
    """
    scan = _first_header(file, position=position, end_position=end_position)
    if scan.status != "zeros" or holds_only_zeros(file, position=position, end_position=end_position):
        return None
    # A writer fills a file from the front: zeros that it had not reached are gone once bytes after them are seen.
    error: KStoreError | None = scan.error
    again = _first_header(file, position=position, end_position=end_position)
    return error if again.status == "zeros" else None


def _first_header(file: ReadFile, *, position: int, end_position: int) -> HeaderScan:
    scan = HeaderScan(position=position, end_position=end_position, path=file.path, stop_offset=0)
    scan.feed(file.pread(min(RECORD_BATCH_OVERHEAD, end_position - position), position=position), position)
    return scan


def is_preallocated(
    file: ReadFile,
    *,
    position: int,
    end_position: int,
    next_offset: int,
    next_base_offset: int | None,
    cleaned_below: Callable[[], int],
    point: int = MAX_INT64,
) -> bool:
    """Whether zeros from `position` to the end of a .log are preallocated space, and no record is missing there.

    Args: next_offset: the offset after the last batch before them; next_base_offset: of the next segment, None for the
        last one; cleaned_below: returns the offset below which a cleaner may have removed records, called only if
        offsets are missing before a next segment; point: the offset below which the last segment was durable (where it
        is not known, the result is False there).
    Raises: StorageError.  Cost: reads the zeros.
    """
    if next_base_offset is None:
        is_missing = next_offset < point
    else:
        is_missing = next_offset < next_base_offset and cleaned_below() < next_base_offset
    if is_missing:
        return False
    return holds_only_zeros(file, position=position, end_position=end_position)


# One pread of a header walk. Where batches are large, the walk continues with reads of single headers while they are in
# the page cache.
HEADER_CHUNK_BYTES = 64 * 1024
# How far ahead of a read in order the file is announced.
_AHEAD_BYTES = 8 * MIB

_BASE_OFFSET_AND_SIZE = struct.Struct(">qi")


def entry_size(head: bytes | memoryview) -> int:
    """Return the size in bytes that a log entry of any format declares in its first 12 bytes."""
    length: int = _BASE_OFFSET_AND_SIZE.unpack_from(head)[1]
    return length + _BASE_OFFSET_AND_SIZE.size


def scan_headers(
    file: ReadFile, scan: HeaderScan, *, position: int, end_position: int, first_bytes: int = HEADER_CHUNK_BYTES
) -> HeaderScan:
    """Feed a HeaderScan with [position, end_position) of a file until it stops, and return it.

    Args: first_bytes: of the first read, at least a header.
    Raises: LogReplacedError if the file ends early; damage is reported in the status.
    """
    wanted = first_bytes
    while scan.status == "more":
        scan.feed(read_exactly(file, min(wanted, end_position - position), position=position), position)
        file.walk_cached(scan)
        position, wanted = scan.position, HEADER_CHUNK_BYTES
    return scan


def size_of_segment(path: str, env: Env) -> int | None:
    """Return the size of a segment's file in bytes, None if it does not exist; raises as status_of_segment."""
    status = status_of_segment(path, env)
    return None if status is None else status.size_in_bytes


def status_of_segment(path: str, env: Env) -> FileStatus | None:
    """Return the status of a segment's file without opening it, None if it does not exist.

    Raises: StorageError if it is not a regular file; SegmentTooLargeError.
    """
    status = env.stat(path, follow_symlinks=False)
    if status is None:
        return None
    if status.kind is not FileKind.FILE:
        raise StorageError(f"cannot read {path}: expected a regular file, found something else", path=path)
    if status.size_in_bytes > MAX_INT32:
        raise too_large(path, found=status.size_in_bytes)
    return status


def too_large(path: str, *, found: int) -> SegmentTooLargeError:
    """Return the error for a .log with more bytes than the position in an index entry can address."""
    message = f"size of {path}: expected at most {MAX_INT32} bytes, found {found}"
    return SegmentTooLargeError(message, path=path, position=MAX_INT32)


def read_exactly(file: ReadFile, size: int, *, position: int) -> bytes:
    """Return exactly `size` bytes of a file that was listed with them.

    Raises: StorageError; LogReplacedError if the file ends before.
    """
    data = file.pread(size, position=position)
    if len(data) < size:
        raise truncated_since_listed(file.path, position, expected=size, found=len(data))
    return data


def truncated_since_listed(path: str, position: int, *, expected: int, found: int) -> LogReplacedError:
    """Return the error for a read beyond the end of a file that was longer before."""
    return LogReplacedError(
        f"{path} was truncated since it was listed: expected {expected} bytes at position {position}, found {found}; "
        "open the log again",
        path=path,
        expected=f"{expected} bytes at position {position}",
        found=f"{found} bytes",
    )


class ChunkReader:
    """Reads a file for a walk from lower to higher positions, many batches with one read.

    Args: read: read(size, position=...) returns exactly that many bytes, as read_exactly, or a view of a buffer that is
        used again; end_position: nothing from
        there on is read; first_bytes: size of the first read; most_bytes: each read is twice as large as the one
        before, up to this; announce: is called with position= and end_position= of what is read soon.
    Attributes: chunk: the bytes of the last read.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        read: Callable[..., bytes | memoryview],
        *,
        end_position: int,
        first_bytes: int,
        most_bytes: int | None = None,
        announce: Callable[..., None] | None = None,
    ) -> None:
        self.chunk: bytes | memoryview = b""
        self._position = 0
        self._read = read
        self._end_position = end_position
        self._next_bytes = first_bytes
        self._most_bytes = first_bytes if most_bytes is None else most_bytes
        self._announce = announce
        self._announced_end = 0

    def find(self, position: int, *, size: int) -> int:
        """Return the index in `chunk` from where it holds `size` bytes of a position, fewer before end_position."""
        size = min(size, self._end_position - position)
        at = position - self._position
        if at < 0 or at + size > len(self.chunk):
            wanted = min(max(size, self._next_bytes), self._end_position - position)
            self._announce_after(position + wanted)
            self.chunk, self._position, at = self._read(wanted, position=position), position, 0
            self._next_bytes = min(2 * self._next_bytes, self._most_bytes)
        return at

    def _announce_after(self, position: int) -> None:
        """Announce what follows a position, a part of it while the one before is read, so that the disk never waits."""
        begin, end = max(self._announced_end, position), min(position + _AHEAD_BYTES, self._end_position)
        if self._announce is not None and begin < end and begin - position <= _AHEAD_BYTES // 2:
            self._announce(position=begin, end_position=end)
            self._announced_end = end

    def bytes_at(self, position: int, *, size: int) -> bytes:
        """Return `size` bytes from a position, fewer before end_position."""
        at = self.find(position, size=size)
        return bytes(self.chunk[at : at + min(size, self._end_position - position)])


class BatchPlace(NamedTuple):
    """A batch in a file, by position and header; the header is empty until a batch of the file was read."""

    path: str
    identity: Identity | None
    position: int = 0
    header: bytes = b""


class LastBatch:
    """The header of the last batch that was read of a file; later reads use it to detect that the file was rewritten.

    A writer that truncates a file in place and appends other batches changes every header after the truncation, at
    least in its CRC. A reader that finds this header unchanged has therefore read everything before it, and continues
    to read, in one history.
    Threads: one calls start and note, any number may read `place`.
    """

    def __init__(self) -> None:
        # A single reference, so that a thread that reads it never sees a mix of two places.
        self.place = BatchPlace("", None)

    def start(self, path: str, identity: Identity | None) -> None:
        """Continue in a file; forget the batch of any other file."""
        if path != self.place.path:
            self.place = BatchPlace(path, identity)

    def note(self, position: int, header: bytes) -> None:
        """Store a batch by its first bytes, at most a header."""
        place = self.place
        self.place = BatchPlace(place.path, place.identity, position, header)


def check_batch(place: BatchPlace, file: ReadFile) -> None:
    """Raise LogReplacedError if a batch is no longer in its file.  Cost: a pread of 61 bytes."""
    if place.header and not file.holds(place.header, position=place.position):
        raise changed_batch(place.path, place.position)


# What a cleaner keeps of the header of a batch (V2).
KEPT_BY_CLEANERS = ("base_offset", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence")


def is_same_batch(one: BatchHeader, other: BatchHeader) -> bool:
    """Whether two headers are those of the same batch, wherever they were read."""
    return (one.last_offset, one.size_in_bytes, one.crc, one.magic) == (
        other.last_offset,
        other.size_in_bytes,
        other.crc,
        other.magic,
    )


def is_batch(data: bytes, *, position: int, last_offset: int, end_position: int) -> bool:
    """Whether the first bytes of a batch are of one that starts and ends at these positions, with this last offset."""
    try:
        header: BatchHeader = read_header(data, position=position)
    except (CorruptRecordError, UnsupportedMagicError):
        return False
    return header.last_offset == last_offset and position + header.size_in_bytes == end_position


def changed_batch(path: str, position: int) -> LogReplacedError:
    """Return the error for a batch that differs from the one read before."""
    return LogReplacedError(
        f"{path} was truncated and written again while it was read: expected the batch at position {position} that "
        "was read before, found another; open the log again",
        path=path,
        expected=f"the batch at position {position} that was read before",
        found="another batch",
    )


def first_offset_in(data: bytes, header: BatchHeader, *, path: str, config: LogConfig) -> int:
    """Return the first offset of a batch: that in its header or, for a V0 or V1 wrapper, that of its first record.

    Args: data: the batch's bytes, with a valid CRC.
    Raises: for a wrapper, CorruptionError, UnsupportedError.  Cost: for a wrapper, its decompression.
    """
    if header.has_base_offset:
        return header.base_offset
    records = iterate_records(
        data,
        position=header.position,
        path=path,
        decompress=decompress,
        max_decompressed_bytes=config.max_decompressed_bytes,
    )
    return records.first_offset


class SegmentRecords:
    """The batches of one segment as it was when the log was opened.

    Args: size_in_bytes: the size at that time; bytes appended later are not seen. next_base_offset: of the next
        segment, None if there is none; no batch may reach it. identity: of the file at that time, None if it is not
        known. is_live: this process writes the log: if it replaces or removes the file, that is read under its .deleted
        name as long as it has one.
    Attributes: identity, which the writer sets before it replaces the file; is_live.
    Raises: LogReplacedError from every read if the file is another one by now, or shorter.
    Threads: thread-safe.  Source: Kafka FileLogInputStream.
    """

    def __init__(
        self,
        files: OpenFiles,
        *,
        path: str,
        base_offset: int,
        next_base_offset: int | None,
        size_in_bytes: int,
        config: LogConfig,
        identity: Identity | None = None,
        is_live: bool = False,
    ) -> None:
        self._files = files
        self.identity = identity
        self.is_live = is_live
        self._config = config
        self.path = path
        self.base_offset = base_offset
        self.next_base_offset = next_base_offset
        self.size_in_bytes = size_in_bytes

    def lend(self) -> Loan[ReadFile]:
        """Return the open file, for use until it is given back.

        Raises: LogReplacedError if it is another file, or was removed; StorageError.
        """
        identity = self.identity
        try:
            loan = self._files.lend(self.path, identity)
        except (LogReplacedError, StorageError) as error:
            return self._lend_deleted(error)
        if identity is None and self.identity is not None:
            # The writer may have replaced the file before it was opened.
            loan.give_back()
            return self.lend()
        return loan

    def pread(self) -> Callable[..., bytes]:
        """Return the pread of the open file without keeping it in use: after the file is closed, it raises
        LogClosedError.  Raises: as lend.
        """
        with self.lend() as file:
            return file.pread

    def _lend_deleted(self, error: LogReplacedError | StorageError) -> Loan[ReadFile]:
        """Return the file that this process renamed when it replaced it, else raise the error."""
        is_gone = isinstance(error, LogReplacedError) or error.errno == ENOENT
        if not self.is_live or self.identity is None or not is_gone:
            raise error
        for path in deleted_paths(self.path):
            try:
                return self._files.lend(path, self.identity)
            except (LogReplacedError, StorageError):
                continue
        raise error

    def check_anchor(self, place: BatchPlace) -> None:
        """Raise LogReplacedError if a batch of any segment of the log is no longer in its file.

        Cost: a stat and a pread of 61 bytes.
        """
        if place.identity is not None:
            self._files.check_in_place(place.path, place.identity)
        with self._files.lend(place.path, place.identity) as file:
            check_batch(place, file)

    def walk(
        self,
        *,
        position: int,
        end_position: int,
        previous_last_offset: int = -1,
        next_base_offset: int | None = None,
        stop_offset: int | None = None,
        stop_timestamp_ms: int | None = None,
        stop_attributes: int = 0,
        first_bytes: int = HEADER_CHUNK_BYTES,
    ) -> HeaderScan:
        """Walk the headers of [position, end_position) and return the stopped HeaderScan.

        Args: next_base_offset: which no batch may reach, None for no bound; first_bytes: as in scan_headers.
        Raises: LogReplacedError; damage is reported in the status.
        """
        scan = HeaderScan(
            position=position,
            end_position=end_position,
            base_offset=self.base_offset,
            max_batch_bytes=self._config.max_batch_bytes,
            path=self.path,
            previous_last_offset=previous_last_offset,
            next_base_offset=next_base_offset,
            stop_offset=stop_offset,
            stop_timestamp_ms=stop_timestamp_ms,
            stop_attributes=stop_attributes,
        )
        with self.lend() as file:
            try:
                return scan_headers(file, scan, position=position, end_position=end_position, first_bytes=first_bytes)
            except CorruptRecordError:
                # Bytes that cannot be had: the walk ends there, as at any other damage.
                return scan_headers(file.around_damage(), scan, position=scan.position, end_position=end_position)

    def stopped_at(self, scan: HeaderScan) -> BatchHeader | None:
        """Return the batch that a walk found, None if it reached its end.

        Raises: the error for any other status: an incomplete batch, zeros, or damage before the end; of bytes that
            cannot be had, why.
        """
        error: KStoreError | None = scan.error
        if error is not None:
            with self.lend() as file:
                file.pread(RECORD_BATCH_OVERHEAD, position=scan.position)
            raise error
        header: BatchHeader | None = scan.found
        return header

    def find_batch_at(self, position: int, *, end_position: int) -> tuple[BatchHeader, bytes] | None:
        """Return header and bytes of the batch at `position` if there is one: whole, inside its segment, with a valid
        CRC.

        Cost: reads the batch.
        """
        scan = HeaderScan(
            position=position,
            end_position=end_position,
            base_offset=self.base_offset,
            max_batch_bytes=self._config.max_batch_bytes,
            path=self.path,
            stop_offset=0,
        )
        with self.lend() as borrowed:
            file = borrowed.around_damage()
            data = file.pread(min(HEADER_CHUNK_BYTES, end_position - position), position=position)
            scan.feed(data, position)
            header: BatchHeader | None = scan.found
            if header is None or not self._is_inside(header):
                return None
            if header.size_in_bytes > len(data):
                data = file.pread(header.size_in_bytes, position=position)
        data = data[: header.size_in_bytes]
        try:
            check_crc(data, position=position, path=self.path)
        except (CorruptRecordError, UnsupportedMagicError):
            return None
        return header, data

    def first_offset(self, header: BatchHeader, data: bytes | None = None) -> int:
        """Return the first offset of a batch: that in its header or, for a V0 or V1 wrapper, that of its first record.

        Args: data: the batch's bytes, if they were read before and have a valid CRC.
        Raises: for a wrapper, CorruptRecordError and other errors, also if its CRC is wrong.  Cost: for a wrapper, its
            decompression.
        """
        if header.has_base_offset:
            return header.base_offset
        if data is None:
            data = self.read_bytes(header.size_in_bytes, position=header.position)
            check_crc(data, position=header.position, path=self.path)
        return first_offset_in(data, header, path=self.path, config=self._config)

    def read_bytes(self, size: int, *, position: int) -> bytes:
        """Return exactly `size` bytes from `position`.

        Raises: LogReplacedError.
        """
        with self.lend() as file:
            return read_exactly(file, size, position=position)

    def read_around_damage(self, size: int, *, position: int) -> bytes:
        """Return bytes as read_bytes does, also where they cannot be had; for callers that check each batch's CRC."""
        with self.lend() as file:
            return read_exactly(file.around_damage(), size, position=position)

    def announce(self, *, position: int, end_position: int) -> None:
        """Announce that these bytes are read soon; does nothing where each look is a request."""
        if self._files.is_high_latency:
            return
        with self.lend() as file:
            file.will_read(position=position, end_position=end_position)

    def read_batches(
        self,
        *,
        position: int,
        end_position: int,
        previous_last_offset: int = -1,
        anchor: BatchPlace | None = None,
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield header and bytes of each batch in [position, end_position); both must be batch boundaries.

        Args: anchor: a later batch of the log, which must be in its file after each read; None if the file is not
            rewritten, or the caller is notified of truncations.
        Raises: LogReplacedError if the log was truncated before that batch; CorruptRecordError for bad framing, for
            offsets that go back or leave the segment, and for a batch that does not end by end_position;
            InvalidRecordError for a last offset below the base offset in a batch with a valid CRC;
            UnsupportedMagicError. The CRC is not checked otherwise.
        """
        reader = ChunkReader(
            lambda size, *, position: self.read_before(anchor, size, position=position),
            end_position=end_position,
            first_bytes=min(HEADER_CHUNK_BYTES, self._config.read_chunk_bytes),
            most_bytes=self._config.read_chunk_bytes,
        )
        least_offset = max(self.base_offset, previous_last_offset + 1)
        while position < end_position:
            at = reader.find(position, size=RECORD_BATCH_OVERHEAD)
            header: BatchHeader = read_header(
                reader.chunk,
                at,
                position=position,
                path=self.path,
                max_batch_bytes=self._config.max_batch_bytes,
                end_position=end_position,
            )
            self._check_place(header, least_offset=least_offset)
            yield header, reader.bytes_at(position, size=header.size_in_bytes)
            position += header.size_in_bytes
            least_offset = header.last_offset + 1

    def fill_before(self, anchor: BatchPlace | None, part: memoryview, *, position: int) -> None:
        """Fill a buffer from the history of a later batch.  Args, Raises: as read_before."""
        with self.lend() as file:
            found = file.pread_into(part, position=position)
        if found < len(part):
            raise truncated_since_listed(self.path, position, expected=len(part), found=found)
        if anchor is not None:
            self.check_anchor(anchor)

    def read_before(self, anchor: BatchPlace | None, size: int, *, position: int) -> bytes:
        """Return bytes as read_bytes does, from the history of a later batch.

        Args: anchor: as in read_batches.
        """
        data = self.read_bytes(size, position=position)
        if anchor is not None:
            self.check_anchor(anchor)
        return data

    def _check_place(self, header: BatchHeader, *, least_offset: int) -> None:
        try:
            header.check_place(least_offset=least_offset, next_base_offset=self.next_base_offset, path=self.path)
        except InvalidRecordError:
            # If the header were merely damaged, the CRC would be wrong too: that is then the error.
            data = self.read_bytes(header.size_in_bytes, position=header.position)
            check_crc(data, position=header.position, path=self.path)
            raise

    def _is_inside(self, header: BatchHeader) -> bool:
        return self.next_base_offset is None or header.last_offset < self.next_base_offset
