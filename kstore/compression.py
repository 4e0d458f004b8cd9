"""Compression codecs of record batches, by Kafka's id: compression and decompression of one payload.

Decompression stops at `limit` bytes of output, and its memory grows with the output produced, never with a size that a
header declares. docs/format.md#compression describes the framings.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from kstore import _core
from kstore.errors import DecompressionError, UnsupportedCompressionTypeError
from kstore.types import MAGIC_V0, MAGIC_V2

Payload: TypeAlias = "bytes | bytearray | memoryview"

# Magic, version and compatible version.
XERIAL_HEADER = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1))
XERIAL_BLOCK_BYTES = 32 * 1024
# Deflate, no flags, no time, no extra flags at any level, unknown operating system: as written by Java.
GZIP_HEADER = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF))
_GZIP_MAGIC = GZIP_HEADER[:3]
_GZIP_FLAGS_AT = 3
# Java's reader ignores fewer bytes after a member.
_GZIP_LEAST_MEMBER_BYTES = 19
_GZIP_MOST_FLAGS = 0x1F
# Java's reader overflows its stack at some thousands.
_GZIP_MOST_EMPTY_MEMBERS = 1000
# Magic, version 1 with independent blocks, blocks of 64 KiB, header checksum.
LZ4_HEADER = bytes((0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82))
# The form that readers up to Kafka 0.9 expect: the checksum includes the frame's magic number (KAFKA-3160).
LZ4_HEADER_OF_V0 = LZ4_HEADER[:-1] + b"\x1a"
LZ4_BLOCK_BYTES = 64 * 1024
LZ4_STORED_BIT = 1 << 31
LZ4_END_MARK = bytes(4)
_ZSTD_MAGIC = bytes((0x28, 0xB5, 0x2F, 0xFD))
_ZSTD_MAX_WINDOW_BYTES = 1 << 27
_FRAME_READ_BYTES = 1 << 20


class CompressionType(IntEnum):
    """Kafka's compression ids; `label` is the name in Kafka's configs, one of kstore.config.CodecName.

    NONE, GZIP, SNAPPY, LZ4, ZSTD: 0 to 4, as in the attributes of a batch.
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def least_magic(self) -> int:
        """The lowest magic of a batch that can have this codec: 2 for zstd, 0 for all others (KIP-110)."""
        return _CODECS[self].least_magic

    @classmethod
    def for_name(cls, name: str) -> CompressionType:
        """Return the codec of one of Kafka's names, kstore.config.CodecName.

        Raises: ValueError for another name.
        """
        codec = _BY_NAME.get(name)
        if codec is None:
            raise ValueError(f"unknown compression type: expected one of {', '.join(_BY_NAME)}, got {name!r}")
        return codec


_BY_NAME = {codec.label: codec for codec in CompressionType}
_NAMES = tuple(_BY_NAME)


def codec_name(codec_id: int) -> str:
    """Return Kafka's name of a compression type id, UNKNOWN(n) for an id that Kafka does not define."""
    return _NAMES[codec_id] if codec_id < len(_NAMES) else f"UNKNOWN({codec_id})"


class _Packages:
    """Functions of the codec packages, imported at first use."""

    @cached_property
    def zstd_error(self) -> type[Exception]:
        import zstandard

        return zstandard.ZstdError

    @cached_property
    def inflater(self) -> tuple[Callable[..., Any], Any]:
        """decompressobj and its error. isal takes about half the time of zlib, but has no wheels for some platforms."""
        try:
            from isal.igzip_lib import IsalError
            from isal.isal_zlib import decompressobj
        except ImportError:
            return zlib.decompressobj, zlib.error
        return decompressobj, IsalError


class _Contexts(threading.local):
    """One thread's contexts of the codec packages; creating one takes as long as a small batch."""

    @cached_property
    def zstd(self) -> Any:
        import zstandard

        return zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)

    def zstd_compressor(self, level: int) -> Any:
        import zstandard

        if self._zstd_level != level:
            self._zstd_compressor = zstandard.ZstdCompressor(
                level=level, write_content_size=False, write_checksum=False, write_dict_id=False
            )
            self._zstd_level = level
        return self._zstd_compressor

    _zstd_level: int | None = None
    _zstd_compressor: Any = None


_packages = _Packages()
_contexts = _Contexts()


