"""Goal: every row of the hostile tables is refused by the rule that it is about, not by another of the same class.

Method: the reason that the error gives, numbers included, is written out for each row, and has to be the same for
records, columns and, in magic 2, the survey that makes no records. A row may be wrong in one way only, so that it is
read once its rule is gone.
"""

from __future__ import annotations

import pytest

from tests.core import test_messages as core_messages
from tests.core import test_record_decode as core_records
from tests.hostile import test_input as hostile_input
from tests.hostile import test_messages as hostile_messages
from tests.hostile.test_input import LIMIT
from tests.making import batches as builders
from tests.making.collecting import over
from tests.reference import codec as reference
from tests.reference.codec import Header, encode_varint
from tests.reference.verdicts import column_reason, core_batch_reason, survey_reason

# Each row must be decided at once; this only ends a hang.
pytestmark = pytest.mark.timeout(120)


def deltas(pair: tuple[int, int]) -> bytes:
    bodies = (core_records.body(OFFSET=encode_varint(delta).hex()) for delta in pair)
    return reference.seal(Header(last_offset_delta=1, record_count=2), b"".join(map(core_records.sized, bodies)))


def rows() -> dict[str, bytes]:
    """The bytes of every row by a name that is its alone."""
    two = reference.seal(Header(last_offset_delta=1, record_count=2), core_records.TWO)
    tables = {
        "batch": {name: data for name, (data, _) in hostile_input.FRAMES.items()},
        "payload": {
            name: hostile_input.compressed(codec, make()) for name, (codec, make) in hostile_input.SMALL.items()
        },
        "record": {
            name: reference.seal(Header(record_count=1), records) for name, records in core_records.BAD_RECORDS.items()
        },
        "header": {name: builders.with_fields(two, fields) for name, (fields, _) in core_records.BAD_HEADERS.items()},
        "deltas": {name: deltas(pair) for name, pair in core_records.BAD_DELTAS.items()},
        "message": {name: hostile_messages.data_of(row) for name, (row, _) in hostile_messages.ROWS.items()},
        "entry": {name: data for name, (data, _) in core_messages.REFUSED.items()},
    }
    return {f"{table}: {name}": data for table, named in tables.items() for name, data in named.items()}


