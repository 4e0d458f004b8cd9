"""A structure-aware mutator of magic 0 and 1: messages, wrappers, wrappers in wrappers, and logs of mixed magics."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Any

from tests.fuzz.mutator import INTERESTING, INTERESTING_64, Mutator
from tests.making import batches as builders
from tests.reference import codecs as codecs
from tests.reference import messages as reference_messages
from tests.reference.codec import TIMESTAMP_TYPE_BIT, Header, wrap64

BITS = {"offset": 64, "timestamp_ms": 64, "magic": 8, "attributes": 8}


@dataclass(frozen=True, kw_only=True)
class Fields:
    """A message field by field; None for a size or CRC that is right."""

    offset: int = 0
    magic: int = 1
    attributes: int = 0
    timestamp_ms: int = -1
    key: bytes | None = None
    value: bytes | None = None
    key_size: int | None = None
    value_size: int | None = None
    size: int | None = None
    crc: int | None = None
    tail: bytes = b""

    def pack(self) -> bytes:
        body = struct.pack(">bb", self.magic, self.attributes)
        body += struct.pack(">q", self.timestamp_ms) if self.magic == 1 else b""
        for data, size in ((self.key, self.key_size), (self.value, self.value_size)):
            right = -1 if data is None else len(data)
            body += struct.pack(">i", right if size is None else size) + (data or b"")
        body += self.tail
        crc = zlib.crc32(body) if self.crc is None else self.crc
        size = 4 + len(body) if self.size is None else self.size
        return struct.pack(">qiI", self.offset, size, crc) + body


class MessageMutator(Mutator):
    """Makes entries of magic 0 and 1 and logs of all magics."""

    def entry(self, *, offset: int = 0) -> bytes:
        """A plain message or a wrapper, damaged in one way or another, or not at all."""
        return self.one_of(
            lambda: self.damaged_message(offset),
            lambda: self.damaged_wrapper(offset),
            lambda: self.damaged_wrapper(offset),
            lambda: self.raw(self.sound_entry(offset)),
            lambda: self.raw_payload(offset),
            lambda: self.sound_entry(offset),
        )

    def mixed_log(self) -> bytes:
        """Up to six entries of any magic, one or two of them damaged, perhaps with a broken tail."""
        rng = self.random
        next_offset = rng.choice([0, 3, 2**31])
        damaged = rng.sample(range(6), rng.randint(0, 2))
        out = []
        for number in range(rng.randint(0, 6)):
            is_batch = rng.random() < 0.3
            sound = self.sound(next_offset) if is_batch else self.sound_entry(next_offset)
            hurt = self.batch if is_batch else self.offset_entry
            out.append(hurt(base_offset=next_offset) if number in damaged else sound)
            last_offset = (
                Header.unpack(sound).last_offset if is_batch else reference_messages.read_message(sound).last_offset
            )
            next_offset = last_offset + 1 + rng.choice([0, 0, 7])
        tail = rng.choice([b"", b"", bytes(20), bytes(100), b"\x01" * 13, self.sound_entry(next_offset)[:-1]])
        return b"".join(out) + tail

    def offset_entry(self, *, base_offset: int) -> bytes:
        return self.entry(offset=base_offset)

    def fields(self, offset: int, *, magic: int) -> Fields:
        rng = self.random
        stamp = rng.choice([-1, 0, builders.FIRST_TIMESTAMP_MS + rng.randint(-9, 100)])
        bits = rng.choice([0, 0, 0, 0, TIMESTAMP_TYPE_BIT, 0x10, 0x70])
        return Fields(
            offset=offset,
            magic=magic,
            attributes=bits,
            timestamp_ms=stamp,
            key=self.payload(),
            value=self.payload(),
        )

    def inner(self, offset: int, *, magic: int) -> list[Fields]:
        """What a wrapper of that magic holds, the first at offset, in V1 counted from 0."""
        rng = self.random
        at = offset if magic == 0 else 0
        out = []
        for _ in range(rng.choice([1, 1, 2, 3, 6])):
            out.append(self.fields(at, magic=magic if rng.random() < 0.95 else 1 - magic))
            at += rng.choice([1, 1, 1, 2, 70])
        return out

    def wrap(self, inner: list[Fields], offset: int, *, magic: int, content: bytes | None = None) -> Fields:
        """A wrapper around them, or around other content."""
        rng = self.random
        codec = rng.randint(codecs.GZIP, codecs.LZ4)
        payload = codecs.compress(codec, b"".join(map(Fields.pack, inner)) if content is None else content)
        if (magic, codec) == (0, codecs.LZ4) and rng.random() < 0.8:
            payload = kafka_checksum(payload)
        last = inner[-1].offset if inner else 0
        return Fields(
            offset=last if magic == 0 else wrap64(offset + last),
            magic=magic,
            attributes=codec | rng.choice([0, 0, TIMESTAMP_TYPE_BIT]),
            timestamp_ms=rng.choice([-1, 5, builders.FIRST_TIMESTAMP_MS]),
            value=payload,
        )

    def sound_entry(self, offset: int) -> bytes:
        magic = self.random.randint(0, 1)
        if self.random.random() < 0.4:
            return self.fields(offset, magic=magic).pack()
        return self.wrap(self.inner(offset, magic=magic), offset, magic=magic).pack()

    def damaged_message(self, offset: int) -> bytes:
        return self.broken(self.fields(offset, magic=self.random.randint(0, 1))).pack()

    def damaged_wrapper(self, offset: int) -> bytes:
        """Break inner messages, their order or their number, then wrap, then break the wrapper."""
        rng = self.random
        magic = rng.randint(0, 1)
        inner = self.inner(offset, magic=magic)
        for _ in range(rng.choice([0, 1, 1, 2])):
            at = rng.randrange(len(inner)) if inner else 0
            kind = rng.randrange(7)
            if kind == 0:
                inner[at : at + 1] = []
            elif kind == 1:
                rng.shuffle(inner)
            elif kind == 2 and inner:
                inner[at] = self.wrap([inner[at]], inner[at].offset, magic=magic)
            elif inner:
                inner[at] = self.broken(inner[at])
        content = b"".join(map(Fields.pack, inner))
        kind = rng.randrange(12)
        if kind == 0:
            content = self.raw(content)
        elif kind == 1:
            content = content[: rng.randint(0, len(content))]
        elif kind == 2:
            content += rng.randbytes(rng.randint(1, 30))
        outer = self.wrap(inner, offset, magic=magic, content=content)
        kind = rng.randrange(12)
        if kind == 0:
            outer = replace(outer, value=None)
        elif kind == 1:
            outer = replace(outer, offset=0)
        elif kind == 2:
            outer = replace(outer, key=self.payload())
        return (self.broken(outer) if rng.random() < 0.3 else outer).pack()

    def raw_payload(self, offset: int) -> bytes:
        """Damage the compressed payload; the sizes and the CRC are right."""
        magic = self.random.randint(0, 1)
        outer = self.wrap(self.inner(offset, magic=magic), offset, magic=magic)
        return replace(outer, value=self.raw(outer.value or b"")).pack()

    def broken(self, fields: Fields) -> Fields:
        """Replace one field, as a number by one that is near or famous."""
        rng = self.random
        name = rng.choice(
            ["offset", "magic", "attributes", "timestamp_ms", "key_size", "value_size", "size", "crc", "tail"]
        )
        if name == "tail":
            return replace(fields, tail=rng.randbytes(rng.randint(1, 9)))
        bits = BITS.get(name, 32)
        value = rng.choice(INTERESTING_64 if bits == 64 else INTERESTING)
        if rng.random() < 0.6:
            value = self.right(fields, name) + rng.choice([-1, 1, 1 << rng.randrange(bits)])
        low = 0 if name == "crc" else -(1 << bits - 1)
        changed: dict[str, Any] = {name: (value - low) % (1 << bits) + low}
        return replace(fields, **changed)

    def right(self, fields: Fields, name: str) -> int:
        data = fields.pack()
        if name in ("size", "crc"):
            return int.from_bytes(data[8:12] if name == "size" else data[12:16], "big")
        if name in ("key_size", "value_size"):
            field = fields.key if name == "key_size" else fields.value
            return -1 if field is None else len(field)
        return int(getattr(fields, name))


def kafka_checksum(payload: bytes) -> bytes:
    """The lz4 frame with the header checksum that Kafka writes in V0, over the magic number too (KAFKA-3160)."""
    end = 6
    return payload[:end] + bytes([codecs.xxh32(payload[:end]) >> 8 & 0xFF]) + payload[end + 1 :]
