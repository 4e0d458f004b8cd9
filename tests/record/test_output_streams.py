"""Goal: a wrapper holds its message set in the framing that Kafka's own writers give it, written while it comes in.
Method: content around block ends, decompressed by the reference codecs; framing spelled out; bodies that raise."""

from __future__ import annotations

import io
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kstore.compression import CompressionType
from kstore.record import MessageWriter, write_entry
from tests.making.messages import decompressed, packed
from tests.reference import codecs as codecs

CODECS = (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)
BLOCK_BYTES = {CompressionType.GZIP: 16384, CompressionType.SNAPPY: 32768, CompressionType.LZ4: 65536}
codec_parameter = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
magic_parameter = pytest.mark.parametrize("magic", [0, 1], ids=["v0", "v1"])


def wrapper_payload(data: bytes, *, magic: int, offset: int, codec: CompressionType) -> bytes:
    """The value of the wrapper entry that data holds, every field around it checked."""
    start = 12 + (26 - 12 if magic == 0 else 34 - 12)
    payload = data[start:]
    timestamp_ms = 7 if magic else -1
    message = packed(payload, None, magic=magic, timestamp_ms=timestamp_ms, attributes=codec)
    assert data == struct.pack(">qi", offset, len(message)) + message
    return payload


def noise(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


@codec_parameter
@magic_parameter
@pytest.mark.parametrize("by", ["function", "stream", "buffer"])
def test_wrapper_holds_the_message_set(codec: CompressionType, magic: int, by: str) -> None:
    inner = io.BytesIO()
    for n in range(400):
        write_entry(inner, b"v" * n, offset=n, magic=magic, key=b"%d" % n)
    message_set = inner.getvalue()

    def write_set(output: Any) -> None:
        for n in range(400):
            write_entry(output, b"v" * n, offset=n, magic=magic, key=b"%d" % n)

    value = {"function": write_set, "stream": io.BytesIO(message_set), "buffer": message_set}[by]
    writer = MessageWriter(1000)
    size = writer.write_entry(value, offset=399, magic=magic, timestamp_ms=7 if magic else -1, compression=codec)
    assert size == writer.size
    payload = wrapper_payload(bytes(writer), magic=magic, offset=399, codec=codec)
    assert decompressed(payload, magic=magic, codec=codec) == message_set


@codec_parameter
@magic_parameter
@pytest.mark.parametrize("around", [0, 1, 2], ids=["no block", "one block", "two blocks"])
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("step", [1000, 1 << 20], ids=["in steps", "at once"])
def test_content_around_block_ends_is_kept(
    codec: CompressionType, magic: int, around: int, more: int, step: int
) -> None:
    content = noise(max(around * BLOCK_BYTES[codec] + more, 0))

    def write_content(output: Any) -> None:
        for at in range(0, len(content), step):
            output.write(content[at : at + step])

    writer = MessageWriter(4096)
    writer.write_entry(write_content, offset=0, magic=magic, timestamp_ms=7 if magic else -1, compression=codec)
    payload = wrapper_payload(bytes(writer), magic=magic, offset=0, codec=codec)
    assert decompressed(payload, magic=magic, codec=codec) == content


FRAMINGS = [
    (CompressionType.GZIP, 0, "1f8b08000000000000ff 0300 00000000 00000000"),
    (CompressionType.GZIP, 1, "1f8b08000000000000ff 0300 00000000 00000000"),
    (CompressionType.SNAPPY, 0, "82534e4150505900 00000001 00000001"),
    (CompressionType.SNAPPY, 1, "82534e4150505900 00000001 00000001"),
    (CompressionType.LZ4, 0, "04224d18 60 40 1a 00000000"),
    (CompressionType.LZ4, 1, "04224d18 60 40 82 00000000"),
]


@pytest.mark.parametrize(("codec", "magic", "expected"), FRAMINGS, ids=[f"{c.label} v{m}" for c, m, _ in FRAMINGS])
def test_empty_content_is_the_framing_alone(codec: CompressionType, magic: int, expected: str) -> None:
    writer = MessageWriter(4096)
    writer.write_message(b"", magic=magic, compression=codec)
    assert bytes(writer)[14 if magic == 0 else 22 :].hex() == bytes.fromhex(expected).hex()


def test_lz4_block_that_gains_nothing_is_stored() -> None:
    content = noise(70000)
    writer = MessageWriter(4096)
    writer.write_message(content, magic=1, compression=CompressionType.LZ4)
    frame = bytes(writer)[22:]
    assert frame[7:11] == struct.pack("<I", 65536 | 1 << 31)
    assert frame[11 : 11 + 65536] == content[:65536]


def test_snappy_blocks_hold_32_kib_each() -> None:
    writer = MessageWriter(4096)
    writer.write_message(bytes(32768 * 2 + 1), magic=0, compression=CompressionType.SNAPPY)
    payload, at, contents = bytes(writer)[14:], 16, []
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        contents.append(len(codecs.snappy_decompress_raw(payload[at + 4 : at + 4 + size], 1 << 20)))
        at += 4 + size
    assert contents == [32768, 32768, 1]


@codec_parameter
def test_wrapper_grows_while_its_content_is_written(codec: CompressionType) -> None:
    writer = MessageWriter(4096)
    sizes = []

    def write_content(output: Any) -> None:
        for n in range(20):
            output.write(noise(70000 + n))
            sizes.append(writer.size)

    writer.write_message(write_content, magic=1, compression=codec)
    assert min(after - before for before, after in pairwise(sizes)) > 60000


@codec_parameter
def test_content_that_raises_takes_the_wrapper_back(codec: CompressionType) -> None:
    writer = MessageWriter(64)
    writer.write(b"kept")
    kept: list[Any] = []

    def write_content(output: Any) -> None:
        kept.append(output)
        output.write(noise(100_000))
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        writer.write_entry(write_content, offset=0, magic=1, compression=codec)
    with pytest.raises(ValueError, match="the compressed stream has ended"):
        kept[0].write(b"late")
    kept[0].close()
    assert bytes(writer) == b"kept"


@codec_parameter
def test_output_of_a_wrapper_ends_with_its_function(codec: CompressionType) -> None:
    writer = MessageWriter(64)
    kept: list[Any] = []
    writer.write_message(kept.append, magic=1, compression=codec)
    before = bytes(writer)
    kept[0].close()
    with pytest.raises(ValueError, match="the compressed stream has ended"):
        kept[0].write(b"late")
    assert bytes(writer) == before


@codec_parameter
def test_wrapper_without_a_value_is_refused(codec: CompressionType) -> None:
    writer = MessageWriter(64)
    with pytest.raises(ValueError, match=f"value of a {codec.label} wrapper: expected a message set, found None"):
        writer.write_message(None, magic=1, compression=codec)
    assert writer.size == 0