# By row: the rule, and its numbers.
REASONS: dict[str, tuple[str, str]] = {
    "batch: T1 size -1": ("batch smaller than its header", "expected at least 61 bytes, found 11"),
    "batch: T2 size 0": ("batch smaller than its header", "expected at least 61 bytes, found 12"),
    "batch: T3 size 48": ("batch smaller than its header", "expected at least 61 bytes, found 60"),
    "batch: T4 size 2^31-1": ("batch larger than the limit", "expected at most 104857600 bytes, found 2147483659"),
    "batch: T5 size past the end": ("batch runs past the end", "expected 70 bytes, found 69"),
    "batch: T6 magic -1": ("unsupported magic", "expected 0 to 2, found -1"),
    "batch: T6 magic 3": ("unsupported magic", "expected 0 to 2, found 3"),
    "batch: T6 magic 127": ("unsupported magic", "expected 0 to 2, found 127"),
    "batch: T6 magic 0 with a body of magic 2": ("unsupported magic", "expected 2, found 0"),
    "batch: T6 magic 1 with a body of magic 2": ("unsupported magic", "expected 2, found 1"),
    "batch: T7 count 2^31-1": ("record count does not fit", "expected from 0 to 1, found 2147483647"),
    "batch: T7 count -1": ("record count does not fit", "expected from 0 to 1, found -1"),
    "batch: T7 count 0 with bytes": ("bytes left after the last record", "expected 0, found 9"),
    "batch: T7 count n+1": ("record count does not fit", "expected from 0 to 1, found 2"),
    "batch: T7 count n-1": ("bytes left after the last record", "expected 0, found 9"),
    "batch: T8 last offset delta -1": ("last offset delta does not fit", "expected at least 0, found -1"),
    "batch: T8 last offset delta below count-1": ("record count does not fit", "expected from 0 to 1, found 2"),
    "batch: T8 base offset 2^63-1": (
        "base offset out of range",
        "expected at most 9223372036854775806, found 9223372036854775807",
    ),
    "batch: T8 last offset 2^63": (
        "base offset out of range",
        "expected at most 9223372034707292159, found 9223372036854775799",
    ),
    "batch: T9 base offset with its sign flipped": (
        "base offset out of range",
        "expected at least 0, found -9223372036854775808",
    ),
    "batch: T10 wrong CRC": ("CRC mismatch", "stored 0x00000001, computed 0x461639eb"),
    "batch: T10 codec 5": ("unsupported compression type", "expected 0 to 4, found 5"),
    "batch: T10 codec 6": ("unsupported compression type", "expected 0 to 4, found 6"),
    "batch: T10 codec 7": ("unsupported compression type", "expected 0 to 4, found 7"),
    "batch: T11 record length -1": ("record size does not fit", "expected from 1 to 8 bytes, found -1"),
    "batch: T11 record length 0": ("record size does not fit", "expected from 1 to 8 bytes, found 0"),
    "batch: T11 record length past the end": ("record size does not fit", "expected from 1 to 8 bytes, found 9"),
    "batch: T11 record length 2^31-1": ("record size does not fit", "expected from 1 to 8 bytes, found 2147483647"),
    "batch: T11 varint of six bytes": ("varint truncated or too long", "14 bytes left"),
    "batch: T11 varlong of eleven bytes": ("varint truncated or too long", "17 bytes left"),
    "batch: T12 key length -2": ("key size does not fit", "expected from -1 to 3 bytes, found -2"),
    "batch: T12 key length 2^31-1": ("key size does not fit", "expected from -1 to 4 bytes, found 2147483647"),
    "batch: T12 value length -2": ("value size does not fit", "expected from -1 to 2 bytes, found -2"),
    "batch: T12 value length 2^31-1": ("value size does not fit", "expected from -1 to 2 bytes, found 2147483647"),
    "batch: T12 value one past the record": ("value size does not fit", "expected from -1 to 1 bytes, found 2"),
    "batch: T12 header count 2^31-1": ("header count does not fit", "expected from 0 to 0, found 2147483647"),
    "batch: T12 header count -1": ("header count does not fit", "expected from 0 to 0, found -1"),
    "batch: T12 header value length -2": ("header value size does not fit", "expected from -1 to 0 bytes, found -2"),
    "batch: T12 header value one past the record": (
        "header value size does not fit",
        "expected from -1 to 0 bytes, found 1",
    ),
    "batch: T12 header key one past the record": (
        "header key size does not fit",
        "expected from 0 to 1 bytes, found 2",
    ),
    "batch: T12 header key length -1": ("header key size does not fit", "expected from 0 to 1 bytes, found -1"),
    "batch: T13 record longer than its fields": ("record size does not match its fields", "expected 0 bytes, found 1"),
    "batch: T13 record shorter than its fields": ("varint truncated or too long", "0 bytes left"),
    "batch: T13 bytes after the last record": ("bytes left after the last record", "expected 0, found 1"),
    "payload: T19 zstd content size 2^40": (
        "zstd payload can't be decompressed (declares 1099511627776 bytes where its blocks hold up to 9)",
        "",
    ),
    "payload: T19 zstd content size too small": ("zstd payload can't be decompressed", ""),
    "payload: T19 zstd content size 0 with content": (
        "zstd payload can't be decompressed (declares 0 bytes where its blocks hold up to 9)",
        "",
    ),
    "payload: T19 zstd window of 2^31 and more": ("zstd payload can't be decompressed", ""),
    "payload: T19 zstd largest window": ("zstd payload can't be decompressed", ""),
    "payload: T19 zstd dictionary": ("zstd frame", "reserved bit or dictionary in descriptor 0x21"),
    "payload: T19 zstd reserved bit": ("zstd frame", "reserved bit or dictionary in descriptor 0x28"),
    "payload: T19 zstd reserved block type": (
        "zstd frame",
        "block of a reserved type, too large, or exceeding the frame",
    ),
    "payload: T19 zstd without its last block": ("zstd frame", "truncated before its last block"),
    "payload: T19 zstd wrong checksum": ("zstd payload can't be decompressed", ""),
    "payload: T19 zstd wrong checksum of no content": ("zstd frame", "wrong content checksum"),
    "payload: T19 zstd no bytes": ("zstd frame", "bad magic or shorter than its header"),
    "payload: T19 zstd garbage after the frame": ("zstd frame", "bad magic or shorter than its header"),
    "payload: T19 zstd zeros after the frame": ("zstd frame", "bad magic or shorter than its header"),
    "payload: T19 zstd skippable frame cut off": ("zstd skippable frame", "truncated"),
    "payload: T19 zstd header of a skippable frame cut off": ("zstd frame", "bad magic or shorter than its header"),
    "payload: T19 zstd second frame cut off": ("zstd frame", "truncated before its last block"),
    "payload: T19 zstd second frame cut off in its checksum": ("zstd frame", "truncated in its checksum"),
    "payload: T19 zstd wrong checksum of a second frame of no content": ("zstd frame", "wrong content checksum"),
    "payload: T19 zstd second frame of no content with a window of 2^31": ("zstd frame", "window too large"),
    "payload: T19 zstd second frame that declares content and has none": (
        "zstd frame",
        "declares content where its blocks have none",
    ),
    "payload: T19 zstd frames beyond the limit together": (
        "zstd payload decompresses to more than max_decompressed_bytes",
        "",
    ),
    "payload: T20 lz4 block above the maximum": (
        "lz4 frame",
        "block exceeds its limit or the frame, or is a stored block of 0 bytes",
    ),
    "payload: T20 lz4 block length 2^31-1": (
        "lz4 frame",
        "block exceeds its limit or the frame, or is a stored block of 0 bytes",
    ),
    "payload: T20 lz4 wrong header checksum": ("lz4 frame", "wrong header checksum"),
    "payload: T20 lz4 header checksum of magic 0": ("lz4 frame", "wrong header checksum"),
    "payload: T20 lz4 content size too small": ("lz4 frame", "wrong content size"),
    "payload: T20 lz4 content size 2^63": ("lz4 payload decompresses to more than max_decompressed_bytes", ""),
    "payload: T20 lz4 dependent blocks": ("lz4 frame", "unsupported descriptor"),
    "payload: T20 lz4 dictionary": ("lz4 frame", "unsupported descriptor"),
    "payload: T20 lz4 version 2": ("lz4 frame", "unsupported descriptor"),
    "payload: T20 lz4 reserved flag": ("lz4 frame", "unsupported descriptor"),
    "payload: T20 lz4 reserved descriptor bits": ("lz4 frame", "unsupported descriptor"),
    "payload: T20 lz4 block maximum below 64 KiB": ("lz4 frame", "unsupported descriptor"),
    "payload: T20 lz4 wrong block checksum": ("lz4 frame", "wrong block checksum"),
    "payload: T20 lz4 wrong content checksum": ("lz4 frame", "wrong content checksum"),
    "payload: T20 lz4 without its end mark": ("lz4 frame", "truncated before its end mark or in its content checksum"),
    "payload: T20 lz4 stored block of no bytes, which Kafka takes for the end mark": (
        "lz4 frame",
        "block exceeds its limit or the frame, or is a stored block of 0 bytes",
    ),
    "payload: T20 lz4 content checksum cut off": (
        "lz4 frame",
        "truncated before its end mark or in its content checksum",
    ),
    "payload: T20 lz4 wrong content checksum before other bytes": ("lz4 frame", "wrong content checksum"),
    "payload: T20 lz4 skippable frame": ("lz4 frame", "bad magic or shorter than its header"),
    "payload: T20 lz4 legacy frame": ("lz4 frame", "bad magic or shorter than its header"),
    "payload: T20 lz4 copy from before the block": (
        "lz4 block",
        "the last five bytes are not literals, or the last copy starts or ends too late",
    ),
    "payload: T20 lz4 no bytes": ("lz4 frame", "bad magic or shorter than its header"),
    "payload: T21 snappy block length 2^31-1": ("snappy stream", "empty block, or block that exceeds the stream"),
    "payload: T21 snappy block length -1": ("snappy stream", "empty block, or block that exceeds the stream"),
    "payload: T21 snappy declares 2^32-1 in six bytes": (
        "snappy block",
        "declared size exceeds what its bytes can encode",
    ),
    "payload: T21 snappy declares more than its bytes can hold": (
        "snappy block",
        "declared size exceeds what its bytes can encode",
    ),
    "payload: T21 snappy length of six bytes": (
        "snappy block",
        "declared size truncated, or longer than 5 bytes or 32 bits",
    ),
    "payload: T21 snappy version 0 in a later header": (
        "snappy stream",
        "later header truncated, or its version is below 1",
    ),
    "payload: T21 snappy block of no bytes": ("snappy stream", "empty block, or block that exceeds the stream"),
    "payload: T21 snappy later header cut off": (
        "snappy stream",
        "later header truncated, or its version is below 1",
    ),
    "payload: T21 snappy block cut off": ("snappy stream", "empty block, or block that exceeds the stream"),
    "payload: T21 snappy copy from before the start": (
        "snappy block",
        "copy with offset 0 or from before the start of the content",
    ),
    "payload: T21 snappy copy of distance 0": (
        "snappy block",
        "copy with offset 0 or from before the start of the content",
    ),
    "payload: T21 snappy more content than declared": ("snappy block", "content exceeds the available space"),
    "payload: T21 snappy no bytes": ("snappy stream", "empty"),
    "payload: T22 gzip reserved flags": ("gzip payload can't be decompressed (reserved flags)", ""),
    "payload: T22 gzip name without an end": ("gzip payload can't be decompressed (truncated)", ""),
    "payload: T22 gzip extra field cut off": ("gzip payload can't be decompressed (truncated)", ""),
    "payload: T22 gzip wrong content CRC": ("gzip payload can't be decompressed", ""),
    "payload: T22 gzip wrong content size": ("gzip payload can't be decompressed", ""),
    "payload: T22 gzip cut off": ("gzip payload can't be decompressed (truncated)", ""),
    "payload: T22 gzip members beyond the limit": ("gzip payload decompresses to more than max_decompressed_bytes", ""),
    "payload: T22 a hundred thousand empty gzip members": (
        "gzip payload can't be decompressed (more than 1000 empty members)",
        "",
    ),
    "payload: T22 1,001 empty gzip members": ("gzip payload can't be decompressed (more than 1000 empty members)", ""),
    "payload: T22 zlib stream in place of gzip": ("gzip payload can't be decompressed", ""),
    "payload: T22 gzip reserved flag in the second member": ("gzip payload can't be decompressed (reserved flags)", ""),
    "payload: T22 gzip wrong header checksum": ("gzip payload can't be decompressed", ""),
    "payload: T22 gzip no bytes": ("gzip payload can't be decompressed (truncated)", ""),
    "record: length -1": ("record size does not fit", "expected from 1 to 12 bytes, found -1"),
    "record: length 0": ("record size does not fit", "expected from 1 to 12 bytes, found 0"),
    "record: length one too large": ("record size does not fit", "expected from 1 to 12 bytes, found 13"),
    "record: length one too small": ("header value size does not fit", "expected from -1 to 0 bytes, found 1"),
    "record: length 2^31-1": ("record size does not fit", "expected from 1 to 12 bytes, found 2147483647"),
    "record: length -2^31": ("record size does not fit", "expected from 1 to 12 bytes, found -2147483648"),
    "record: length of six bytes": ("varint truncated or too long", "18 bytes left"),
    "record: four bytes of a length": ("record count does not fit", "expected from 0 to 0, found 1"),
    "record: timestamp delta of eleven bytes": ("varint truncated or too long", "21 bytes left"),
    "record: timestamp delta cut off by the end of the record": ("varint truncated or too long", "7 bytes left"),
    "record: offset delta of six bytes": ("varint truncated or too long", "15 bytes left"),
    "record: offset delta -1": ("offset delta out of order", "expected from 0 to the last offset delta, found -1"),
    "record: offset delta above the last": (
        "offset delta out of order",
        "expected from 0 to the last offset delta, found 1",
    ),
    "record: offset delta 2^31-1": (
        "offset delta out of order",
        "expected from 0 to the last offset delta, found 2147483647",
    ),
    "record: key length -2": ("key size does not fit", "expected from -1 to 8 bytes, found -2"),
    "record: key length -2^31": ("key size does not fit", "expected from -1 to 8 bytes, found -2147483648"),
    "record: key length 2^31-1": ("key size does not fit", "expected from -1 to 8 bytes, found 2147483647"),
    "record: key length one past the record": ("key size does not fit", "expected from -1 to 8 bytes, found 9"),
    "record: key length swallows the value": ("value size does not fit", "expected from -1 to 5 bytes, found 59"),
    "record: value length -2": ("value size does not fit", "expected from -1 to 6 bytes, found -2"),
    "record: value length -2^31": ("value size does not fit", "expected from -1 to 6 bytes, found -2147483648"),
    "record: value length 2^31-1": ("value size does not fit", "expected from -1 to 6 bytes, found 2147483647"),
    "record: value length one past the record": ("value size does not fit", "expected from -1 to 4 bytes, found 5"),
    "record: header count -1": ("header count does not fit", "expected from 0 to 0, found -1"),
    "record: header count 2^31-1": ("header count does not fit", "expected from 0 to 2, found 2147483647"),
    "record: header count -2^31": ("header count does not fit", "expected from 0 to 0, found -2147483648"),
    "record: header count 2 for one header": ("varint truncated or too long", "0 bytes left"),
    "record: header count 0 for one header": ("record size does not match its fields", "expected 0 bytes, found 4"),
    "record: header count missing": ("varint truncated or too long", "0 bytes left"),
    "record: header key length -1": ("header key size does not fit", "expected from 0 to 2 bytes, found -1"),
    "record: header key length -2^31": (
        "header key size does not fit",
        "expected from 0 to 2 bytes, found -2147483648",
    ),
    "record: header key length past the record": (
        "header key size does not fit",
        "expected from 0 to 3 bytes, found 4",
    ),
    "record: header key length 2^31-1": (
        "header key size does not fit",
        "expected from 0 to 2 bytes, found 2147483647",
    ),
    "record: header value length -2": ("header value size does not fit", "expected from -1 to 0 bytes, found -2"),
    "record: header value length past the record": (
        "header value size does not fit",
        "expected from -1 to 1 bytes, found 2",
    ),
    "record: header value length 2^31-1": (
        "header value size does not fit",
        "expected from -1 to 0 bytes, found 2147483647",
    ),
    "record: header value missing": ("varint truncated or too long", "0 bytes left"),
    "record: bytes left in the record": ("record size does not match its fields", "expected 0 bytes, found 1"),
    "record: attributes alone": ("varint truncated or too long", "0 bytes left"),
    "record: bytes left after the record": ("bytes left after the last record", "expected 0, found 1"),
    "record: a whole record too many": ("bytes left after the last record", "expected 0, found 13"),
    "record: no record at all": ("record count does not fit", "expected from 0 to 0, found 1"),
    "record: fewer bytes than the smallest record": ("record count does not fit", "expected from 0 to 0, found 1"),
    "header: count -1": ("record count does not fit", "expected from 0 to 2, found -1"),
    "header: count -2^31": ("record count does not fit", "expected from 0 to 2, found -2147483648"),
    "header: count 0 with bytes": ("bytes left after the last record", "expected 0, found 26"),
    "header: count one less": ("bytes left after the last record", "expected 0, found 13"),
    "header: count one more": ("varint truncated or too long", "0 bytes left"),
    "header: count 2^31-1": ("record count does not fit", "expected from 0 to 3, found 2147483647"),
    "header: last offset delta below count - 1": ("record count does not fit", "expected from 0 to 1, found 2"),
    "header: last offset delta -1": ("last offset delta does not fit", "expected at least 0, found -1"),
    "header: last offset delta -2^31": ("last offset delta does not fit", "expected at least 0, found -2147483648"),
    "header: base offset -1": ("base offset out of range", "expected at least 0, found -1"),
    "header: base offset 2^63-1": (
        "base offset out of range",
        "expected at most 9223372036854775805, found 9223372036854775807",
    ),
    "header: last offset 2^63-1": (
        "base offset out of range",
        "expected at most 9223372036854775805, found 9223372036854775806",
    ),
    "header: codec 5": ("unsupported compression type", "expected 0 to 4, found 5"),
    "header: codec 6": ("unsupported compression type", "expected 0 to 4, found 6"),
    "header: codec 7": ("unsupported compression type", "expected 0 to 4, found 7"),
    "header: codec gzip on plain bytes": ("gzip payload can't be decompressed", ""),
    "header: codec snappy on plain bytes": ("snappy block", "content exceeds the available space"),
    "header: codec lz4 on plain bytes": ("lz4 frame", "bad magic or shorter than its header"),
    "header: codec zstd on plain bytes": ("zstd frame", "bad magic or shorter than its header"),
    "deltas: equal": ("offset delta out of order", "expected from 1 to the last offset delta, found 0"),
    "deltas: falling": ("offset delta out of order", "expected from 2 to the last offset delta, found 0"),
    "deltas: above the last": ("offset delta out of order", "expected from 1 to the last offset delta, found 2"),
    "deltas: first negative": ("offset delta out of order", "expected from 0 to the last offset delta, found -1"),
    "message: T1 size -1": ("batch smaller than its header", "expected at least 34 bytes, found 11"),
    "message: T2 size 0": ("batch smaller than its header", "expected at least 34 bytes, found 12"),
    "message: T3 size one below a V1 message": (
        "batch smaller than its header",
        "expected at least 34 bytes, found 33",
    ),
    "message: T3 size one below a V0 message": (
        "batch smaller than its header",
        "expected at least 26 bytes, found 25",
    ),
    "message: T4 size 2^31-1": ("batch larger than the limit", "expected at most 104857600 bytes, found 2147483659"),
    "message: T5 size past the end": ("batch runs past the end", "expected 36 bytes, found 35"),
    "message: T6 magic 3": ("unsupported magic", "expected 0 to 2, found 3"),
    "message: T6 magic -1": ("unsupported magic", "expected 0 to 2, found -1"),
    "message: T7 empty wrapper": ("compressed message without inner messages", "expected at least 1 message, found 0"),
    "message: T7 wrapper around less than a message": (
        "compressed message without inner messages",
        "expected at least 1 message, found 0",
    ),
    "message: T7 null wrapper": ("compressed message without a value", "expected compressed messages, found null"),
    "message: T8 offset -1": ("base offset out of range", "expected at least 0, found -1"),
    "message: T8 offset 2^63-1": (
        "base offset out of range",
        "expected at most 9223372036854775806, found 9223372036854775807",
    ),
    "message: T8 wrapper offset below its last message's": (
        "offset of a compressed message too small",
        "expected at least 2, found 1",
    ),
    "message: T8 wrapper offset 2^63-1": (
        "base offset out of range",
        "expected at most 9223372036854775806, found 9223372036854775807",
    ),
    "message: T8 V0 inner offset -2^63": (
        "inner offset out of order",
        "expected from 2 to that of the compressed message, found -9223372036854775808",
    ),
    "message: T8 V0 inner offset above the wrapper's": (
        "inner offset out of order",
        "expected from 9 to that of the compressed message, found 9",
    ),
    "message: T9 inner offset repeated": (
        "inner offset out of order",
        "expected from 6 to that of the compressed message, found 5",
    ),
    "message: T9 inner offsets backwards": (
        "inner offset out of order",
        "expected from 0 to that of the compressed message, found 7",
    ),
    "message: T10 codec zstd": ("compression type not allowed in magic 0 and 1", "expected 0 to 3, found 4 (zstd)"),
    "message: T10 codec 5": ("unsupported compression type", "expected 0 to 4, found 5"),
    "message: T10 codec 7": ("unsupported compression type", "expected 0 to 4, found 7"),
    "message: T10 wrong CRC": ("CRC mismatch", "stored 0x00000001, computed 0x7fdc1dec"),
    "message: T10 wrong CRC of an inner message": ("CRC mismatch", "stored 0x00000001, computed 0x7fdc1dec"),
    "message: T12 key length -2": ("key size does not fit", "expected from -1 to 2 bytes, found -2"),
    "message: T12 key length 2^31-1": ("key size does not fit", "expected from -1 to 2 bytes, found 2147483647"),
    "message: T12 key length that leaves 3 bytes for the value's": (
        "key size does not fit",
        "expected from -1 to 2 bytes, found 3",
    ),
    "message: T12 value length -2": ("value size does not fit", "expected from -1 to 1 bytes, found -2"),
    "message: T12 value length 2^31-1": ("value size does not fit", "expected from -1 to 1 bytes, found 2147483647"),
    "message: T12 value one past the message": ("value size does not fit", "expected from -1 to 1 bytes, found 2"),
    "message: T12 inner key length 2^31-1": ("key size does not fit", "expected from -1 to 2 bytes, found 2147483647"),
    "message: T13 message longer than its fields": (
        "record size does not match its fields",
        "expected 0 bytes, found 1",
    ),
    "message: T13 value null but bytes left": ("record size does not match its fields", "expected 0 bytes, found 1"),
    "message: T13 inner size -1": ("inner message smaller than its header", "expected at least 26 bytes, found 11"),
    "message: T13 inner size 2^31-1 behind a sound message": (
        "inner message larger than a payload may be",
        "expected at most 2097152 bytes, found 2147483659",
    ),
    "message: T13 inner size one above the limit": (
        "inner message larger than a payload may be",
        "expected at most 2097152 bytes, found 2097153",
    ),
    "message: T13 inner size 13": ("inner message smaller than its header", "expected at least 26 bytes, found 25"),
    "message: T13 inner V1 message of a V0 message's size": (
        "inner message smaller than its header",
        "expected at least 34 bytes, found 26",
    ),
    "message: T13 inner magic -1": ("inner message with a wrong magic", "expected 0 or 1, found -1"),
    "message: T13 inner magic 2": ("inner message with a wrong magic", "expected 0 or 1, found 2"),
    "message: T23 wrapper in a wrapper": (
        "compressed message inside a compressed message",
        "expected compression type 0, found 1",
    ),
    "message: T23 a hundred wrappers": (
        "compressed message inside a compressed message",
        "expected compression type 0, found 1",
    ),
    "entry: wrong CRC": ("CRC mismatch", "stored 0x8b1add9c, computed 0xe81cb145"),
    "entry: size 13": ("batch smaller than its header", "expected at least 34 bytes, found 25"),
    "entry: V1 of size 14": ("batch smaller than its header", "expected at least 34 bytes, found 26"),
    "entry: V1 of size 21": ("batch smaller than its header", "expected at least 34 bytes, found 33"),
    "entry: negative size": ("batch smaller than its header", "expected at least 34 bytes, found 11"),
    "entry: negative offset": ("base offset out of range", "expected at least 0, found -1"),
    "entry: V1 key size -2": ("key size does not fit", "expected from -1 to 8 bytes, found -2"),
    "entry: V1 key size beyond": ("key size does not fit", "expected from -1 to 8 bytes, found 9"),
    "entry: V0 key size 2^31 - 1": ("key size does not fit", "expected from -1 to 8 bytes, found 2147483647"),
    "entry: V1 value size -2": ("value size does not fit", "expected from -1 to 5 bytes, found -2"),
    "entry: V1 value size beyond": ("value size does not fit", "expected from -1 to 5 bytes, found 6"),
    "entry: V1 value size short of the end": ("record size does not match its fields", "expected 0 bytes, found 1"),
    "entry: V1 null value with bytes behind": ("record size does not match its fields", "expected 0 bytes, found 5"),
    "entry: zstd": ("compression type not allowed in magic 0 and 1", "expected 0 to 3, found 4 (zstd)"),
    "entry: zstd in V0": ("compression type not allowed in magic 0 and 1", "expected 0 to 3, found 4 (zstd)"),
    "entry: codec 5": ("unsupported compression type", "expected 0 to 4, found 5"),
    "entry: wrapper without a value": (
        "compressed message without a value",
        "expected compressed messages, found null",
    ),
    "entry: wrapper of no bytes": ("gzip payload can't be decompressed (truncated)", ""),
    "entry: wrapper of no messages": (
        "compressed message without inner messages",
        "expected at least 1 message, found 0",
    ),
    "entry: wrapper of half a message": (
        "compressed message without inner messages",
        "expected at least 1 message, found 0",
    ),
    "entry: wrapper of garbage": ("gzip payload can't be decompressed", ""),
    "entry: wrapper inside a wrapper": (
        "compressed message inside a compressed message",
        "expected compression type 0, found 1",
    ),
    "entry: inner size 13": ("inner message smaller than its header", "expected at least 26 bytes, found 25"),
    "entry: inner V1 of size 21": ("inner message smaller than its header", "expected at least 34 bytes, found 33"),
    "entry: inner negative size": ("inner message smaller than its header", "expected at least 26 bytes, found 11"),
    "entry: inner magic 2": ("inner message with a wrong magic", "expected 0 or 1, found 2"),
    "entry: inner wrong CRC": ("CRC mismatch", "stored 0x58435243, computed 0x2b50d5fc"),
    "entry: wrapper offset below the last inner one": (
        "offset of a compressed message too small",
        "expected at least 6, found 5",
    ),
    "entry: V0 inner offset above the wrapper's": (
        "inner offset out of order",
        "expected from 5 to that of the compressed message, found 6",
    ),
    "entry: inner offsets equal": (
        "inner offset out of order",
        "expected from 6 to that of the compressed message, found 5",
    ),
    "entry: inner offsets fall": (
        "inner offset out of order",
        "expected from 6 to that of the compressed message, found 4",
    ),
    "entry: inner offset below 0": (
        "base offset not above the last offset before it",
        "expected more than -1, found -4",
    ),
}


def test_every_row_has_its_reason() -> None:
    assert list(REASONS) == list(rows())


@over("name, data", list(rows().items()), by=lambda _: "rows", label=lambda case: case[0])
def test_row_is_refused_for_the_reason_it_is_about(name: str, data: bytes) -> None:
    reasons = [core_batch_reason(data, limit=LIMIT), column_reason(data, limit=LIMIT)]
    if data[16:17] == b"\2":
        reasons.append(survey_reason(data, limit=LIMIT))
    for reason in reasons:
        rule, _, numbers = reason.partition(": ")
        assert (rule, numbers) == REASONS[name]
