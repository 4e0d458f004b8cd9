"""The codec packages alone: one call per payload of a segment, without framing, CRC or records."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import zstandard
from isal import isal_zlib

from bench.common import require_equal

BATCH_OVERHEAD = 61
LZ4_FRAME_OVERHEAD = 11
XERIAL_OVERHEAD = 20
ROOM_BYTES = 64 * 1024


def payloads(segment: memoryview) -> Iterator[memoryview]:
    """Yield the bytes after the header of each batch."""
    position = 0
    while position < len(segment):
        end = position + 12 + struct.unpack_from(">i", segment, position + 8)[0]
        yield segment[position + BATCH_OVERHEAD : end]
        position = end


def _block(payload: memoryview, overhead: int, size_format: str) -> memoryview:
    """Return the only block of a frame; the batches of the data are smaller than a block."""
    (size,) = struct.unpack_from(size_format, payload, overhead - 4)
    return payload[overhead : overhead + size]


def codec_calls(codec: str, segment: memoryview) -> Callable[[], int]:
    """Return a function that decompresses each payload with one call and returns the total decompressed size."""
    room = bytearray(ROOM_BYTES)
    one: Callable[[Any], int]
    if codec == "lz4":
        inputs = [_block(payload, LZ4_FRAME_OVERHEAD, "<I") for payload in payloads(segment)]

        def one(block: Any) -> int:
            return int(cramjam.lz4.decompress_block_into(block, room, ROOM_BYTES))
    elif codec == "snappy":
        inputs = [_block(payload, XERIAL_OVERHEAD, ">I") for payload in payloads(segment)]

        def one(block: Any) -> int:
            return int(cramjam.snappy.decompress_raw_into(block, room))
    elif codec == "zstd":
        inputs = list(payloads(segment))
        context = zstandard.ZstdDecompressor()

        def one(block: Any) -> int:
            return len(context.decompress(block, max_output_size=ROOM_BYTES))
    else:
        inputs = list(payloads(segment))

        def one(block: Any) -> int:
            return len(isal_zlib.decompress(block, 31))

    return lambda: sum(map(one, inputs))


def require_content(codec: str, calls: Callable[[], int], plain_segment: memoryview) -> None:
    """Check that the decompressed size equals the size of the uncompressed payloads."""
    require_equal(f"bytes of {codec} content", {"codec": calls(), "plain": sum(map(len, payloads(plain_segment)))})