def decompress(codec_id: int, payload: Payload, limit: int, *, magic: int = 2) -> Payload:
    """Return the decompressed payload of one batch.

    Args: codec_id: 0 to 4, as in the batch attributes; limit: the most bytes of output; magic: that of the batch (the
        lz4 header checksum of V0 is not checked, because Kafka's V0 writers computed it wrongly).
    Raises: DecompressionError (with a reason but no position) if the payload is damaged or truncated, has bytes after
        its frames (of zstd; as by Kafka, some are ignored after gzip and snappy, all after lz4), or exceeds the limit;
        UnsupportedCompressionTypeError.
    Threads: safe.  Cost: one pass; the GIL is released for gzip, zstd and large payloads of lz4 and snappy.
    """
    codec = _CODECS.get(codec_id)
    if codec is None:
        raise _unsupported(codec_id)
    return codec.decompress(payload, limit, magic=magic)


def decompress_frame(frame: Payload, limit: int) -> bytes:
    """Return the content of a zstd frame of tiered storage; raises as decompress."""
    return bytes(_decompress_zstd(frame, limit))


def decompress_frame_into(frame: Payload, buffer: memoryview) -> int:
    """Decompress the zstd frame that a chunk of tiered storage is into a buffer; return how many bytes it has.

    Raises: as decompress, also if there is more than the buffer takes.  Cost: as decompress, without memory of its own.
    """
    start, end, _bound, content_size = _core.next_zstd_frame(frame, 0)
    if start == 0 and end == len(frame) and content_size == len(buffer):
        try:
            # With room for all that a whole frame has, zstd decompresses it in one step.
            return int(_contexts.zstd.stream_reader(frame).readinto(buffer))
        except _packages.zstd_error as error:
            raise _damaged("zstd", error) from error
    content = _decompress_zstd(frame, len(buffer))
    buffer[: len(content)] = content
    return len(content)


class FrameReader:
    """The content of a zstd frame in parts, for a chunk of tiered storage that is too large for decompress_frame.

    Args: read: returns the next bytes of the frame, at most as many as it is asked for, none at its end.
    Memory: the frame's window, at most 128 MiB; a part.  Threads: not safe; the GIL is released.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        import zstandard

        decompressor: Any = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
        self._reader = decompressor.stream_reader(_Source(read), read_size=_FRAME_READ_BYTES)

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes of the content, fewer at its end or where the frame is cut.

        Raises: DecompressionError, also for bytes after the frame that are no other one; as the source.
        """
        try:
            content: bytes = self._reader.read(size)
        except _packages.zstd_error as error:
            raise _damaged("zstd", error) from error
        return content


class _Source(NamedTuple):
    """A file to zstandard."""

    read: Callable[[int], bytes]


def _unsupported(codec_id: int) -> UnsupportedCompressionTypeError:
    return UnsupportedCompressionTypeError(
        f"unsupported compression type: expected 0 to {max(CompressionType):d}, found {codec_id}"
    )


def _damaged(codec: str, error: Exception | str) -> DecompressionError:
    reason = f"{codec} payload can't be decompressed ({error})"
    return DecompressionError(reason, reason=reason)


def _decompress_none(payload: Payload, limit: int, **_: int) -> Payload:
    if len(payload) > limit:
        raise _core.output_too_large("none", limit)
    return payload


def _decompress_gzip(payload: Payload, limit: int, **_: int) -> bytes:
    """Inflate a payload of one member, the usual case, with few calls; start again if it is anything else."""
    new_inflater, inflate_error = _packages.inflater
    if len(payload) > _GZIP_FLAGS_AT and payload[_GZIP_FLAGS_AT] <= _GZIP_MOST_FLAGS:
        inflater = new_inflater(wbits=31)
        try:
            content: bytes = inflater.decompress(payload, limit + 1)
        except inflate_error as error:
            raise _damaged("gzip", error) from error
        if len(content) > limit:
            raise _core.output_too_large("gzip", limit)
        if inflater.eof and not inflater.unused_data:
            return content
        del content, inflater
    return _decompress_gzip_members(memoryview(payload), limit)


