"""MessageWriter: V0 and V1 messages of unknown size, in segments that are never copied; and streaming compression.

Where Kafka's class of that name (0.9 to 0.10.2) ignores a value, wraps around or loops forever, this one raises a
TypeError or ValueError; and what a body wrote before it raised is removed. Format: docs/format.md.
"""

from __future__ import annotations

import operator
import struct
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from kstore._core import TIMESTAMP_TYPE_BIT
from kstore.compression import (
    GZIP_HEADER,
    LZ4_BLOCK_BYTES,
    LZ4_END_MARK,
    LZ4_STORED_BIT,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    CompressionType,
    lz4_header,
)
from kstore.config import MAX_INT32, MAX_INT64
from kstore.errors import StorageError
from kstore.types import MAGIC_V2, MAX_OFFSET, NO_TIMESTAMP, TimestampType

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PIECE_BYTES = 64 * 1024


class Readable(Protocol):
    """A binary stream: read(n) returns at most n bytes, and none at its end."""

    def read(self, size: int, /) -> bytes | None: ...


class Writable(Protocol):
    """A destination of bytes; write() takes all of them."""

    def write(self, data: Buffer, /) -> object: ...


def byte_view(data: Any) -> memoryview:
    """Return the bytes of any contiguous buffer as a one-dimensional view, without a copy.

    Raises: TypeError if data is not a buffer; ValueError if it is not C-contiguous.
    """
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"expected a buffer, found {type(data).__name__}") from None
    if view.ndim == 1 and view.format == "B" and view.contiguous:
        return view
    if not view.c_contiguous:
        raise ValueError(f"expected a C-contiguous buffer, found strides {view.strides} over shape {view.shape}")
    return view.cast("B") if view.nbytes else memoryview(b"")


def pieces(source: Buffer | Readable) -> Iterator[memoryview]:
    """Iterate over the bytes of a buffer in one piece, or of a readable stream to its end in pieces of at most 64 KiB.

    Raises: TypeError if source is neither; BlockingIOError if a non-blocking stream has no data now.
    """
    try:
        view = byte_view(source)
    except TypeError:
        read = getattr(source, "read", None)
        if read is None:
            raise TypeError(f"expected a buffer or a readable stream, found {type(source).__name__}") from None
    else:
        yield view
        return
    while True:
        piece = read(_PIECE_BYTES)
        if piece is None:
            raise BlockingIOError("the stream has no data available and has not ended")
        view = byte_view(piece)
        if not len(view):
            return
        yield view


