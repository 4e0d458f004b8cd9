"""Goal: every example of docs/format.md is true, byte by byte and line by line.

Method: read the fenced blocks out of the page, compare each line with what the reference codec makes of its bytes.
"""

from __future__ import annotations

import ast
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.making.batches import FIRST_TIMESTAMP_MS
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference import messages as reference_messages
from tests.reference.codec import CREATE_TIME, Cursor, Header, Record

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
BLOCKS = dict(re.findall(r"^```((?:hex|text) \S+)\n(.*?)^```$", PAGE, re.M | re.S))
HEADER_FIELDS = {
    "baseOffset": "base_offset",
    "batchLength": "batch_length",
    "partitionLeaderEpoch": "partition_leader_epoch",
    "magic": "magic",
    "crc": "crc",
    "attributes": "attributes",
    "lastOffsetDelta": "last_offset_delta",
    "baseTimestamp": "base_timestamp_ms",
    "maxTimestamp": "max_timestamp_ms",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "recordCount": "record_count",
}
FIRST = FIRST_TIMESTAMP_MS
TWO_RECORDS = [
    Record(42, FIRST, CREATE_TIME, b"k1", b"one", ((b"trace", b"\x01"), (b"empty", None))),
    Record(43, FIRST + 5, CREATE_TIME, None, b"two"),
]


INT_FORMATS = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}


class Line(NamedTuple):
    data: bytes
    field: str
    shown: str


def lines(name: str) -> list[Line]:
    """The lines of a hex block, those named ... joined to the one above."""
    out: list[Line] = []
    for text in BLOCKS[f"hex {name}"].splitlines():
        hex_part, field, *shown = re.split(r" {2,}", text, maxsplit=2)
        data = bytes.fromhex(hex_part)
        if field == "...":
            out[-1] = out[-1]._replace(data=out[-1].data + data)
        else:
            out.append(Line(data, field, *shown or [""]))
    return out


def data_of(name: str) -> bytes:
    return b"".join(line.data for line in lines(name))


def fields_of(name: str) -> dict[str, bytes]:
    return {line.field: line.data for line in lines(name)}


def bytes_shown(line: Line) -> bytes:
    """The bytes that a quoted value stands for."""
    value = ast.literal_eval("b" + line.shown)
    assert isinstance(value, bytes)
    return value


def varint_of(data: bytes, *, bits: int = 32) -> int:
    cursor = Cursor(data, at=0, end=len(data), batch_position=0)
    value = cursor.varint(bits)
    assert cursor.left() == 0
    return value