def _starts_gzip_member(view: memoryview, at: int) -> bool:
    """Return whether a member is at a position; other bytes after a member are no content, as for GZIPInputStream.

    Raises: DecompressionError for a member with reserved flags.
    """
    if at and (len(view) - at < _GZIP_LEAST_MEMBER_BYTES or view[at : at + 3] != _GZIP_MAGIC):
        return False
    if (at or len(view) > _GZIP_FLAGS_AT) and view[at + _GZIP_FLAGS_AT] > _GZIP_MOST_FLAGS:
        raise _damaged("gzip", "reserved flags")
    return True


def _decompress_gzip_members(view: memoryview, limit: int) -> bytes:
    """Inflate every member. After the first, use small pieces, because the package copies the unused rest each time."""
    new_inflater, inflate_error = _packages.inflater
    parts: list[bytes] = []
    room, at, bite = limit + 1, 0, max(len(view), 1)
    empty_members = 0
    while _starts_gzip_member(view, at):
        inflater, room_before = new_inflater(wbits=31), room
        while not inflater.eof:
            piece = inflater.unconsumed_tail or view[at : at + bite]
            if not piece:
                raise _damaged("gzip", "truncated")
            if not inflater.unconsumed_tail:
                at += len(piece)
            try:
                parts.append(inflater.decompress(piece, room))
            except inflate_error as error:
                raise _damaged("gzip", error) from error
            room -= len(parts[-1])
            if room <= 0:
                raise _core.output_too_large("gzip", limit)
        at -= len(inflater.unused_data)
        bite = 1024
        empty_members = empty_members + 1 if room == room_before else 0
        if empty_members > _GZIP_MOST_EMPTY_MEMBERS:
            raise _damaged("gzip", f"more than {_GZIP_MOST_EMPTY_MEMBERS} empty members")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(payload: Payload, limit: int, **_: int) -> Payload:
    """Decompress xerial framing, or one raw block if there is no xerial header, as other clients write it."""
    return _core.decompress_blocks(payload, codec_id=CompressionType.SNAPPY, limit=limit, magic=2)


def _decompress_lz4(payload: Payload, limit: int, *, magic: int) -> Payload:
    return _core.decompress_blocks(payload, codec_id=CompressionType.LZ4, limit=limit, magic=magic)


def _decompress_zstd(payload: Payload, limit: int, **_: int) -> bytes | bytearray:
    """Decompress all frames; skippable ones have no content."""
    start, end, bound, content_size = _core.next_zstd_frame(payload, 0)
    if start == 0 and end == len(payload):
        return _decompress_zstd_frame(payload, bound=bound, content_size=content_size, room=limit, limit=limit)
    content, view = bytearray(), memoryview(payload)
    while start < end:
        room = limit - len(content)
        frame = view[start:end]
        content += _decompress_zstd_frame(frame, bound=bound, content_size=content_size, room=room, limit=limit)
        start, end, bound, content_size = _core.next_zstd_frame(payload, end)
    return content


def _decompress_zstd_frame(frame: Payload, *, bound: int, content_size: int, room: int, limit: int) -> bytes:
    """Decompress one frame, which has content; see next_zstd_frame. room: what is left of the limit."""
    if content_size > bound or content_size == 0:
        raise _damaged("zstd", f"declares {content_size} bytes where its blocks hold up to {bound}")
    if content_size > room:
        raise _core.output_too_large("zstd", limit)
    try:
        out: bytes = _contexts.zstd.decompress(frame, max_output_size=max(1, min(bound, room)), allow_extra_data=False)
    except _packages.zstd_error as error:
        if bound > room:
            raise _core.output_too_large("zstd", limit) from error
        raise _damaged("zstd", error) from error
    if len(out) > room:
        raise _core.output_too_large("zstd", limit)
    return out


class _Levels(NamedTuple):
    """Kafka's range of levels of a codec, and the default."""

    least: int
    most: int
    default: int


def level_of(codec: CompressionType, level: int | None) -> int:
    """Return the level to compress with: the codec's default for None, 0 for a codec without levels.

    Raises: ValueError if the level is outside Kafka's range (gzip 1 to 9, or -1 for the default; lz4 1 to 17; zstd
        -131072 to 22), or the codec has no levels.
    """
    levels = _CODECS[codec].levels
    if levels is None:
        if level is not None:
            raise ValueError(f"{codec.label} has no compression levels, got {level}")
        return 0
    if level is None or level == levels.default:
        return levels.default
    if not levels.least <= level <= levels.most:
        raise ValueError(f"{codec.label} level must be from {levels.least} to {levels.most}, got {level}")
    return level