class CompressedOutput(ABC):
    """A stream that compresses into `output` what is written to it; a context manager that ends the stream.

    Holds at most one block. close() ends the compressed stream but does not close `output`; if the body raises, the
    stream gets no end.
    Raises: ValueError for a write after the end.  Threads: one at a time.
    Source: Kafka CompressionType.wrapForOutput.
    """

    _block_bytes: ClassVar[int]

    def __init__(self, output: Writable, *, header: bytes) -> None:
        self._output = output
        self._held = bytearray()
        self._is_open = True
        output.write(header)

    def write(self, source: Buffer | Readable) -> int:
        """Compress the bytes of a buffer, or of a readable stream to its end; return their number."""
        size = 0
        for piece in pieces(source):
            size += len(piece)
            self._take(piece)
        return size

    def close(self) -> None:
        """Write the held block and the end of the stream; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            if self._held:
                self._write_block(self._held)
            self._write_end()

    def __enter__(self) -> CompressedOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        self._is_open = False

    def _take(self, view: memoryview) -> None:
        if not self._is_open:
            raise ValueError("the compressed stream has ended: nothing can be written to it")
        at = 0
        while at < len(view):
            taken = view[at : at + self._block_bytes - len(self._held)]
            at += len(taken)
            if len(taken) == self._block_bytes:
                self._write_block(taken)
                continue
            self._held += taken
            if len(self._held) == self._block_bytes:
                block, self._held = self._held, bytearray()
                self._write_block(block)

    @abstractmethod
    def _write_block(self, block: bytearray | memoryview) -> None: ...

    @abstractmethod
    def _write_end(self) -> None: ...


class GzipOutput(CompressedOutput):
    """One gzip member of level 6 with the fixed header of Java 16 and later (earlier ones end with a byte 0)."""

    _block_bytes = 16 * 1024

    def __init__(self, output: Writable) -> None:
        super().__init__(output, header=GZIP_HEADER)
        self._deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        self._crc = 0
        self._size = 0

    def _write_block(self, block: bytearray | memoryview) -> None:
        self._crc = zlib.crc32(block, self._crc)
        self._size += len(block)
        self._output.write(self._deflater.compress(block))

    def _write_end(self) -> None:
        self._output.write(self._deflater.flush())
        self._output.write(struct.pack("<II", self._crc, self._size & 0xFFFFFFFF))


class SnappyOutput(CompressedOutput):
    """Xerial framing: a 16-byte header, then raw snappy blocks of 32 KiB of content."""

    _block_bytes = XERIAL_BLOCK_BYTES

    def __init__(self, output: Writable) -> None:
        import cramjam

        super().__init__(output, header=XERIAL_HEADER)
        self._compress: Callable[[bytearray | memoryview], Buffer] = cramjam.snappy.compress_raw

    def _write_block(self, block: bytearray | memoryview) -> None:
        compressed = memoryview(self._compress(block))
        self._output.write(struct.pack(">i", compressed.nbytes))
        self._output.write(compressed)

    def _write_end(self) -> None:
        pass


class Lz4Output(CompressedOutput):
    """One LZ4 frame of independent 64 KiB blocks, stored if compression does not help; without content checksums."""

    _block_bytes = LZ4_BLOCK_BYTES

    def __init__(self, output: Writable, *, magic: int) -> None:
        import lz4.block

        super().__init__(output, header=lz4_header(magic))
        self._compress: Callable[..., bytes] = lz4.block.compress

    def _write_block(self, block: bytearray | memoryview) -> None:
        compressed: Buffer = self._compress(block, store_size=False)
        size = memoryview(compressed).nbytes
        if size >= len(block):
            compressed, size = block, len(block) | LZ4_STORED_BIT
        self._output.write(struct.pack("<I", size))
        self._output.write(compressed)

    def _write_end(self) -> None:
        self._output.write(LZ4_END_MARK)


_OUTPUTS: dict[CompressionType, Callable[[Writable, int], CompressedOutput]] = {
    CompressionType.GZIP: lambda output, _: GzipOutput(output),
    CompressionType.SNAPPY: lambda output, _: SnappyOutput(output),
    CompressionType.LZ4: lambda output, magic: Lz4Output(output, magic=magic),
}


def wrap_for_output(output: Writable, *, compression: CompressionType, magic: int) -> CompressedOutput:
    """Return a stream that compresses the message set of a wrapper of that magic into `output`.

    Raises: ValueError for a codec that V0 and V1 do not support.
    """
    kind = _OUTPUTS.get(compression)
    if kind is None:
        names = ", ".join(codec.label for codec in _OUTPUTS)
        raise ValueError(f"compression of a V{magic} wrapper: expected one of {names}, found {compression.label}")
    return kind(output, magic)


def write_all(views: list[memoryview], take: Callable[[list[memoryview]], int | None], *, most_gathered: int) -> None:
    """Pass the views to `take` until it has taken all bytes.

    Args: take: returns how many bytes it took; most_gathered: the most views per call.
    Raises: StorageError if it takes none, or reports an invalid count.
    """
    first = 0
    while first < len(views):
        group = views[first : first + most_gathered]
        given = sum(map(len, group))
        count = take(group)
        if count is None or not 0 < count <= given:
            raise StorageError(f"write of {given} bytes: expected a count from 1 to {given}, found {count}")
        while count and count >= len(views[first]):
            count -= len(views[first])
            first += 1
        if count:
            views[first] = views[first][count:]


if TYPE_CHECKING:
    from typing_extensions import Buffer

    MessageBody: TypeAlias = "Callable[[BufferingOutputStream | CompressedOutput], object]"

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_ENTRY_HEADER = struct.Struct(">qi")
_NULL_LENGTH = _INT32.pack(-1)
_MESSAGE_CODECS = tuple(codec for codec in CompressionType if codec.least_magic < MAGIC_V2)
_MOST_GATHERED = 1024


class _Segments:
    """Byte arrays of one size, initially zero, addressed by a position across all of them."""

    __slots__ = ("_truncations", "_views", "segment_size", "size", "truncation_count")

    def __init__(self, segment_size: int) -> None:
        self.segment_size = segment_size
        self.size = 0
        self.truncation_count = 0
        # Number and size of each truncation that no later one undercut.
        self._truncations: list[tuple[int, int]] = []
        self._views: list[memoryview] = []

    def extend(self, size: int) -> None:
        missing = self.size + size - len(self._views) * self.segment_size
        while missing > 0:
            self._views.append(memoryview(bytearray(self.segment_size)))
            missing -= self.segment_size
        self.size += size

    def put(self, data: memoryview, *, position: int) -> None:
        number, at = divmod(position, self.segment_size)
        done = 0
        while done < len(data):
            piece = data[done : done + self.segment_size - at]
            self._views[number][at : at + len(piece)] = piece
            done += len(piece)
            number, at = number + 1, 0

    def slices(self, *, start: int = 0) -> Iterator[memoryview]:
        number, at = divmod(start, self.segment_size)
        left = self.size - start
        while left > 0:
            view = self._views[number][at : at + left]
            yield view
            left -= len(view)
            number, at = number + 1, 0

    def truncate(self, size: int) -> None:
        if size >= self.size:
            return
        number, at = divmod(size, self.segment_size)
        end = min(self.size - size + at, self.segment_size)
        self._views[number][at:end] = bytes(end - at)
        del self._views[number + 1 :]
        self.size = size
        while self._truncations and self._truncations[-1][1] >= size:
            self._truncations.pop()
        self.truncation_count += 1
        self._truncations.append((self.truncation_count, size))

    def was_truncated_below(self, position: int, *, since: int) -> bool:
        """Return whether a truncation after the first `since` ones went below a position."""
        number = bisect_left(self._truncations, (since + 1,))
        return number < len(self._truncations) and self._truncations[number][1] < position


class ReservedOutput:
    """A reserved range of a BufferingOutputStream, to be written later.

    Bytes that are not written stay zero.  Threads: one at a time, together with its stream.
    Source: Kafka BufferingOutputStream.ReservedOutput.
    """

    __slots__ = ("_end", "_position", "_segments", "_truncations_before")

    def __init__(self, segments: _Segments, *, position: int, size: int) -> None:
        self._segments = segments
        self._position = position
        self._end = position + size
        self._truncations_before = segments.truncation_count

    @property
    def position(self) -> int:
        """The position in the stream of the next byte."""
        return self._position

    @property
    def remaining(self) -> int:
        return self._end - self._position

    def write(self, data: Buffer) -> int:
        """Append a buffer to the bytes written so far, across segment ends; return its size.

        Raises: ValueError, with nothing written, if it does not fit the remaining range, or if the range was reserved
            inside a prefix or message whose body raised; TypeError.
        """
        view = byte_view(data)
        if len(view) > self.remaining:
            raise ValueError(f"reserved output: expected at most {self.remaining} bytes, found {len(view)}")
        if self._segments.was_truncated_below(self._end, since=self._truncations_before):
            raise ValueError(
                f"reserved output up to position {self._end} was discarded because the body raised an exception"
            )
        self._segments.put(view, position=self._position)
        self._position += len(view)
        return len(view)


class BufferingOutputStream:
    """A growing sequence of bytes, in segments of one size that are added as needed and never copied or moved.

    A write that raises leaves the stream unchanged.
    Raises: ValueError for a segment_size below 1 or above 2^31 - 1.  Threads: one at a time.
    Source: Kafka BufferingOutputStream.
    """

    def __init__(self, segment_size: int) -> None:
        if not 1 <= operator.index(segment_size) <= MAX_INT32:
            raise ValueError(f"segment_size: expected from 1 to {MAX_INT32}, found {segment_size}")
        self._segments = _Segments(operator.index(segment_size))

    @property
    def segment_size(self) -> int:
        return self._segments.segment_size

    @property
    def size(self) -> int:
        """The number of bytes so far, including reserved ones; the position of the next write."""
        return self._segments.size

    def write(self, source: Buffer | Readable) -> int:
        """Append any C-contiguous buffer, or a readable binary stream to its end; return the number of bytes.

        A stream is read in pieces of at most 64 KiB.
        Raises: TypeError; ValueError for a buffer with gaps; BlockingIOError; errors of the stream.
        """
        with self._all_or_nothing() as start:
            for piece in pieces(source):
                position = self.size
                self._segments.extend(len(piece))
                self._segments.put(piece, position=position)
            return self.size - start

    def reserve(self, size: int) -> ReservedOutput:
        """Append `size` zero bytes and return the output that fills them later.

        Raises: ValueError for a size below 0 or above 2^31 - 1; TypeError.
        """
        if not 0 <= operator.index(size) <= MAX_INT32:
            raise ValueError(f"size to reserve: expected from 0 to {MAX_INT32}, found {size}")
        reserved = ReservedOutput(self._segments, position=self.size, size=operator.index(size))
        self._segments.extend(operator.index(size))
        return reserved

    def segments(self) -> list[memoryview]:
        """Return the bytes so far as read-only views, one per segment, none of them empty.

        Lifetime: the views stay valid, and show later writes to reserved ranges.  Cost: no copy.
        """
        return [view.toreadonly() for view in self._segments.slices()]

    def write_to(self, target: Buffer | Writable) -> int:
        """Copy all bytes to the start of a writable buffer, or write them to a binary file object; return the size.

        A file object's write() must return how many bytes it took, as in `io`; after a short write, the rest follows.
        Raises: ValueError, with nothing copied, if the buffer is too small; TypeError if target is read-only or neither
            of the two; StorageError if write() takes nothing; errors of write().
        """
        try:
            view = byte_view(target)
        except TypeError:
            write = getattr(target, "write", None)
            if write is None:
                raise TypeError(
                    f"expected a writable buffer or a binary file object, found {type(target).__name__}"
                ) from None
            write_all(self.segments(), lambda group: write(group[0]), most_gathered=1)
            return self.size
        if view.readonly and self.size:
            raise TypeError(f"expected a writable buffer, found a read-only {type(target).__name__}")
        if len(view) < self.size:
            raise ValueError(f"target buffer: expected at least {self.size} bytes, found {len(view)}")
        at = 0
        for segment in self._segments.slices():
            view[at : at + len(segment)] = segment
            at += len(segment)
        return self.size

    def gather_to(self, writev: Callable[[list[memoryview]], int]) -> int:
        """Write all bytes by gather writes, without a copy; return the size.

        Args: writev: takes up to 1024 buffers and returns how many bytes it wrote, for example `partial(os.writev, fd)`
            or `socket.sendmsg`; after a short write, the rest follows.
        Raises: StorageError if writev writes nothing; errors of writev.
        """
        write_all(self.segments(), writev, most_gathered=_MOST_GATHERED)
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self._segments.slices())

    @contextmanager
    def _all_or_nothing(self) -> Iterator[int]:
        """Yield the current size; if the body raises, remove what it appended."""
        start = self.size
        try:
            yield start
        except BaseException:
            self._segments.truncate(start)
            raise


class MessageWriter(BufferingOutputStream):
    """Writes V0 and V1 messages whose size and CRC need not be known in advance.

    Messages, prefixes and plain writes follow each other in the order of the calls. An error inside a prefix or message
    removes all of it; outputs that were reserved inside then reject writes. If an offset is only known after its
    message, `reserve(8)` before it and write it later.
    Source: Kafka MessageWriter.
    """

    @contextmanager
    def with_length_prefix(self) -> Iterator[None]:
        """Write an int32 before the output of the `with` body: its length in bytes.

        Raises: ValueError if the output is longer than 2147483647 bytes.
        """
        with self._all_or_nothing():
            prefix = self.reserve(_INT32.size)
            start = self.size
            yield
            prefix.write(_INT32.pack(_checked_length(self.size - start, what="bytes after a length prefix")))

    @contextmanager
    def with_crc32_prefix(self) -> Iterator[None]:
        """Write a uint32 before the output of the `with` body: its CRC-32 (as zlib's)."""
        with self._all_or_nothing():
            prefix = self.reserve(_UINT32.size)
            start = self.size
            yield
            crc = 0
            for view in self._segments.slices(start=start):
                crc = zlib.crc32(view, crc)
            prefix.write(_UINT32.pack(crc))

    def write_message(
        self,
        value: Buffer | Readable | MessageBody | None,
        *,
        magic: int,
        timestamp_ms: int = NO_TIMESTAMP,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        key: Buffer | None = None,
        compression: CompressionType | str = CompressionType.NONE,
    ) -> int:
        """Append one message, from its CRC to its value; return its size.

        Args:
            value: a buffer, a readable stream, or a function that is called with the output and writes the value to it.
                With a codec, this is the message set (a run of `write_entry`) to compress; the output then compresses
                as it is written, and ends when the function returns.
            magic: 0 or 1. V0 has no timestamp: timestamp_ms must be -1, timestamp_type is ignored.
            compression: a CompressionType of magic 0, or its name; any but NONE makes the message a wrapper.
        Raises: ValueError for a magic, codec, timestamp or timestamp type that the message cannot have, or a null value
            of a wrapper; TypeError; errors of the stream or the function.
        """
        codec = CompressionType.for_name(compression) if isinstance(compression, str) else compression
        prologue = _prologue(magic=magic, timestamp_ms=timestamp_ms, timestamp_type=timestamp_type, compression=codec)
        codec = CompressionType(codec)
        if value is None and codec != CompressionType.NONE:
            raise ValueError(f"value of a {codec.label} wrapper: expected a message set, found None")
        with self._all_or_nothing() as start:
            with self.with_crc32_prefix():
                self.write(prologue + _bytes_field(key, what="key"))
                if value is None:
                    self.write(_NULL_LENGTH)
                else:
                    with self.with_length_prefix():
                        self._write_value(value, compression=codec, magic=magic)
            return self.size - start

    def write_entry(
        self,
        value: Buffer | Readable | MessageBody | None,
        *,
        offset: int,
        magic: int,
        timestamp_ms: int = NO_TIMESTAMP,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        key: Buffer | None = None,
        compression: CompressionType | str = CompressionType.NONE,
    ) -> int:
        """Append one message set entry: offset, size, and the message as by `write_message`; return its size.

        Args: offset: that of the record; for a wrapper, that of its last record. Inside a V1 wrapper offsets count from
            0, inside a V0 wrapper they are absolute.
        """
        with self._all_or_nothing() as start:
            self.write(_checked_offset(offset).to_bytes(8, "big"))
            with self.with_length_prefix():
                self.write_message(
                    value,
                    magic=magic,
                    timestamp_ms=timestamp_ms,
                    timestamp_type=timestamp_type,
                    key=key,
                    compression=compression,
                )
            return self.size - start

    def _write_value(self, value: Buffer | Readable | MessageBody, *, compression: CompressionType, magic: int) -> None:
        if compression == CompressionType.NONE:
            _fill(self, value)
        else:
            with wrap_for_output(self, compression=compression, magic=magic) as output:
                _fill(output, value)


def write_entry(
    output: Writable,
    value: Buffer | None,
    *,
    offset: int,
    magic: int,
    timestamp_ms: int = NO_TIMESTAMP,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    key: Buffer | None = None,
) -> int:
    """Write one plain message set entry to any output, for example that inside a wrapper; return its size.

    Writes the same bytes as `MessageWriter.write_entry`, but reserves nothing, because key and value are buffers.
    Raises: ValueError and TypeError as there, with nothing written.
    """
    body = _prologue(
        magic=magic, timestamp_ms=timestamp_ms, timestamp_type=timestamp_type, compression=CompressionType.NONE
    ) + _bytes_field(key, what="key")
    view = None if value is None else byte_view(value)
    value_size = 0 if view is None else _checked_length(len(view), what="bytes of the value")
    body += _NULL_LENGTH if view is None else _INT32.pack(value_size)
    size = _checked_length(_UINT32.size + len(body) + value_size, what="bytes of the message")
    crc = zlib.crc32(body)
    if view is not None:
        crc = zlib.crc32(view, crc)
    output.write(_ENTRY_HEADER.pack(_checked_offset(offset), size) + _UINT32.pack(crc) + body)
    if view is not None:
        output.write(view)
    return _ENTRY_HEADER.size + size


def _fill(output: BufferingOutputStream | CompressedOutput, value: Any) -> None:
    if callable(value) and not hasattr(value, "read"):
        value(output)
    else:
        output.write(value)


def _prologue(*, magic: int, timestamp_ms: int, timestamp_type: TimestampType, compression: CompressionType) -> bytes:
    """Return magic, attributes and, for V1, the timestamp."""
    if magic not in (0, 1):
        raise ValueError(f"magic of a message: expected 0 or 1, found {magic}")
    if compression not in _MESSAGE_CODECS:
        names = ", ".join(codec.label for codec in _MESSAGE_CODECS)
        raise ValueError(f"compression of a V{magic} message: expected one of {names}, found {compression}")
    stamp = operator.index(timestamp_ms)
    if magic == 0:
        if stamp != NO_TIMESTAMP:
            raise ValueError(f"timestamp_ms of a V0 message: expected {NO_TIMESTAMP}, found {stamp}")
        return bytes((0, compression))
    if not NO_TIMESTAMP <= stamp <= MAX_INT64:
        raise ValueError(f"timestamp_ms of a V1 message: expected {NO_TIMESTAMP} to {MAX_INT64}, found {stamp}")
    if timestamp_type == TimestampType.CREATE_TIME:
        attributes = int(compression)
    elif timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes = compression | TIMESTAMP_TYPE_BIT
    else:
        raise ValueError(f"timestamp_type of a V1 message: expected create or log append time, found {timestamp_type}")
    return struct.pack(">bbq", 1, attributes, stamp)


def _bytes_field(data: Buffer | None, *, what: str) -> bytes:
    if data is None:
        return _NULL_LENGTH
    view = byte_view(data)
    return _INT32.pack(_checked_length(len(view), what=f"bytes of the {what}")) + view


def _checked_length(size: int, *, what: str) -> int:
    if size > MAX_INT32:
        raise ValueError(f"{what}: expected at most {MAX_INT32}, found {size}")
    return size


def _checked_offset(offset: int) -> int:
    if not 0 <= operator.index(offset) <= MAX_OFFSET:
        raise ValueError(f"offset: expected 0 to {MAX_OFFSET}, found {offset}")
    return operator.index(offset)
