"""Goal: V0 and V1 messages are those that other clients build, and their readers take our wrappers.

Method: aiokafka and kafka-python build the same plain messages byte for byte; what a MessageWriter compressed, they
decompress. Where they ask for a package that is not installed, they get the reference codec in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from aiokafka.record import legacy_records as aiokafka_messages
from hypothesis import given
from hypothesis import strategies as st

from kstore.compression import CompressionType
from kstore.record import MemoryRecordsBuilder, MessageWriter, write_entry
from kstore.types import TimestampType
from tests.differential.rivals import RIVALS, stand_in_for_packages
from tests.making import strategies
from tests.making.messages import decompressed

from kafka.record import legacy_records as kafka_python_messages  # isort: skip

BUILDERS: dict[str, Callable[..., Any]] = {
    "aiokafka compiled": aiokafka_messages._LegacyRecordBatchBuilderCython,
    "aiokafka pure": aiokafka_messages._LegacyRecordBatchBuilderPy,
    "kafka-python": kafka_python_messages.LegacyRecordBatchBuilder,
}
CODECS = (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)
# aiokafka refuses lz4 in V0.
READS = [
    (name, magic, codec)
    for name in RIVALS
    for magic in (0, 1)
    for codec in CODECS
    if (magic, codec) != (0, CompressionType.LZ4) or name == "kafka-python"
]
reads = pytest.mark.parametrize(
    ("name", "magic", "codec"), READS, ids=[f"{name} v{magic} {codec.label}" for name, magic, codec in READS]
)
magics = pytest.mark.parametrize("magic", [0, 1], ids=["v0", "v1"])


class Message(NamedTuple):
    """A key, a value and, in V1, a timestamp."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


message_lists = st.lists(
    st.builds(Message, strategies.payloads, strategies.payloads, st.integers(0, 2**63 - 1)), min_size=1, max_size=6
)
MANY = [Message(b"key %d" % n, b"value" * n, 1_600_000_000_000 + n) for n in range(500)]


def stamp(message: Message, magic: int) -> int:
    return message.timestamp_ms if magic else -1


def write_set(output: Any, messages: list[Message], magic: int) -> None:
    for offset, message in enumerate(messages):
        stamp_ms = stamp(message, magic)
        write_entry(output, message.value, offset=offset, magic=magic, timestamp_ms=stamp_ms, key=message.key)


def build(name: str, messages: list[Message], *, magic: int, codec: int) -> bytes:
    builder = BUILDERS[name](magic, codec, 1 << 24)
    for offset, message in enumerate(messages):
        assert builder.append(offset, message.timestamp_ms, message.key, message.value) is not None
    return bytes(builder.build())


@pytest.fixture
def kafka_python_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_packages(monkeypatch)


@magics
@pytest.mark.parametrize("name", BUILDERS)
@given(messages=message_lists, segment_size=st.integers(1, 100))
def test_plain_messages_are_byte_identical(name: str, magic: int, messages: list[Message], segment_size: int) -> None:
    writer = MessageWriter(segment_size)
    for offset, message in enumerate(messages):
        stamp_ms = stamp(message, magic)
        writer.write_entry(message.value, offset=offset, magic=magic, timestamp_ms=stamp_ms, key=message.key)
    assert bytes(writer) == build(name, messages, magic=magic, codec=0)


@magics
@pytest.mark.parametrize("name", BUILDERS)
@given(messages=message_lists)
def test_builder_makes_the_rivals_plain_messages(name: str, magic: int, messages: list[Message]) -> None:
    builder = MemoryRecordsBuilder(magic=magic)
    for message in messages:
        builder.append(timestamp_ms=message.timestamp_ms, key=message.key, value=message.value)
    assert bytes(builder.build()) == build(name, messages, magic=magic, codec=0)


@magics
@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY], ids=lambda codec: codec.label)
def test_wrapper_holds_the_set_that_aiokafka_compresses(magic: int, codec: CompressionType) -> None:
    theirs = build("aiokafka pure", MANY, magic=magic, codec=codec)
    writer = MessageWriter(1000)
    writer.write_entry(
        lambda output: write_set(output, MANY, magic),
        offset=0,
        magic=magic,
        timestamp_ms=0 if magic else -1,
        compression=codec,
    )
    ours = bytes(writer)
    start = 26 + 8 * magic
    # Sizes and CRC depend on the compressed bytes.
    assert (ours[:8], ours[16 : start - 4]) == (theirs[:8], theirs[16 : start - 4])
    contents = [decompressed(data[start:], magic=magic, codec=codec) for data in (ours, theirs)]
    assert contents[0] == contents[1]


@reads
@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME], ids=lambda k: k.label)
@pytest.mark.parametrize("messages", [MANY[:1], MANY], ids=["one", "many"])
def test_rivals_read_our_wrappers(
    kafka_python_packages: None,
    name: str,
    magic: int,
    codec: CompressionType,
    kind: TimestampType,
    messages: list[Message],
) -> None:
    base_offset = 0 if magic == 0 else 1000
    writer = MessageWriter(1000)
    writer.write_entry(
        lambda output: write_set(output, messages, magic),
        offset=base_offset + len(messages) - 1,
        magic=magic,
        timestamp_ms=7 if magic else -1,
        timestamp_type=kind,
        compression=codec,
    )
    batch = RIVALS[name].memory_records(bytes(writer)).next_batch()
    assert batch.validate_crc()
    seen = [(record.offset, record.key, record.value) for record in batch]
    assert seen == [(base_offset + n, message.key, message.value) for n, message in enumerate(messages)]
    if magic:
        stamps = [7 if kind == TimestampType.LOG_APPEND_TIME else message.timestamp_ms for message in messages]
        assert [(record.timestamp, record.timestamp_type) for record in batch] == [(ms, kind) for ms in stamps]
