"""A small test language: records, batches, segments, partition directories, roots, and damage to them.

Files are laid out as a broker leaves them; every byte comes from the reference codec, never from kstore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.reference import codec as reference
from tests.reference.codec import CREATE_TIME, Header, Record, write_batch

FIRST_TIMESTAMP_MS = 1_600_000_000_000
DEFAULT_SLOTS = {".index": 1310720, ".timeindex": 873813}
Headers = Sequence[tuple[bytes, bytes | None]]
Damageable = Path | bytearray


# Records and batches


def record(
    offset: int,
    value: bytes | None = b"",
    key: bytes | None = None,
    *,
    timestamp_ms: int | None = None,
    headers: Headers = (),
) -> Record:
    """One CreateTime record; without a timestamp it is FIRST_TIMESTAMP_MS plus one ms per offset."""
    timestamp_ms = FIRST_TIMESTAMP_MS + offset if timestamp_ms is None else timestamp_ms
    return Record(offset, timestamp_ms, CREATE_TIME, key, value, tuple(headers))


def records(first_offset: int, count: int, *, value_bytes: int = 0) -> list[Record]:
    """count records: key k<offset>, value v<offset> padded with dots to value_bytes, one header each third record."""
    return [
        record(
            offset,
            b"v%d" % offset + b"." * (value_bytes - len(b"v%d" % offset)),
            b"k%d" % offset,
            headers=[(b"h", b"%d" % offset)] if offset % 3 == 0 else (),
        )
        for offset in range(first_offset, first_offset + count)
    ]


def batch(first_offset: int, count: int = 1, *, value_bytes: int = 0, **options: Any) -> bytes:
    """One batch of records(...); options are those of reference.write_batch."""
    return write_batch(records(first_offset, count, value_bytes=value_bytes), **options)


def batches(
    first_offset: int, batch_count: int, *, records_per_batch: int = 1, value_bytes: int = 0, **options: Any
) -> list[bytes]:
    """Batches that follow each other without a gap."""
    return [
        batch(first_offset + n * records_per_batch, records_per_batch, value_bytes=value_bytes, **options)
        for n in range(batch_count)
    ]


def patch_header(data: bytes, *, repair_crc: bool = True, **fields: int) -> bytes:
    """The batch with some header fields replaced; an out-of-range value raises struct.error."""
    return with_fields(data, fields, repair_crc=repair_crc)


def with_fields(data: bytes, fields: Mapping[str, Any], *, repair_crc: bool = True) -> bytes:
    """patch_header for field names that are only known at run time."""
    patched = replace(Header.unpack(data), **fields).pack() + data[reference.HEADER_BYTES :]
    if not repair_crc:
        return patched
    return (
        replace(Header.unpack(patched), crc=reference.crc32c(patched[reference.ATTRIBUTES_AT :])).pack()
        + (patched[reference.HEADER_BYTES :])
    )


# Files


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How index files are written.

    index_interval_bytes: Kafka's index.interval.bytes. first_offset_keys: entries carry the first offset of the
    batch, as brokers up to 1.1 wrote them, in place of the last. is_closed: rolled or cleanly stopped, so the time
    index has its closing entry and both files are trimmed; else they are padded with zeros to `slots` entries.
    """

    index_interval_bytes: int = 4096
    first_offset_keys: bool = False
    is_closed: bool = True
    slots: int = 1024


CLOSED = Layout()