def compress(codec_id: int, data: Payload, level: int | None = None, *, magic: int = MAGIC_V2) -> Payload:
    """Return the payload of one batch, compressed and framed as by Kafka's producer.

    Args: codec_id: 0 to 4, as in the batch attributes; level: as for level_of; magic: that of the batch.
    Raises: UnsupportedCompressionTypeError; ValueError for an invalid level.
    Threads: safe.  Cost: one pass; the codec libraries release the GIL.
    """
    codec = _CODECS.get(codec_id)
    if codec is None:
        raise _unsupported(codec_id)
    return codec.compress(data, level_of(CompressionType(codec_id), level), magic=magic)


def _compress_none(data: Payload, _level: int, **_: int) -> Payload:
    return data


def _compress_gzip(data: Payload, level: int, **_: int) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    trailer = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((GZIP_HEADER, deflater.compress(data), deflater.flush(), trailer))


def _compress_snappy(data: Payload, _level: int, **_: int) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for at in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def lz4_header(magic: int) -> bytes:
    """Return the header of an lz4 frame in a batch of this magic."""
    return LZ4_HEADER_OF_V0 if magic == MAGIC_V0 else LZ4_HEADER


def _compress_lz4(data: Payload, level: int, *, magic: int) -> bytes:
    """Compress block by block. As in Kafka, the default level selects the fast compressor, any other the high one."""
    import lz4.block

    options: dict[str, Any] = {"mode": "high_compression", "compression": level}
    if level == _LZ4_LEVELS.default:
        options = {"mode": "default"}
    view = memoryview(data)
    parts: list[Payload] = [lz4_header(magic)]
    for at in range(0, len(view), LZ4_BLOCK_BYTES):
        raw = view[at : at + LZ4_BLOCK_BYTES]
        block: Payload = lz4.block.compress(raw, store_size=False, **options)
        is_stored = len(block) >= len(raw)
        if is_stored:
            block = raw
        size = len(block) | (LZ4_STORED_BIT if is_stored else 0)
        parts += (size.to_bytes(4, "little"), block)
    parts.append(LZ4_END_MARK)
    return b"".join(parts)


def _compress_zstd(data: Payload, level: int, **_: int) -> bytes:
    out: bytes = _contexts.zstd_compressor(level).compress(data)
    return out


class _Codec(NamedTuple):
    """The functions and limits of a codec. payload_magic: the first bytes of a payload; levels: None without levels."""

    compress: Callable[..., Payload]
    decompress: Callable[..., Payload]
    payload_magic: bytes = b""
    levels: _Levels | None = None
    least_magic: int = MAGIC_V0


_GZIP_LEVELS = _Levels(least=1, most=9, default=-1)
_LZ4_LEVELS = _Levels(least=1, most=17, default=9)
_ZSTD_LEVELS = _Levels(least=-131072, most=22, default=3)
_CODECS: dict[int, _Codec] = {
    CompressionType.NONE: _Codec(_compress_none, _decompress_none),
    CompressionType.GZIP: _Codec(_compress_gzip, _decompress_gzip, _GZIP_MAGIC, _GZIP_LEVELS),
    CompressionType.SNAPPY: _Codec(_compress_snappy, _decompress_snappy, XERIAL_HEADER[:8]),
    CompressionType.LZ4: _Codec(_compress_lz4, _decompress_lz4, LZ4_HEADER[:4], _LZ4_LEVELS),
    CompressionType.ZSTD: _Codec(_compress_zstd, _decompress_zstd, _ZSTD_MAGIC, _ZSTD_LEVELS, least_magic=MAGIC_V2),
}
CODECS_WITH_LEVELS = tuple(codec for codec in CompressionType if _CODECS[codec].levels is not None)
_PAYLOAD_MAGICS = tuple(codec.payload_magic for codec in _CODECS.values() if codec.payload_magic)
PAYLOAD_MAGIC_BYTES = max(map(len, _PAYLOAD_MAGICS))


def is_compressed(payload: bytes) -> bool:
    """Whether bytes begin as the payload of a codec does; needs the first PAYLOAD_MAGIC_BYTES."""
    return payload.startswith(_PAYLOAD_MAGICS)
