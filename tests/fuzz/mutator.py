"""A structure-aware mutator of magic 2 batches: it knows the fields, breaks a few, and may repair size and CRC.

Every case is a pure function of its seed, so a number is enough to have it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import crc32c

from tests.making import batches as builders
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import HEADER_BYTES, Header, encode_varint

INTERESTING = (0, 1, -1, 2, -2, 6, 7, 63, 64, -65, 127, 128, 8191, 8192, 2**15, 2**31 - 1, -(2**31))
INTERESTING_64 = (*INTERESTING, 2**31, 2**53, (2**63 - 1) // 1000, (2**63 - 1) // 1000 + 1, 2**63 - 1, -(2**63))
BITS = {"magic": 8, "attributes": 16, "producer_epoch": 16, "crc": 32}
BITS |= dict.fromkeys(("base_offset", "base_timestamp_ms", "max_timestamp_ms", "producer_id"), 64)
FIELDS = tuple(Header.__dataclass_fields__)


class Piece(NamedTuple):
    """One field of a record: its varint kind (0: bytes) and its bytes."""

    kind: int
    data: bytes


Rows = list[list[Piece]]


def varint(value: int) -> Piece:
    return Piece(32, encode_varint(value))


def pieces_of(record: reference.Record, header: Header) -> list[Piece]:
    """A record in parts, without its length."""
    out = [
        Piece(0, b"\0"),
        Piece(64, encode_varint(record.timestamp_ms - header.base_timestamp_ms)),
        varint(record.offset - header.base_offset),
    ]
    for data in (record.key, record.value):
        out += [varint(-1)] if data is None else [varint(len(data)), Piece(0, data)]
    out.append(varint(len(record.headers)))
    for key, value in record.headers:
        out += [varint(len(key)), Piece(0, key)]
        out += [varint(-1)] if value is None else [varint(len(value)), Piece(0, value)]
    return out


def seal(header: Header, payload: bytes, *, repair: bool = True) -> bytes:
    """Header and payload; with repair the size and the CRC are right."""
    if repair:
        header = replace(header, batch_length=HEADER_BYTES - reference.LOG_OVERHEAD + len(payload))
        signed = header.pack()[reference.ATTRIBUTES_AT :] + payload
        header = replace(header, crc=crc32c.crc32c(signed))
    return header.pack() + payload


class Mutator:
    """Makes batches and logs out of a seeded generator; half of what it makes has a right CRC."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)

    def one_of(self, *choices: Callable[[], bytes]) -> bytes:
        return self.random.choice(choices)()

    def batch(self, *, base_offset: int = 0) -> bytes:
        """One batch, damaged in structure, in its compressed payload, in its bytes, or not at all."""
        return self.one_of(
            lambda: self.structured(base_offset),
            lambda: self.structured(base_offset),
            lambda: self.squeezed(base_offset),
            lambda: self.raw(self.sound(base_offset)),
        )

    def log(self) -> bytes:
        """Up to five batches, one or two of them damaged, perhaps with a broken tail."""
        out = []
        next_offset = self.random.choice([0, 3, 2**31])
        damaged = self.random.sample(range(5), self.random.randint(0, 2))
        for number in range(self.random.randint(0, 5)):
            sound = self.sound(next_offset)
            out.append(self.batch(base_offset=next_offset) if number in damaged else sound)
            next_offset = Header.unpack(sound).last_offset + 1 + self.random.choice([0, 0, 7])
        tail = self.random.choice([b"", b"", bytes(20), bytes(100), b"\x01" * 13, self.sound(next_offset)[:-1]])
        return b"".join(out) + tail

    def records(self, base_offset: int) -> list[reference.Record]:
        rng = self.random
        out = []
        offset = base_offset
        for _ in range(rng.choice([1, 1, 2, 3, 5, 9])):
            headers = [(rng.randbytes(rng.randint(0, 3)), self.payload()) for _ in range(rng.choice([0, 0, 0, 1, 3]))]
            stamp = builders.FIRST_TIMESTAMP_MS + rng.randint(-9, 100)
            out.append(builders.record(offset, self.payload(), self.payload(), timestamp_ms=stamp, headers=headers))
            offset += rng.choice([1, 1, 1, 2, 70])
        return out

    def payload(self) -> bytes | None:
        size = self.random.choice([None, 0, 1, 4, 12, 13, 40, 63, 64, 200])
        return None if size is None else self.random.randbytes(size)

    def header(self, records: Sequence[reference.Record]) -> Header:
        rng = self.random
        bits = rng.choice([0, 0, 0, 0x08, 0x10, 0x20, 0x40, 0x80])
        return Header(
            base_offset=records[0].offset,
            attributes=rng.randint(0, 4) | bits,
            last_offset_delta=records[-1].offset - records[0].offset,
            base_timestamp_ms=records[0].timestamp_ms,
            max_timestamp_ms=max(record.timestamp_ms for record in records),
            base_sequence=rng.choice([-1, 0, 2**31 - 2]),
            record_count=len(records),
        )

    def sound(self, base_offset: int) -> bytes:
        records = self.records(base_offset)
        header = self.header(records)
        content = b"".join(reference.encode_record(record, header) for record in records)
        return seal(header, codecs.compress(header.codec, content))

    def structured(self, base_offset: int) -> bytes:
        """Break header fields, record fields and the order of records, then compress, seal and repair."""
        rng = self.random
        records = self.records(base_offset)
        header = self.header(records)
        rows = [pieces_of(record, header) for record in records]
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            rng.choice((self.break_piece, self.break_piece, self.break_row))(rows)
        content = b"".join(self.sized(row) for row in rows)
        if rng.random() < 0.1:
            content = self.raw(content)
        payload = codecs.compress(header.codec, content) if header.codec <= codecs.ZSTD else content
        for _ in range(rng.choice([0, 0, 1, 2])):
            header = self.broken_header(header)
        return seal(header, payload, repair=rng.random() < 0.9)

    def sized(self, row: Sequence[Piece]) -> bytes:
        """A record with its length, which is now and then wrong or padded."""
        body = b"".join(piece.data for piece in row)
        if self.random.random() < 0.04:
            wrong = self.random.choice([-1, 1, 2, -len(body), 2**31 - 1 - len(body), -(2**31)])
            return encode_varint(max(-(2**31), len(body) + wrong)) + body
        size = self.random.choice([0] * 20 + [3, 5, 6])
        return encode_varint(len(body), size=size) + body

    def break_piece(self, rows: Rows) -> None:
        rng = self.random
        if not any(rows):
            return
        row = rng.choice([row for row in rows if row])
        at = rng.randrange(len(row))
        kind, data = row[at]
        if kind:
            value = rng.choice(INTERESTING_64 if kind == 64 else INTERESTING)
            choices = [
                encode_varint(value),
                encode_varint(value, size=rng.randint(1, 11)),
                b"\xff" * rng.randint(1, 11),
            ]
            choices.append(data[:-1] + bytes([data[-1] ^ 1 << rng.randrange(8)]))
            row[at] = Piece(kind, rng.choice(choices))
        else:
            row[at] = Piece(kind, rng.choice([b"", data + b"x", data[:-1], rng.randbytes(len(data))]))

    def break_row(self, rows: Rows) -> None:
        rng = self.random
        if not rows:
            return
        at = rng.randrange(len(rows))
        kind = rng.randrange(5)
        if kind == 0:
            del rows[at]
        elif kind == 1:
            rows.insert(at, list(rows[at]))
        elif kind == 2:
            rng.shuffle(rows)
        elif kind == 3:
            del rows[at][rng.randint(0, len(rows[at])) :]
        else:
            rows[at].append(Piece(0, rng.randbytes(rng.randint(1, 9))))

    def broken_header(self, header: Header) -> Header:
        field = self.random.choice(FIELDS)
        bits = BITS.get(field, 32)
        value = self.random.choice(INTERESTING_64 if bits == 64 else INTERESTING)
        if self.random.random() < 0.5:
            value = getattr(header, field) + self.random.choice([-1, 1, 1 << self.random.randrange(bits)])
        low = 0 if field == "crc" else -(1 << bits - 1)
        return replace(header, **{field: (value - low) % (1 << bits) + low})

    def squeezed(self, base_offset: int) -> bytes:
        """Damage the compressed payload, then repair size and CRC."""
        data = self.sound(base_offset)
        return seal(Header.unpack(data), self.raw(data[HEADER_BYTES:]), repair=self.random.random() < 0.95)

    def raw(self, data: bytes) -> bytes:
        """Flip, overwrite, cut, repeat, insert or zero bytes, without regard for structure."""
        rng = self.random
        out = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(out)) if out else 0
            end = min(len(out), at + rng.choice([1, 1, 2, 4, 8, 30]))
            kind = rng.randrange(6)
            if kind == 0 and out:
                out[at] ^= 1 << rng.randrange(8)
            elif kind == 1 and out:
                out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            elif kind == 2:
                del out[at:end]
            elif kind == 3:
                out[at:at] = out[at:end]
            elif kind == 4:
                out[at:at] = rng.randbytes(rng.randint(1, 9))
            else:
                out[at:end] = bytes(end - at)
        return bytes(out)
