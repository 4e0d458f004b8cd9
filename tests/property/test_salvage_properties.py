"""Goal: salvage gives no record that was not in the log at its offset, whatever producers stored in values, and keeps
nearly all that is undamaged.

Method: random logs whose values hold batches (with right CRCs, guessed offsets, in chains up to the end of the batch
around them, as literals of compressed ones) are damaged at random, with and without indexes, and salvaged.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kstore._core import check_crc, read_header
from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log.files.names import PartitionDirectory
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.making.batches import Layout, record, write_partition
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codecs as codecs
from tests.reference.codec import HEADER_BYTES, Header, Record, encode_record, seal, write_batch

CONFIG = LogConfig(index_interval_bytes=500)
LAYOUT = Layout(index_interval_bytes=500)
BLOCK_BYTES = 512
DAMAGES = ("size", "size", "size", "size-and-body", "flip", "flip", "zeros", "noise", "copy", "removed")

Content = tuple[int, bytes | None, bytes | None]


@dataclass
class Stored:
    """One batch of a log that is made up; records: by offset; position: in its segment."""

    data: bytes
    records: dict[int, Content]
    position: int = 0


@dataclass
class MadeUp:
    """A log, and what was done to it; moved: contents whose stored offset was damaged."""

    segments: list[list[Stored]]
    touched: set[int] = field(default_factory=set)
    moved: set[Content] = field(default_factory=set)

    @property
    def records(self) -> dict[int, Content]:
        return {at: one for segment in self.segments for stored in segment for at, one in stored.records.items()}


def literal_snappy(data: bytes) -> bytes:
    """A snappy stream that holds all bytes as they are, up to its very end."""
    size, head = len(data), bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    block = bytes(head) + bytes([size, 61 << 2]) + struct.pack("<H", len(data) - 1) + data
    return codecs.XERIAL_HEADER + struct.pack(">i", len(block)) + block


class Maker:
    """Makes logs up, and damage."""

    def __init__(self, seed: int, *, is_hostile: bool, magic: int = 2) -> None:
        self.rng = random.Random(f"{seed} {is_hostile} {magic}")
        self.is_hostile = is_hostile
        self.magic = magic

    def log(self) -> MadeUp:
        segments: list[list[Stored]] = []
        offset = 0
        for _ in range(self.rng.randint(1, 2)):
            segments.append([])
            position = 0
            for _ in range(self.rng.randint(4, 30)):
                is_host = self.is_hostile and self.rng.random() < 0.5
                stored = self.host(offset) if is_host else self.plain(offset)
                stored.position = position
                segments[-1].append(stored)
                position += len(stored.data)
                offset = max(stored.records) + 1
        return MadeUp(segments)

    def plain(self, offset: int) -> Stored:
        rng = self.rng
        sizes = rng.choices((10, 60, 300, 900), k=rng.randint(1, 4))
        made = [record(offset + n, rng.randbytes(size), b"k%d" % n) for n, size in enumerate(sizes)]
        if self.magic < 2:
            return self.messages(made[:1])
        return self.stored(made, write_batch(made, codec=rng.randrange(5)))

    def messages(self, made: Sequence[Record]) -> Stored:
        magic, rng = self.magic, self.rng
        one = made[0]
        time = one.timestamp_ms if magic else -1
        made = [record(one.offset, one.value, one.key, timestamp_ms=time)]
        data = packed_entry(one.value, one.key, offset=one.offset, magic=magic, timestamp_ms=time)
        if rng.random() < 0.3:
            inner = packed_entry(one.value, one.key, offset=0 if magic else one.offset, magic=magic, timestamp_ms=time)
            codec = rng.choice((codecs.GZIP, codecs.SNAPPY))
            data = write_wrapper([inner], magic=magic, codec=codec, offset=one.offset, timestamp_ms=time)
        return self.stored(made, data)

    def stored(self, made: Sequence[Record], data: bytes) -> Stored:
        return Stored(data, {one.offset: (one.timestamp_ms, one.key, one.value) for one in made})

    def host(self, offset: int) -> Stored:
        """A batch whose last value, or last header, holds others."""
        rng = self.rng
        count = rng.randint(1, 3) if self.magic == 2 else 1
        guess = offset + rng.choice((0, 0, 1, count - 1, count, count, count + 1, -1))
        chain = self.chain(max(guess, 0))
        tail = chain + rng.choice((b"", b"", b"\0", b":end"))
        pad = rng.randrange(40)
        stored = self.around(offset, count, b"upload:" + b"." * pad + tail)
        size, start = len(stored.data), stored.data.find(chain)
        # A row of dots more, so that one flipped bit of the size leads to the chain.
        distance = size - start
        if start > 0 and distance.bit_count() == 1 and not size & distance:
            missing = distance - size % distance
            return self.around(offset, count, b"upload:" + b"." * (pad + missing) + tail)
        return stored

    def around(self, offset: int, count: int, value: bytes) -> Stored:
        rng = random.Random(offset)
        if self.magic < 2:
            return self.messages_around(offset, value)
        made = [record(offset + n, b"v", b"k%d" % n) for n in range(count - 1)]
        if rng.random() < 0.5:
            made.append(record(offset + count - 1, b"host", b"user", headers=[(b"h", value)]))
        else:
            made.append(record(offset + count - 1, value, b"user"))
        codec = rng.choice((codecs.NONE, codecs.NONE, codecs.SNAPPY))
        header = Header(
            base_offset=offset,
            attributes=codec,
            last_offset_delta=count - 1,
            base_timestamp_ms=made[0].timestamp_ms,
            max_timestamp_ms=made[-1].timestamp_ms,
            record_count=count,
        )
        payload = b"".join(encode_record(one, header) for one in made)
        return self.stored(made, seal(header, literal_snappy(payload) if codec else payload))

    def messages_around(self, offset: int, value: bytes) -> Stored:
        time = 5 if self.magic else -1
        data = packed_entry(value, b"user", offset=offset, magic=self.magic, timestamp_ms=time)
        return Stored(data, {offset: (time, b"user", value)})

    def chain(self, offset: int) -> bytes:
        """Batches as a producer may make them, one after the other, of a size that is often a power of two."""
        rng, out = self.rng, b""
        for _ in range(rng.choice((1, 1, 2, 3))):
            if self.magic < 2 and rng.random() < 0.7:
                out += packed_entry(b"PAY", b"evil", offset=offset, magic=self.magic, timestamp_ms=5)
                offset += 1
                continue
            count = rng.randint(1, 2)
            made = [record(offset + n, b"PAY", b"evil") for n in range(count)]
            out += write_batch(made, partition_leader_epoch=rng.choice((0, 0, -1)))
            offset += count
        least = len(out + write_batch([record(offset, b"", b"evil")]))
        missing = (1 << least.bit_length()) - least
        # The lengths of the value and of its record take more bytes as they grow.
        size = missing - (2 if missing > 70 else 1 if missing > 50 else 0)
        return out + write_batch([record(offset, b"P" * max(size, 0), b"evil")])

    # Damage

    def damage(self, made: MadeUp) -> list[bytes]:
        """Damage a log in one to three places; return its segments."""
        contents = [bytearray(b"".join(stored.data for stored in segment)) for segment in made.segments]
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            slot = self.rng.randrange(len(contents))
            self.damage_once(made, made.segments[slot], contents[slot])
        return [bytes(content) for content in contents]

    def damage_once(self, made: MadeUp, segment: list[Stored], content: bytearray) -> None:
        rng = self.rng
        stored = rng.choice(segment)
        kind = rng.choice(DAMAGES)
        if kind.startswith("size"):
            # The low bits lead into the batch.
            bit = rng.choice((rng.randrange(32), rng.randrange(12), (len(stored.data)).bit_length() - 2))
            self.write(made, segment, content, stored.position + 11 - bit // 8, flips=1 << bit % 8)
        if kind in ("flip", "size-and-body"):
            at = stored.position + rng.randrange(len(stored.data))
            self.write(made, segment, content, at, flips=1 << rng.randrange(8))
        start = rng.randrange(len(content))
        size = min(rng.choice((1, 17, 61, 200, BLOCK_BYTES)), len(content) - start)
        if kind == "zeros":
            self.write(made, segment, content, start, new=bytes(size))
        elif kind == "noise":
            self.write(made, segment, content, start, new=rng.randbytes(size))
        elif kind == "copy":
            start -= start % BLOCK_BYTES
            self.copy(made, segment, content, start, rng.randrange(len(content)))
        elif kind == "removed":
            self.touch(made, segment, start, start + size)
            del content[start : start + size]

    def copy(self, made: MadeUp, segment: list[Stored], content: bytearray, start: int, other: int) -> None:
        """Copy a block of any bytes, but of none that make a whole batch where one starts: nothing tells that one."""
        for source in range(other, other + BLOCK_BYTES):
            copied = bytearray(content)
            block = content[source : source + BLOCK_BYTES][: len(content) - start]
            copied[start : start + len(block)] = block
            if not any(is_other_batch(copied, stored) for stored in segment):
                self.write(made, segment, content, start, new=bytes(block))
                return

    def write(
        self,
        made: MadeUp,
        segment: list[Stored],
        content: bytearray,
        start: int,
        *,
        new: bytes | None = None,
        flips: int = 0,
    ) -> None:
        if start >= len(content):
            return
        data = bytes([content[start] ^ flips]) if new is None else new
        self.touch(made, segment, start, start + len(data))
        content[start : start + len(data)] = data

    def touch(self, made: MadeUp, segment: list[Stored], start: int, end: int) -> None:
        for stored in segment:
            if stored.position < end and start < stored.position + len(stored.data):
                made.touched |= stored.records.keys()
                if stored.position < end and start < stored.position + 8:
                    made.moved |= set(stored.records.values())


def is_other_batch(content: bytearray, stored: Stored) -> bool:
    """Whether other bytes make a whole batch where a stored one started."""
    position = stored.position
    if content[position : position + len(stored.data)] == stored.data:
        return False
    try:
        header = read_header(content[position : position + HEADER_BYTES], position=position)
        check_crc(content[position : position + header.size_in_bytes], position=position)
    except KStoreError:
        return False
    return True


@dataclass
class Tally:
    """How many records that no damage touched there were, and how many a salvage kept."""

    undamaged: int = 0
    kept: int = 0
    invented: list[str] = field(default_factory=list)


def salvage(path: Path) -> LoadedLog:
    directory = PartitionDirectory(TopicPartition("t", 0), str(path), str(path.parent))
    return load_log(directory, config=CONFIG, mode="salvage")


def run(root: Path, seed: int, tally: Tally, *, is_hostile: bool, has_indexes: bool, magic: int = 2) -> None:
    maker = Maker(seed, is_hostile=is_hostile, magic=magic)
    made = maker.log()
    path = write_indexed(root / str(seed), made)
    names = sorted(path.glob("*.log"))
    contents = maker.damage(made)
    for name, content in zip(names, contents, strict=True):
        name.write_bytes(content)
        if not has_indexes:
            name.with_suffix(".index").unlink()
            name.with_suffix(".timeindex").unlink()
    loaded = salvage(path)
    with open_log(path, config=CONFIG) as log:
        found = [(one.offset, (one.timestamp_ms, one.key, one.value)) for one in log.read()]
    expected = made.records
    for offset, content in found:
        if expected.get(offset) != content and content not in made.moved:
            tally.invented.append(f"seed {seed}: offset {offset}, key {content[1]!r}")
    lost = {offset for offset in expected if offset not in dict(found)} - made.touched
    tally.undamaged += len(expected.keys() - made.touched)
    tally.kept += len(expected.keys() - made.touched - lost)
    kept = [
        content
        for name, content in zip(names, contents, strict=True)
        if int(name.stem) not in loaded.report.deleted_segments
    ]
    left = sum(name.stat().st_size for name in path.glob("*.log"))
    removed = loaded.report.truncated_bytes + loaded.report.preallocated_bytes
    assert removed == sum(map(len, kept)) - left


def write_indexed(root: Path, made: MadeUp) -> Path:
    """Write a partition; indexes of batches that are not of magic 2 are those of salvaging them whole."""
    root.mkdir(parents=True)
    segments = [[stored.data for stored in segment] for segment in made.segments]
    if all(data[16] == 2 for segment in segments for data in segment):
        return write_partition(root, segments, layout=LAYOUT)
    path = root / "t-0"
    path.mkdir()
    for segment in made.segments:
        (path / f"{min(segment[0].records):020d}.log").write_bytes(b"".join(stored.data for stored in segment))
    assert salvage(path).report.damage == ()
    return path


# Whether values hold batches, whether there are indexes, and the magic of the batches.
KINDS = {
    "hostile": (True, True, 2),
    "hostile-without-indexes": (True, False, 2),
    "hostile-v1": (True, True, 1),
    "hostile-v1-without-indexes": (True, False, 1),
    "hostile-v0": (True, True, 0),
}


def check_nothing_is_invented(root: Path, kind: str, count: int) -> Tally:
    is_hostile, has_indexes, magic = KINDS[kind]
    tally = Tally()
    for seed in range(count):
        run(root, seed, tally, is_hostile=is_hostile, has_indexes=has_indexes, magic=magic)
    assert tally.invented == []
    return tally


@pytest.mark.parametrize("kind", KINDS)
def test_salvage_gives_no_record_that_was_not_in_the_log(kind: str, tmp_path: Path) -> None:
    check_nothing_is_invented(tmp_path, kind, 60)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_salvage_gives_no_record_that_was_not_in_any_log(kind: str, tmp_path: Path) -> None:
    check_nothing_is_invented(tmp_path, kind, 3000)


def test_value_with_a_damaged_batch_between_whole_ones_gives_no_record_when_its_size_leads_into_it(
    tmp_path: Path,
) -> None:
    tally = Tally()
    # One bit of a size and one in the value: the size leads to the first of three batches, the second is damaged, and
    # after the third the log goes on with the offset of the first.
    run(tmp_path, 348, tally, is_hostile=True, has_indexes=False, magic=1)
    assert tally.invented == []


def test_value_after_removed_bytes_gives_no_record_where_the_log_goes_on_with_the_next_offset(tmp_path: Path) -> None:
    tally = Tally()
    # 200 bytes are missing across two batches: the size of the first leads to a batch in the second, whose offset is
    # the next one. Four bytes after it the log goes on, and no offset is left for them.
    run(tmp_path, 4537, tally, is_hostile=True, has_indexes=False)
    assert tally.invented == []


@pytest.mark.parametrize(("has_indexes", "least"), [(True, 0.95), (False, 0.7)], ids=["indexes", "no-indexes"])
def test_salvage_keeps_nearly_all_that_is_undamaged(has_indexes: bool, least: float, tmp_path: Path) -> None:
    tally = Tally()
    for seed in range(100):
        run(tmp_path, seed, tally, is_hostile=False, has_indexes=has_indexes)
    assert tally.invented == []
    assert tally.kept >= least * tally.undamaged
