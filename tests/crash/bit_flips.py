"""Every bit of six segments that brokers wrote is flipped in turn: reading and verifying see it, or docs/durability.md
says that the format cannot tell, and what a reader then gets."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kstore.errors import KStoreError
from kstore.log.log import Log
from kstore.log.verify import verify
from kstore.store.opening import open_log
from tests.crash.tables import rows_below
from tests.fakes.disk import Inode, SimulatedDisk
from tests.golden.sets import GoldenPartition

PATH = "/root/t-0"
PART_BYTES = 64
HEADING = "### Bits that the format cannot guard"
SEGMENTS = (
    ("v0-0.8.2.2", "old-compact-0", 0),
    ("v1-0.10.0.1", "old-compact-gzip-0", 0),
    ("main-4.4.0", "compact-lz4-0", 193),
    ("main-4.4.0", "txn-0", 122),
    ("main-4.4.0", "segms-0", 0),
    ("main-2.8.2", "segms-0", 55),
)
# More than the longest has.
_PARTS = 32
CASES = len(SEGMENTS) * _PARTS
OFFSET, EPOCH = "base offset", "leader epoch"
# What a reader gets.
SAME, MOVED = "the same records", "the records of the batch at other offsets"


class Fields(NamedTuple):
    """What a reader gets of a record."""

    offset: int
    others: tuple[object, ...]


class Segment(NamedTuple):
    """A segment by itself; ends: the position after each batch, with the magic of the batch."""

    base_offset: int
    data: bytes
    next_offset: int
    ends: tuple[tuple[int, int], ...]
    records: tuple[Fields, ...]


class Unseen(NamedTuple):
    """A flipped bit that neither reading nor verifying saw: what it was part of, and what was read."""

    magic: int
    field: str
    outcome: str


@cache
def segment_of(number: int) -> Segment:
    set_name, name, base_offset = SEGMENTS[number]
    partition = next(
        GoldenPartition(set_name, tree, name)
        for tree in ("data", "before", "after")
        if (GoldenPartition(set_name, tree, name).directory / f"{base_offset:020d}.log").exists()
    )
    data = (partition.directory / f"{base_offset:020d}.log").read_bytes()
    disk = SimulatedDisk({f"{PATH}/{base_offset:020d}.log": Inode(data)})
    with open_log(PATH, env=disk) as log:
        batches = [one.header for one in log.batches()]
        ends = tuple((one.position + one.size_in_bytes, one.magic) for one in batches)
        return Segment(base_offset, data, log.log_end_offset, ends, fields_of(log))


def fields_of(log: Log) -> tuple[Fields, ...]:
    return tuple(
        Fields(one.offset, (one.timestamp_ms, one.timestamp_type, one.key, one.value, one.headers))
        for one in log.read()
    )


def disk_with(segment: Segment, data: bytes) -> SimulatedDisk:
    """Return a disk on which another segment follows, so that everything in this one is durable."""
    files = {segment.base_offset: data, segment.next_offset: b""}
    return SimulatedDisk({f"{PATH}/{base:020d}.log": Inode(content) for base, content in files.items()})


def flipped(segment: Segment, position: int, bit: int) -> bytes:
    data = bytearray(segment.data)
    data[position] ^= 1 << bit
    return bytes(data)


def unseen(segment: Segment, position: int, bit: int) -> Unseen | None:
    """Flip a bit; return None if it was seen, by the reader and by verify.

    Raises: AssertionError if only one of them saw it, or a reader got what was never there.
    """
    disk = disk_with(segment, flipped(segment, position, bit))
    place = f"bit {bit} of byte {position}"
    with open_log(PATH, env=disk) as log:
        damage = list(verify(log, env=disk))
        try:
            records, error = fields_of(log), None
        except KStoreError as met:
            records, error = (), met
    assert bool(damage) == (error is not None), f"{place}: verify found {damage}, reading {error!r}"
    if error is not None:
        return None
    number = next(number for number, (end, _) in enumerate(segment.ends) if position < end)
    magic, at = segment.ends[number][1], position - (segment.ends[number - 1][0] if number else 0)
    field = OFFSET if at < 8 else EPOCH if magic == 2 and 12 <= at < 16 else f"byte {at}"
    if records == segment.records:
        return Unseen(magic, field, SAME)
    moved = [(one, two) for one, two in zip(records, segment.records, strict=True) if one != two]
    shifts = {one.offset - two.offset for one, two in moved}
    assert len(shifts) == 1, f"{place}: wrong records"
    assert all(one.others == two.others for one, two in moved), f"{place}: wrong records"
    return Unseen(magic, field, MOVED)


@cache
def unguarded() -> frozenset[Unseen]:
    """Return the list of docs/durability.md."""
    return frozenset(
        Unseen(int(magic), field, outcome)
        for magics, field, _, outcome in rows_below(HEADING)
        for magic in magics.split(", ")
    )


def flips_of(number: int, *, step: int = 1) -> tuple[int, set[Unseen]]:
    """Flip every step-th bit of one part of a segment; return how many, and what was not seen."""
    segment = segment_of(number // _PARTS)
    first = number % _PARTS * PART_BYTES
    bits = [(at, bit) for at in range(first, min(first + PART_BYTES, len(segment.data))) for bit in range(8)][::step]
    return len(bits), {found for at, bit in bits if (found := unseen(segment, at, bit)) is not None}


def check_part(number: int, *, step: int = 1) -> int:
    """Flip the bits of a part; return how many.

    Raises: AssertionError if one was not seen that the list does not have.
    """
    count, found = flips_of(number, step=step)
    assert found <= unguarded(), f"{SEGMENTS[number // _PARTS]}: not seen, and not in the list: {found - unguarded()}"
    return count