def index_entries(
    segment: Sequence[bytes], *, base_offset: int, layout: Layout = CLOSED
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The (relative offset, position) and (timestamp ms, relative offset) entries, appended batch by batch."""
    offsets: list[tuple[int, int]] = []
    timestamps: list[tuple[int, int]] = []
    position = bytes_since_entry = 0
    largest = (-1, 0)
    for data in segment:
        header = Header.unpack(data)
        last_offset = header.last_offset - base_offset
        if header.max_timestamp_ms > largest[0]:
            largest = (header.max_timestamp_ms, last_offset)
        if bytes_since_entry > layout.index_interval_bytes:
            first_offset = header.base_offset - base_offset
            offsets.append((first_offset if layout.first_offset_keys else last_offset, position))
            _append_timestamp(timestamps, largest)
            bytes_since_entry = 0
        bytes_since_entry += len(data)
        position += len(data)
    if layout.is_closed:
        _append_timestamp(timestamps, largest)
    return offsets, timestamps


def _append_timestamp(entries: list[tuple[int, int]], entry: tuple[int, int]) -> None:
    if entry[0] > (entries[-1][0] if entries else -1):
        entries.append(entry)


def write_segment(
    directory: Path, segment: Sequence[bytes], *, base_offset: int | None = None, layout: Layout = CLOSED
) -> Path:
    """Write .log, .index and .timeindex; return the path of the .log. base_offset defaults to the first batch's."""
    if base_offset is None:
        base_offset = Header.unpack(segment[0]).base_offset
    offsets, timestamps = index_entries(segment, base_offset=base_offset, layout=layout)
    slots = None if layout.is_closed else layout.slots
    log = directory / f"{base_offset:020d}.log"
    log.write_bytes(b"".join(segment))
    log.with_suffix(".index").write_bytes(reference.write_offset_index(offsets, slots=slots))
    log.with_suffix(".timeindex").write_bytes(reference.write_time_index(timestamps, slots=slots))
    return log


def write_partition(
    root: Path,
    segments: Sequence[Sequence[bytes]],
    *,
    topic: str = "t",
    partition: int = 0,
    layout: Layout = CLOSED,
    leader_epochs: Sequence[tuple[int, int]] = ((0, 0),),
) -> Path:
    """Write one partition directory of at least one segment; only the last may lack batches, then its base is the end.

    layout.is_closed=False holds for the last segment alone: older ones were rolled.
    """
    directory = root / f"{topic}-{partition}"
    directory.mkdir(parents=True)
    base_offset = 0
    for number, segment in enumerate(segments):
        if segment:
            base_offset = Header.unpack(segment[0]).base_offset
        is_last = number + 1 == len(segments)
        write_segment(
            directory,
            segment,
            base_offset=base_offset,
            layout=layout if is_last else replace(layout, is_closed=True),
        )
        if segment:
            base_offset = Header.unpack(segment[-1]).last_offset + 1
    (directory / "leader-epoch-checkpoint").write_text(reference.write_checkpoint(leader_epochs))
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    return directory


def write_root(
    root: Path,
    partitions: Mapping[str, Sequence[Sequence[bytes]]],
    *,
    log_start_offsets: Mapping[str, int] | None = None,
    high_watermarks: Mapping[str, int] | None = None,
    layout: Layout = CLOSED,
) -> Path:
    """Write a log.dirs root; keys are directory names such as "flights-0". High watermarks default to the log ends."""
    root.mkdir(parents=True, exist_ok=True)
    ends = {}
    for name, segments in partitions.items():
        topic, _, partition = name.rpartition("-")
        write_partition(root, segments, topic=topic, partition=int(partition), layout=layout)
        whole = [data for segment in segments for data in segment]
        ends[name] = Header.unpack(whole[-1]).last_offset + 1 if whole else 0
    watermarks = ends if high_watermarks is None else high_watermarks
    write_offset_checkpoint(root / "replication-offset-checkpoint", watermarks)
    write_offset_checkpoint(root / "recovery-point-offset-checkpoint", ends)
    write_offset_checkpoint(root / "log-start-offset-checkpoint", log_start_offsets or {})
    (root / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAg\nnode.id=1\n")
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return root


def write_offset_checkpoint(path: Path, offsets: Mapping[str, int]) -> None:
    """offsets: partition directory name -> offset."""
    entries = [(*name.rpartition("-")[::2], offset) for name, offset in offsets.items()]
    path.write_text(reference.write_checkpoint(entries))


# Damage


def edit(target: Damageable, change: Callable[[bytearray], None]) -> None:
    """Apply change to the bytes of a file or a bytearray."""
    if isinstance(target, bytearray):
        change(target)
        return
    data = bytearray(target.read_bytes())
    change(data)
    target.write_bytes(data)


def set_byte(target: Damageable, position: int, *, value: int) -> None:
    set_bytes(target, position, bytes([value]))


def set_bytes(target: Damageable, position: int, new: bytes) -> None:
    def change(data: bytearray) -> None:
        data[position : position + len(new)] = new

    edit(target, change)


def flip_bit(target: Damageable, position: int, *, bit: int) -> None:
    """bit 0 is the least significant one."""

    def change(data: bytearray) -> None:
        data[position] ^= 1 << bit

    edit(target, change)


def zero(target: Damageable, position: int, *, size: int) -> None:
    set_bytes(target, position, bytes(size))


def shrink(target: Damageable, *, by_bytes: int) -> None:
    def change(data: bytearray) -> None:
        del data[len(data) - by_bytes :]

    edit(target, change)


def grow(target: Damageable, tail: bytes) -> None:
    def change(data: bytearray) -> None:
        data += tail

    edit(target, change)


def fix_crc(target: Damageable, position: int = 0) -> None:
    """Store the right CRC in the batch at position; its size field must be right."""

    def change(data: bytearray) -> None:
        end = position + Header.unpack(data, position).size
        crc = reference.crc32c(bytes(data[position + reference.ATTRIBUTES_AT : end]))
        data[position + reference.CRC_AT : position + reference.ATTRIBUTES_AT] = crc.to_bytes(4, "big")

    edit(target, change)
