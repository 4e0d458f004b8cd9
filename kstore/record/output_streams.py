"""Output streams that compress what is written, framed as Kafka frames a V0 or V1 message set. Layer 4.

Packages compress the blocks; the framing around them is Kafka's, described in docs/format.md#compression.
"""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from kstore.compression import (
    GZIP_HEADER,
    LZ4_BLOCK_BYTES,
    LZ4_END_MARK,
    LZ4_HEADER,
    LZ4_HEADER_OF_V0,
    LZ4_STORED_BIT,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    CompressionType,
)
from kstore.errors import StorageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PIECE_BYTES = 64 * 1024


class Readable(Protocol):
    """A binary stream: read(n) returns at most n bytes, none at its end."""

    def read(self, size: int, /) -> bytes | None: ...


class Writable(Protocol):
    """Where bytes go; write() takes all of them."""

    def write(self, data: Buffer, /) -> object: ...


def byte_view(data: Any) -> memoryview:
    """Return the bytes of any contiguous buffer as a one-dimensional view, without a copy.

    Raises: TypeError if data is no buffer; ValueError if it is not C-contiguous.
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
    """Iterate the bytes of a buffer, in one piece, or of a readable stream up to its end, in pieces of 64 KiB at most.

    Raises: TypeError if source is neither; BlockingIOError if a non-blocking stream has nothing to read now.
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
            raise BlockingIOError("the stream has nothing to read now and is not at its end")
        view = byte_view(piece)
        if not len(view):
            return
        yield view


class CompressedOutput(ABC):
    """Pass what is written on to `output`, compressed, while it comes in; a context manager that ends the stream.

    It holds at most one block. close() ends the compressed stream, never `output`; a body that raises leaves the stream
    without its end.
    Raises: ValueError for a write behind the end.  Threads: one at a time.
    Source: Kafka CompressionType.wrapForOutput.
    """

    _block_bytes: ClassVar[int]

    def __init__(self, output: Writable, *, header: bytes) -> None:
        self._output = output
        self._held = bytearray()
        self._is_open = True
        output.write(header)

    def write(self, source: Buffer | Readable) -> int:
        """Compress the bytes of a buffer, or of a readable stream up to its end; return how many they were."""
        size = 0
        for piece in pieces(source):
            size += len(piece)
            self._take(piece)
        return size

    def close(self) -> None:
        """Write what is held and the end of the stream; a second call does nothing."""
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
    """One gzip member of level 6 with the fixed header of Java 16 and later (before, its last byte was 0)."""

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
    """Xerial framing: a header of 16 bytes, then raw snappy blocks of 32 KiB of content."""

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
    """One LZ4 frame of independent 64 KiB blocks, stored where compression gains nothing; no checksums of content."""

    _block_bytes = LZ4_BLOCK_BYTES

    def __init__(self, output: Writable, *, magic: int) -> None:
        import lz4.block

        super().__init__(output, header=LZ4_HEADER_OF_V0 if magic == 0 else LZ4_HEADER)
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


def wrap_for_output(output: Writable, *, compression: CompressionType, magic: int) -> CompressedOutput:
    """Return a stream that compresses into `output` the message set of a wrapper of that magic.

    Raises: ValueError for a codec that V0 and V1 do not have.
    """
    if compression == CompressionType.GZIP:
        return GzipOutput(output)
    if compression == CompressionType.SNAPPY:
        return SnappyOutput(output)
    if compression == CompressionType.LZ4:
        return Lz4Output(output, magic=magic)
    raise ValueError(f"compression of a V{magic} wrapper: expected gzip, snappy or lz4, found {compression.label}")


def write_all(views: list[memoryview], take: Callable[[list[memoryview]], int | None], *, most_gathered: int) -> None:
    """Hand the views on until all their bytes are taken."""
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
