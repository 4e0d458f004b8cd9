"""FileRecords: the record batches and messages of one file, read in slices and appended to.

FileRecordsSlice reads. FileRecords is the slice of the whole file, and the only one that changes it. Only framing is
checked here, neither CRCs nor the order of offsets. Format: docs/format.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore._core import RECORD_BATCH_OVERHEAD, AppendedFile, BatchHeader, Record, next_header
from kstore._lazy import lazy_logger
from kstore.config import MAX_INT32, LogConfig, config_or_default
from kstore.env import (
    DEFAULT_ENV,
    ENOENT,
    NO_DESCRIPTOR,
    Closing,
    Env,
    Identity,
    ReadFile,
    StrPath,
    WriteFile,
    is_same_file,
    plain_writer,
    split_path,
)
from kstore.errors import (
    CorruptRecordError,
    LogClosedError,
    LogFailedError,
    SegmentTooLargeError,
    StorageError,
)
from kstore.log.damage import corruption
from kstore.log.files.records import HEADER_CHUNK_BYTES, ChunkReader, too_large
from kstore.record.batches import MemoryRecords, RecordBatch
from kstore.record.conversion import convert
from kstore.record.message_writer import write_all
from kstore.types import OffsetPosition

if TYPE_CHECKING:
    import socket

    from typing_extensions import Buffer

_logger = lazy_logger("kstore.log")


class BinaryFile(Protocol):
    """A file object whose write() returns how many bytes it accepted, like those of `io`."""

    def write(self, data: Buffer, /) -> int | None: ...


class LogEntry(NamedTuple):
    """The header of a batch, wrapper or plain message; the position is relative to the slice."""

    position: int
    size_in_bytes: int
    magic: int
    last_offset: int


class FileRecordsSlice:
    """The bytes [start, start + size_in_bytes) of a file as records. Created by FileRecords.slice, or slice of another
    slice.

    Every position that a method takes or returns is relative to the slice; RecordBatch.position is relative to the
    file. An incomplete entry at the end ends an iteration without an error.
    Attributes: start (in the file), path, size_in_bytes.
    Raises: CorruptRecordError from reading if the file was truncated below the end of the slice.
    Lifetime: until the FileRecords that it was sliced from is closed.  Threads: thread-safe.
    Source: Kafka FileRecords, FileLogInputStream (formerly FileMessageSet).
    """

    def __init__(self, file: ReadFile, *, start: int, size_in_bytes: int, config: LogConfig) -> None:
        self._file = file
        self._config = config
        self._size_in_bytes = size_in_bytes
        self.start = start
        self.path = file.path

    @property
    def size_in_bytes(self) -> int:
        return self._size_in_bytes

    def __len__(self) -> int:
        return self.size_in_bytes

    def file_identity(self) -> Identity:
        """Return what distinguishes the file from others with its name."""
        return self._file.identity()

    def slice(self, *, position: int, size: int) -> FileRecordsSlice:
        """Return up to `size` bytes from `position` as a slice, fewer at the end of this one.

        Raises: ValueError if one is negative, or the position is after the end.
        """
        size = self._clipped(size, position=position)
        return FileRecordsSlice(self._file, start=self.start + position, size_in_bytes=size, config=self._config)

    def read(self, *, position: int = 0, size: int | None = None) -> MemoryRecords:
        """Read up to `size` bytes from `position`, to the end if None, fewer at the end of the slice.

        Raises: ValueError as slice.
        """
        data = self._read_bytes(self._clipped(size, position=position), position=position)
        return self._memory_records(data, position=position)

    def batches(self, *, position: int = 0, max_message_size: int | None = None) -> Iterator[RecordBatch]:
        """Iterate the batches from `position`, which must be the start of one.

        Args: max_message_size: largest size of a batch in bytes, including its 12 bytes of log overhead; None for
            max_batch_bytes.
        Raises: CorruptRecordError for a larger or impossible size; UnsupportedMagicError.
        Cost: holds one chunk of read_chunk_bytes, or one batch if that is larger.
        """
        limit = self._config.max_batch_bytes
        if max_message_size is not None:
            limit = min(limit, max_message_size)
        reader = self._reader(self._config.read_chunk_bytes)
        for header in self._headers(reader, position=position, max_batch_bytes=limit):
            at = reader.find(header.position - self.start, size=header.size_in_bytes)
            data = memoryview(reader.chunk)[at : at + header.size_in_bytes]
            yield RecordBatch(data, position=header.position, path=self.path, config=self._config)

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from batch

    def entries(self, *, position: int = 0) -> Iterator[LogEntry]:
        """Iterate the headers, without reading the bodies, from `position`, which must be the start of a batch.

        Raises: CorruptRecordError for an impossible size; UnsupportedMagicError.
        """
        reader = self._reader(HEADER_CHUNK_BYTES)
        for header in self._headers(reader, position=position, max_batch_bytes=MAX_INT32):
            yield LogEntry(header.position - self.start, header.size_in_bytes, header.magic, header.last_offset)

    def _headers(self, reader: ChunkReader, *, position: int, max_batch_bytes: int) -> Iterator[BatchHeader]:
        """Iterate the headers from a position in the slice; their own positions are those in the file."""
        left = self._check_position(position)
        while left:
            at = reader.find(position, size=RECORD_BATCH_OVERHEAD)
            header = next_header(
                reader.chunk,
                at,
                position=self.start + position,
                left=left,
                path=self.path,
                max_batch_bytes=max_batch_bytes,
            )
            if header is None:
                return
            yield header
            position += header.size_in_bytes
            left -= header.size_in_bytes

    def search_for(self, target_offset: int, *, starting_position: int = 0) -> OffsetPosition | None:
        """Return last offset and position of the first entry whose last offset is >= target_offset, or None.

        Args: starting_position: start of an entry, such as an index returns.
        Raises: as entries.
        """
        for entry in self.entries(position=starting_position):
            if entry.last_offset >= target_offset:
                return OffsetPosition(entry.last_offset, entry.position)
        return None

    def has_matching_magic(self, magic: int) -> bool:
        """Whether every batch, wrapper and plain message has the given magic, judged by the headers.

        Raises: as entries.
        """
        return all(entry.magic == magic for entry in self.entries())

    def has_compatible_magic(self, magic: int) -> bool:
        """Whether no batch, wrapper or plain message has a later magic, judged by the headers.

        Raises: as entries.
        """
        return all(entry.magic <= magic for entry in self.entries())

    def to_format(self, magic: int, *, first_offset: int = 0) -> Iterator[MemoryRecords]:
        """Yield all records converted to one magic, chunk by chunk; see kstore.record.conversion.convert.

        Args: first_offset: where the reader starts; plain V2 records below it may be left out.
        """
        return convert(self.batches(), magic=magic, first_offset=first_offset)

    def write_to(self, target: socket.socket | BinaryFile, *, position: int = 0, size: int | None = None) -> int:
        """Write up to `size` bytes from `position` to a stream socket or a binary file object; return how many.

        A plain socket is served with sendfile if the OS has it; TLS and file objects in chunks of read_chunk_bytes.
        Returns: fewer than available only if a non-blocking socket accepts no more.
        Raises: ValueError as slice; CorruptRecordError if the file ends early; errors of the target.
        """
        import socket

        size = self._clipped(size, position=position)
        if isinstance(target, socket.socket):
            sent = self._file.send_to(target, position=self.start + position, size=size)
            if sent < size and self._file.size() < self.start + position + size:
                raise self._truncated(position, expected=size, found=sent)
            return sent
        end = position + size
        while position < end:
            chunk = self._read_bytes(min(self._config.read_chunk_bytes, end - position), position=position)
            write_all([memoryview(chunk)], lambda group: target.write(group[0]), most_gathered=1)
            position += len(chunk)
        return size

    def _memory_records(self, data: bytes | memoryview, *, position: int) -> MemoryRecords:
        return MemoryRecords(data, position=self.start + position, path=self.path, config=self._config)

    def _read_bytes(self, size: int, *, position: int) -> bytes:
        data = self._file.pread(size, position=self.start + position)
        if len(data) < size:
            raise self._truncated(position, expected=size, found=len(data))
        return data

    def _reader(self, chunk_bytes: int) -> ChunkReader:
        return ChunkReader(self._read_bytes, end_position=self.size_in_bytes, first_bytes=chunk_bytes)

    def _check_position(self, position: int) -> int:
        """Return the number of bytes after a position."""
        available = self.size_in_bytes - position
        if position < 0 or available < 0:
            raise ValueError(f"position in {self.path}: expected 0 to {self.size_in_bytes}, got {position}")
        return available

    def _clipped(self, size: int | None, *, position: int) -> int:
        """Return how many of `size` bytes (None: all) there are after a position."""
        available = self._check_position(position)
        if size is None:
            return available
        if size < 0:
            raise ValueError(f"size of a part of {self.path}: expected at least 0, got {size}")
        return min(size, available)

    def _truncated(self, position: int, *, expected: int, found: int) -> CorruptRecordError:
        return self._error(position, "bytes of a file that was truncated since", expected=expected, found=found)

    def _error(self, position: int, what: str, *, expected: object, found: object) -> CorruptRecordError:
        place = self.start + position
        return corruption(CorruptRecordError, what, path=self.path, position=place, expected=expected, found=found)


class FileRecords(FileRecordsSlice, AppendedFile, Closing):
    """All records of a .log file; a context manager that closes it. Created by FileRecords.open.

    The effect of append and truncate_to, once they return, survives the end of the process; that of flush, a power cut.
    Bytes after size_in_bytes are preallocated zeros, or left over from a failed append.
    Threads: one that appends, truncates, renames or closes, concurrently with any number of readers.
    Source: Kafka FileRecords (formerly FileMessageSet).
    """

    def __init__(
        self, file: ReadFile, *, writer: WriteFile | None, size_in_bytes: int, env: Env, config: LogConfig
    ) -> None:
        super().__init__(file, start=0, size_in_bytes=size_in_bytes, config=config)
        self._write_by(writer)
        self._env = env
        self._failure: StorageError | None = None
        self._is_undoing = False
        self._is_name_durable = not (writer is not None and writer.is_new)
        self._is_closed = False
        # Of a file whose descriptor was given up; and what is called before it gets another one.
        self._parked: Identity | None = None
        # A flush and an append may both find it parked.
        self._reopening = threading.Lock()
        self.on_reopen: Callable[[], None] | None = None

    @classmethod
    def open(
        cls,
        path: StrPath,
        *,
        is_read_only: bool = False,
        preallocate_bytes: int = 0,
        env: Env = DEFAULT_ENV,
        config: LogConfig | None = None,
    ) -> FileRecords:
        """Open a file; unless is_read_only, create it if it does not exist.

        Args: preallocate_bytes: space to allocate for a new or empty file; it holds no records. In any other file the
            records extend to its last byte: zeros that a crash left there are for recovery to truncate.
        Raises: StorageError; SegmentTooLargeError for a file above 2147483647 bytes; ValueError.
        """
        if not 0 <= preallocate_bytes <= MAX_INT32:
            raise ValueError(f"preallocate_bytes must be from 0 to {MAX_INT32}, got {preallocate_bytes}")
        name = env.absolute_path(path)
        writer = None if is_read_only else env.open_write(name)
        file = env.open_read(name) if writer is None else writer
        try:
            size = file.size()
            if size > MAX_INT32:
                raise too_large(name, found=size)
            if preallocate_bytes and writer is not None and size == 0:
                _preallocate(writer, preallocate_bytes)
        except BaseException:
            file.close()
            if writer is not None and writer.is_new:
                env.unlink(name)
            raise
        return cls(file, writer=writer, size_in_bytes=size, env=env, config=config_or_default(config))

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened for reading, so that nothing can be appended."""
        return self._writer is None and self._parked is None

    @property
    def has_failed(self) -> bool:
        """Whether a failure that could not be undone made the file refuse changes, or an append is being undone."""
        return self._failure is not None or self._is_undoing

    def append(self, records: MemoryRecords) -> int:
        """Write records after the last ones and return their size in bytes; readers see them when all are written.

        Raises: SegmentTooLargeError, with nothing written, if the file would exceed 2147483647 bytes. StorageError: the
            records are not in the file, which is unchanged and accepts appends once there is space again.
            LogFailedError if an earlier failure could not be undone; ValueError if the file is read-only; TypeError.
        """
        if not isinstance(records, MemoryRecords):
            raise TypeError(f"expected MemoryRecords, got {type(records).__name__}")
        return self.append_bytes(records.buffer)

    def truncate_to(self, target_size: int) -> int:
        """Truncate the records to `target_size` bytes and return how many were removed; durable only after flush.

        Raises: ValueError for a size that is negative or above the current one; StorageError, LogFailedError.
        """
        removed = self._check_position(target_size)
        writer = self._writable()
        with self._failing():
            if target_size < writer.size():
                writer.truncate(target_size)
        self._size_in_bytes = target_size
        return removed

    def trim(self) -> None:
        """Release the preallocated space after the records.

        Raises: StorageError, LogFailedError.
        """
        self.truncate_to(self.size_in_bytes)

    def flush(self) -> None:
        """Wait until the records, and the name of a new or renamed file, survive a power cut.

        Raises: StorageError. After that nothing more is written (LogFailedError): the next sync would not report what a
            failed one dropped.
        """
        self._sync()
        self._sync_name()

    def check_in_place(self) -> None:
        """Raise unless the path still refers to this file.

        Raises: StorageError if it, or its directory, was removed or replaced: what is written then would be lost.
        Cost: one stat call.
        """
        if not self._writable().is_in_place():
            raise self._not_in_place()

    def park(self) -> bool:
        """Flush the file and give its descriptor up; the next call that needs one opens the file again.

        Returns: whether the file has no descriptor now: False if it failed before.
        Raises: StorageError, LogFailedError as flush: what was written before must be durable while the file is still
            open, since a failure to write it back might not be reported to a later descriptor.
        """
        if self._is_closed or self._parked is not None:
            return True
        writer = self._writer
        if writer is None or self._failure is not None:
            return False
        self.flush()
        identity = writer.identity()
        self._parked = identity
        self._write_by(None)
        writer.close()
        return True

    def ensure_open(self) -> None:
        """Give the file a descriptor if it was parked.  Raises: StorageError, LogFailedError."""
        self._writable()

    def start_write_back(self, position: int) -> None:
        """Ask the OS to start writing the records from `position` on to disk; only flush waits for it.

        Raises: StorageError, LogFailedError; nothing more is written then, as after a failed flush.
        """
        writer = self._writable()
        with self._failing():
            writer.start_write_back(self._size_in_bytes - position, position=position)

    def close(self) -> None:
        """Flush, trim and close the file; a second call does nothing, and a read-only file is only closed.

        Raises: StorageError, LogFailedError; the file is closed in any case.
        """
        if self._is_closed:
            return
        try:
            if not self.is_read_only:
                self._sync()
                try:
                    self._sync_name()
                except StorageError as error:
                    if error.errno not in NO_DESCRIPTOR:
                        raise
                    # A descriptor for the directory is free once this file is closed; the name is synced then.
                    self._failure = None
                self.trim()
        finally:
            self.close_handlers()
        self._sync_name()

    def close_handlers(self) -> None:
        """Close the file without flushing; a second call does nothing."""
        self._is_closed = True
        self._file.close()

    def delete(self) -> bool:
        """Close the file, remove it and return whether it existed; an error of closing is only logged.

        Raises: StorageError if it cannot be removed.
        """
        try:
            self.close_handlers()
        except StorageError as error:
            _logger.warning("closing %s before its deletion: %s", self.path, error)
        return self._env.unlink(self.path)

    def rename_to(self, path: StrPath) -> None:
        """Rename the file atomically, replacing one of that name; the next flush makes the name durable.

        Existing slices keep the old path in their errors.
        Raises: StorageError, with the file's old name kept; ValueError for another directory.
        """
        target = self._env.absolute_path(path)
        if split_path(target)[0] != split_path(self.path)[0]:
            raise ValueError(f"cannot rename {self.path} to {target}: expected a name in the same directory")
        self._env.rename(self.path, target)
        self._is_name_durable = False
        self.path = self._file.path = target

    def expect_name_sync(self) -> None:
        """Have the next flush make the names in the directory durable, also those of files that were removed."""
        self._is_name_durable = False

    def _writable(self) -> WriteFile:
        if self.is_read_only:
            raise ValueError(f"{self.path} was opened read-only")
        if self._is_closed:
            raise LogClosedError(f"{self.path} was closed before the call", path=self.path)
        if self._failure is not None:
            raise LogFailedError(
                f"{self.path} accepts no more calls since an earlier call failed: {self._failure}",
                path=self.path,
                errno=self._failure.errno,
            ) from self._failure
        return self._reopened() if self._writer is None else self._writer

    def _reopened(self) -> WriteFile:
        """Open a parked file again.  Raises: StorageError; it stays parked."""
        if self.on_reopen is not None:
            self.on_reopen()
        with self._reopening:
            return self._open_parked() if self._writer is None else self._writer

    def _open_parked(self) -> WriteFile:
        parked = self._parked
        if parked is None or self._env.stat(self.path, follow_symlinks=False) is None:
            raise self._not_in_place()
        writer = self._env.open_write(self.path)
        try:
            is_other = writer.is_new or not is_same_file(parked, writer.identity())
            if is_other or writer.size() < self._size_in_bytes:
                raise self._not_in_place()
        except BaseException:
            writer.close()
            if writer.is_new:
                self._env.unlink(self.path)
            raise
        self._file = writer
        self._write_by(writer)
        self._parked = None
        return writer

    def _write_by(self, writer: WriteFile | None) -> None:
        self._writer: WriteFile | None = writer
        self._plain_writer = plain_writer(writer)

    def _not_in_place(self) -> StorageError:
        return StorageError(
            f"{self.path} was removed or replaced while a writer had it open: "
            "expected the file that is open, found another one or none",
            path=self.path,
            errno=ENOENT,
        )

    def _sync(self) -> None:
        writer = self._writable()
        try:
            writer.sync()
        except StorageError as error:
            self._fail(error)
            raise

    def _sync_name(self) -> None:
        if self._is_name_durable:
            return
        try:
            self._env.sync_directory(split_path(self.path)[0])
        except StorageError as error:
            self._fail(error)
            raise
        self._is_name_durable = True

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            self._fail(error)
            raise

    def _fail(self, error: StorageError) -> None:
        error.is_final = True
        self._failure = error

    def _too_large(self, size: int) -> SegmentTooLargeError:
        return too_large(self.path, found=size)

    def _undo_append(self, writer: WriteFile, append_error: BaseException) -> None:
        """Truncate what a failed append left. An error here is only logged: the caller raises that of the append."""
        try:
            with self._failing():
                writer.truncate(self.size_in_bytes)
        except StorageError as error:
            if isinstance(append_error, StorageError):
                append_error.is_final = True
            _logger.error(
                "%s still holds the bytes of a failed append after position %d: %s", self.path, len(self), error
            )
        self._is_undoing = False


def _preallocate(file: WriteFile, size: int) -> None:
    """Allocate space for an empty file, which stays empty if there is not enough."""
    try:
        file.allocate(size)
    except BaseException:
        if not file.is_new:
            file.truncate(0)
        raise