BATCHES: dict[str, tuple[bytes, list[Record]]] = {
    "batch": (reference.write_batch(TWO_RECORDS, partition_leader_epoch=3), TWO_RECORDS),
    "emptied": (reference.write_empty_batch(50, last_offset=57, max_timestamp_ms=FIRST + 20), []),
    "horizon": (
        reference.write_batch([Record(60, FIRST, CREATE_TIME, b"k", None)], delete_horizon_ms=FIRST + 86_400_000),
        [Record(60, FIRST, CREATE_TIME, b"k", None)],
    ),
    "control": (
        reference.write_end_transaction_marker(
            44, timestamp_ms=FIRST + 9, producer_id=1000, producer_epoch=2, commit=True, coordinator_epoch=7
        ),
        [Record(44, FIRST + 9, CREATE_TIME, b"\0\0\0\1", b"\0\0\0\0\0\7", is_control=True)],
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batch_example_is_what_the_codec_writes_and_reads(name: str) -> None:
    written, records = BATCHES[name]
    assert data_of(name) == written
    assert reference.read_records(data_of(name)) == records


def test_append_time_example_is_the_start_of_such_a_batch() -> None:
    whole = reference.write_batch(TWO_RECORDS, partition_leader_epoch=3, log_append_time_ms=FIRST + 100)
    assert data_of("append-time") == whole[:43]
    assert {record.timestamp_ms for record in reference.read_records(whole)} == {FIRST + 100}


@pytest.mark.parametrize("name", [*BATCHES, "append-time"])
def test_header_lines_show_the_fields_in_file_order(name: str) -> None:
    header_lines = lines(name)[: len(HEADER_FIELDS)]
    header = Header.unpack(data_of(name)[:61].ljust(61, b"\0"))
    assert [line.field for line in header_lines] == list(HEADER_FIELDS)[: len(header_lines)]
    for line in header_lines:
        assert int(line.shown, 0) == getattr(header, HEADER_FIELDS[line.field]), line


@pytest.mark.parametrize("name", [name for name in BATCHES if BATCHES[name][1]])
def test_record_lines_show_the_value_of_their_bytes(name: str) -> None:
    record_lines = lines(name)[len(HEADER_FIELDS) :]
    assert record_lines
    for line in record_lines:
        if line.shown.startswith('"'):
            assert bytes_shown(line) == line.data, line
        elif line.field == "attributes":
            assert line.data == bytes([int(line.shown)])
        else:
            assert varint_of(line.data, bits=64 if line.field == "timestampDelta" else 32) == int(line.shown), line


def test_header_table_gives_the_places_that_struct_computes() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", PAGE, re.M)
    places = dict(zip(HEADER_FIELDS, _header_places(), strict=True))
    assert {field: (int(at), int(size)) for at, size, field in rows} == places


def _header_places() -> list[tuple[int, int]]:
    codes = reference.HEADER.format[1:]
    sizes = [struct.calcsize(">" + code) for code in codes]
    return [(sum(sizes[:n]), size) for n, size in enumerate(sizes)]


MESSAGES = {
    "message-v0": packed_entry(b"one", b"k1", offset=42, magic=0),
    "message-v1": packed_entry(b"one", b"k1", offset=42, magic=1, timestamp_ms=FIRST),
    "wrapper-v0": write_wrapper(
        [packed_entry(value, None, offset=offset, magic=0) for offset, value in ((42, b"a"), (43, b"b"))],
        magic=0,
        codec=codecs.LZ4,
        offset=43,
    ),
    "wrapper-v1": write_wrapper(
        [
            packed_entry(value, None, offset=offset, magic=1, timestamp_ms=FIRST + 5 * offset)
            for offset, value in ((0, b"a"), (1, b"b"))
        ],
        magic=1,
        codec=codecs.SNAPPY,
        offset=43,
        timestamp_ms=FIRST + 5,
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_message_example_is_what_the_codec_writes_and_its_lines_are_true(name: str) -> None:
    assert data_of(name) == MESSAGES[name]
    for line in lines(name):
        if line.shown.startswith('"'):
            assert bytes_shown(line) == line.data, line
        elif line.field != "value":
            assert int.from_bytes(line.data, "big", signed=line.field != "crc") == int(line.shown, 0), line


@pytest.mark.parametrize("name", ["wrapper-v0", "wrapper-v1"])
def test_wrapper_example_holds_the_two_records_it_tells_of(name: str) -> None:
    records = reference_messages.read_message(data_of(name)).records
    assert [(record.offset, record.key, record.value) for record in records] == [(42, None, b"a"), (43, None, b"b")]


def test_crc_32_of_nine_digits_is_the_one_on_the_page() -> None:
    assert f"0x{zlib.crc32(b'123456789'):08x}" in PAGE


VARINT_ROWS = re.findall(r"^\| (-?\d+) \| (varint|varlong) \| `([0-9a-f ]+)` \|$", PAGE, re.M)


@pytest.mark.parametrize(
    ("value", "kind", "shown"), VARINT_ROWS, ids=[f"{kind} {value}" for value, kind, _ in VARINT_ROWS]
)
def test_varint_table_row_decodes_and_encodes(value: str, kind: str, shown: str) -> None:
    data = bytes.fromhex(shown)
    assert varint_of(data, bits=32 if kind == "varint" else 64) == int(value)
    assert reference.encode_varint(int(value)) == data


def test_varint_table_is_on_the_page() -> None:
    assert len(VARINT_ROWS) == 11


def test_crc_of_nine_digits_is_the_one_on_the_page() -> None:
    assert f"0x{reference.crc32c(b'123456789'):08x}" in PAGE


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD], ids=codecs.CODEC_NAMES[1:])
def test_compressed_example_holds_the_example_records(codec: int) -> None:
    payload = data_of(codecs.CODEC_NAMES[codec])
    records = data_of("records")
    assert codecs.decompress(codec, payload, limit=len(records)) == records
    header = Header(attributes=codec, last_offset_delta=1, record_count=2, base_timestamp_ms=FIRST)
    [batch] = reference.read_batches(reference.seal(header, payload))
    assert [(record.offset, record.key) for record in batch.records] == [(0, b"k"), (1, b"k")]


def test_framing_lines_show_the_value_of_their_bytes() -> None:
    snappy, lz4, gzip, zstd = (fields_of(name) for name in ("snappy", "lz4", "gzip", "zstd"))
    shown = {name: {line.field: line.shown for line in lines(name)} for name in ("snappy", "lz4", "gzip", "zstd")}
    assert snappy["magic"] == codecs.XERIAL_MAGIC == ast.literal_eval("b" + shown["snappy"]["magic"])
    assert int.from_bytes(snappy["blockLength"], "big") == int(shown["snappy"]["blockLength"]) == len(snappy["block"])
    assert int.from_bytes(lz4["magic"], "little") == int(shown["lz4"]["magic"], 0)
    assert int.from_bytes(lz4["blockLength"], "little") == int(shown["lz4"]["blockLength"]) == len(lz4["block"])
    assert lz4["HC"][0] == codecs.xxh32(lz4["FLG"] + lz4["BD"]) >> 8 & 0xFF
    assert int.from_bytes(gzip["isize"], "little") == int(shown["gzip"]["isize"]) == len(data_of("records"))
    assert int.from_bytes(gzip["crc32"], "little") == zlib.crc32(data_of("records"))
    assert int.from_bytes(zstd["magic"], "little") == int(shown["zstd"]["magic"], 0)
    block_header = int.from_bytes(zstd["blockHeader"], "little")
    assert (
        shown["zstd"]["blockHeader"] == f"last={block_header & 1} type={block_header >> 1 & 3} size={block_header >> 3}"
    )


@pytest.mark.parametrize(
    ("name", "read", "entries"),
    [
        ("index", reference.read_offset_index, [(11, 4200), (23, 8480)]),
        ("timeindex", reference.read_time_index, [(FIRST + 11, 11), (FIRST + 25, 20)]),
    ],
)
def test_index_example_reads_without_its_zero_slot(
    name: str, read: Callable[[bytes], list[tuple[int, int]]], entries: list[tuple[int, int]]
) -> None:
    assert read(data_of(name)) == entries
    for line in lines(name):
        assert struct.unpack(INT_FORMATS[len(line.data)], line.data) == (int(line.shown),), line


@pytest.mark.parametrize(
    ("name", "fields", "first"),
    [("offset-checkpoint", 3, ("flights", "0", "53000")), ("leader-epoch-checkpoint", 2, ("0", "0"))],
)
def test_checkpoint_example_reads(name: str, fields: int, first: tuple[str, ...]) -> None:
    text = BLOCKS[f"text {name}"]
    entries = reference.read_checkpoint(text, fields=fields)
    assert entries[0] == first
    assert reference.write_checkpoint(entries) == text


def test_every_example_is_checked_by_a_test_above() -> None:
    hex_names = {*MESSAGES, *BATCHES, "append-time", "records", *codecs.CODEC_NAMES[1:], "index", "timeindex"}
    text_names = {"offset-checkpoint", "leader-epoch-checkpoint"}
    assert set(BLOCKS) == {f"hex {name}" for name in hex_names} | {f"text {name}" for name in text_names}
