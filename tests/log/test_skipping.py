"""Goal: each kind of damage costs a reader that goes on what the docstrings say, with one report for each range.
Method: small partitions with one fault each, read record by record and as columns; transactions around lost markers."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import SkippedRange
from kstore.arrow import record_batches
from kstore.config import LogConfig
from kstore.store.opening import open_log
from kstore.types import MAX_OFFSET, TopicPartition
from tests.making import batches as builders
from tests.making.batches import Layout, batch, record, write_partition
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codecs
from tests.reference.codec import (
    HEADER_BYTES,
    encode_record,
    read_batches,
    seal,
    write_batch,
    write_end_transaction_marker,
)

BATCHES = 9
PER_BATCH = 4
DATA = builders.batches(0, BATCHES, records_per_batch=PER_BATCH, value_bytes=20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three segments of three batches of four records, with an index entry for each batch but the first."""
    return write_partition(tmp_path, [DATA[:3], DATA[3:6], DATA[6:]], layout=Layout(index_interval_bytes=1))


def start(slot: int) -> int:
    """Return the position of a batch in its segment."""
    return sum(map(len, DATA[slot - slot % 3 : slot]))


def read(path: Path, **options: Any) -> tuple[list[int], list[SkippedRange]]:
    """The offsets that all readers give alike, and the ranges that they leave out alike."""
    skipped: list[SkippedRange] = []
    names = ["offset", "value"]
    with open_log(path, config=options.pop("config", None)) as log:
        offsets = [one.offset for one in log.read(on_error="skip", on_skip=skipped.append, **options)]
        for shape in ({}, {"threads": 2}, {"batch_bytes": 1}, {"binary": "view"}, {"batch_bytes": 90}):
            told: list[SkippedRange] = []
            tables = log.to_arrow_batches(columns=names, on_error="skip", on_skip=told.append, **shape, **options)
            assert [offset for table in tables for offset in table["offset"].to_pylist()] == offsets, shape
            assert told == skipped, shape
    return offsets, skipped


def segment(path: Path, base_offset: int) -> Path:
    return path / f"{base_offset:020d}.log"


def missing(skipped: list[SkippedRange]) -> list[tuple[int, int | None]]:
    return [(one.first_missing_offset, one.last_missing_offset) for one in skipped]


def without_indexes(path: Path) -> Path:
    for name in path.glob("*index"):
        name.unlink()
    return path


ALL = [*range(BATCHES * PER_BATCH)]


def test_undamaged_log_is_read_whole_and_nothing_is_reported(path: Path) -> None:
    assert read(path) == (ALL, [])
    assert read(without_indexes(path)) == (ALL, [])
    assert read(path, start_offset=5, end_offset=31) == (ALL[5:31], [])


def test_batch_with_a_wrong_crc_is_left_out_alone_with_its_place_and_the_reason_of_the_error(path: Path) -> None:
    log_file = segment(path, 12)
    position, size = start(4), len(DATA[4])
    builders.flip_bit(log_file, position + HEADER_BYTES + 3, bit=4)
    offsets, (skipped,) = read(path)
    assert offsets == ALL[:16] + ALL[20:]
    with open_log(path) as log, pytest.raises(kstore.CorruptRecordError) as caught:
        list(log.read())
    place = (TopicPartition("t", 0), str(log_file), position, size, 16, 19)
    assert skipped == SkippedRange(*place, reason=caught.value.reason)
    assert str(skipped) == (
        f"skipped offsets 16 to 19 of t-0: {size} bytes at position {position} of {log_file}: {caught.value.reason}"
    )
    assert pickle.loads(pickle.dumps(skipped)) == skipped


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("indexed", [True, False])
def test_damaged_size_costs_its_batch_alone(path: Path, bit: int, indexed: bool) -> None:
    builders.flip_bit(segment(path, 12), 11, bit=bit)
    offsets, skipped = read(path if indexed else without_indexes(path))
    assert (offsets, missing(skipped)) == (ALL[:12] + ALL[16:], [(12, 15)])


@pytest.mark.parametrize("base_offset", [0, 12, 24])
def test_segment_of_noise_is_left_out_and_the_next_one_is_read(path: Path, base_offset: int) -> None:
    log_file = segment(path, base_offset)
    log_file.write_bytes(bytes([0xAB]) * log_file.stat().st_size)
    offsets, (skipped,) = read(path)
    assert offsets == [offset for offset in ALL if not base_offset <= offset < base_offset + 12]
    last = None if base_offset == 24 else base_offset + 11
    assert (skipped.position, skipped.size_in_bytes) == (0, log_file.stat().st_size)
    assert missing([skipped]) == [(base_offset, last)]


def test_end_of_a_damaged_log_is_known_if_its_last_header_is_whole(path: Path) -> None:
    log_file = segment(path, 24)
    builders.flip_bit(log_file, log_file.stat().st_size - 1, bit=0)
    assert missing(read(path)[1]) == [(32, 35)]
    builders.set_bytes(log_file, start(8), b"\xee" * 70)
    offsets, skipped = read(path)
    assert (offsets, missing(skipped)) == (ALL[:32], [(32, None)])
    assert read(path, start_offset=31, end_offset=33) == ([31], skipped)


@pytest.mark.parametrize("tail", [b"\0" * 300, b"torn"])
def test_what_a_crash_leaves_at_the_end_is_no_damage(path: Path, tail: bytes) -> None:
    log_file = segment(path, 24)
    log_file.write_bytes(log_file.read_bytes() + (batch(36, 4)[:-5] if tail == b"torn" else tail))
    assert read(path) == (ALL, [])
    builders.flip_bit(log_file, HEADER_BYTES, bit=0)
    assert missing(read(path)[1]) == [(24, 27)]


def test_batch_that_is_half_written_into_preallocated_space_is_no_damage(path: Path) -> None:
    log_file = segment(path, 24)
    builders.flip_bit(log_file, HEADER_BYTES, bit=0)
    log_file.write_bytes(log_file.read_bytes() + batch(36, 4, value_bytes=50)[:-30] + bytes(500))
    offsets, skipped = read(path)
    assert (offsets, missing(skipped)) == (ALL[:24] + ALL[28:], [(24, 27)])


def test_damaged_size_that_looks_like_the_torn_end_of_a_log_hides_no_batch(path: Path) -> None:
    log_file = segment(path, 24)
    builders.flip_bit(log_file, 9, bit=6)
    with open_log(without_indexes(path)) as log:
        assert log.log_end_offset == 24
    offsets, skipped = read(path)
    assert (offsets, missing(skipped)) == (ALL[:24] + ALL[28:], [(24, 27)])


@pytest.mark.parametrize("byte", range(8))
@pytest.mark.parametrize("slot", [0, 1])
def test_wrong_base_offset_costs_its_own_batch_whichever_the_next_reader_would_blame(
    path: Path, byte: int, slot: int
) -> None:
    log_file = segment(path, 24)
    builders.flip_bit(log_file, start(6 + slot) + byte, bit=5)
    offsets, skipped = read(path)
    first = 24 + 4 * slot
    assert (offsets, missing(skipped)) == (ALL[:first] + ALL[first + 4 :], [(first, first + 3)])


def test_bytes_between_batches_cost_what_follows_them_without_proof(path: Path) -> None:
    log_file = segment(path, 12)
    content = log_file.read_bytes()
    position = start(5)
    log_file.write_bytes(content[:position] + b"\xee" * 200 + content[position:])
    offsets, (skipped,) = read(path)
    assert (offsets, missing([skipped])) == (ALL[:20] + ALL[24:], [(20, 23)])


def test_whole_batch_inside_a_damaged_one_is_not_read(tmp_path: Path) -> None:
    """Bad framing hides where the value begins, and what a producer stored in it proves nothing."""
    inner = batch(1, 1) + batch(2, 1)
    host = write_batch([record(0, b"x" * 40 + inner)])
    data = [host, *builders.batches(1, 6, value_bytes=30)]
    path = write_partition(tmp_path, [data], layout=Layout(index_interval_bytes=100))
    builders.set_bytes(segment(path, 0), 0, b"\xee" * 90)
    with open_log(path) as log:
        values = {one.offset: one.value for one in log.read(on_error="skip", on_skip=lambda _: None)}
    assert set(values) <= set(range(1, 7))
    assert all(len(value or b"") == 30 for value in values.values())


def test_batch_with_a_right_crc_and_an_impossible_last_offset_is_left_out(path: Path) -> None:
    log_file = segment(path, 12)
    data = log_file.read_bytes()[start(5) :]
    builders.set_bytes(log_file, start(5), builders.patch_header(data, last_offset_delta=-1))
    offsets, (skipped,) = read(path)
    assert (offsets, missing([skipped])) == (ALL[:20] + ALL[24:], [(20, 23)])
    assert (skipped.position, skipped.size_in_bytes) == (start(5), len(data))
    assert skipped.reason == "last offset delta does not fit: expected at least 0, found -1"


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP, codecs.LZ4])
def test_batch_with_a_right_crc_and_bad_records_gives_none_of_them(tmp_path: Path, codec: int) -> None:
    """Its rows may fill several tables before the fault shows."""
    whole = [batch(0, 8, value_bytes=60), batch(8, 8, value_bytes=60), batch(16, 8, value_bytes=60)]
    _, header, records = next(iter(read_batches(whole[1])))
    assert len(records) == 8
    repeated = [*records[:-1], records[-1]._replace(offset=records[-2].offset)]
    payload = b"".join(encode_record(one, header) for one in repeated)
    if codec:
        payload = codecs.compress(codec, payload)
    bad = seal(replace(header, attributes=codec), payload)
    path = write_partition(tmp_path, [[whole[0], batch(8, 8, value_bytes=60), whole[2]]])
    segment(path, 0).write_bytes(whole[0] + bad + whole[2])
    offsets, (skipped,) = read(without_indexes(path))
    assert offsets == [*range(8), *range(16, 24)]
    assert (skipped.position, skipped.size_in_bytes) == (len(whole[0]), len(bad))
    assert missing([skipped]) == [(8, 15)]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_and_wrappers_are_left_out_like_batches(tmp_path: Path, magic: int) -> None:
    def wrapper(last_offset: int, count: int) -> bytes:
        first = 0 if magic else last_offset - count + 1
        inner = [packed_entry(b"v", None, offset=first + n, magic=magic) for n in range(count)]
        return write_wrapper(inner, magic=magic, codec=codecs.GZIP, offset=last_offset)

    plain = [packed_entry(b"w", None, offset=offset, magic=magic) for offset in (0, 1, 6)]
    bad = wrapper(5, 4)
    bad = bad[:-9] + bytes([bad[-9] ^ 1]) + bad[-8:]
    last = wrapper(9, 3)
    path = write_partition(tmp_path, [[batch(0)]])
    sealed = bytearray(bad)
    builders.fix_crc(sealed)
    for data in (bad, bytes(sealed)):
        segment(path, 0).write_bytes(plain[0] + plain[1] + data + plain[2] + last)
        offsets, (skipped,) = read(without_indexes(path))
        assert offsets == [0, 1, 6, 7, 8, 9]
        assert missing([skipped]) == [(2, 5)]


def test_magic_that_kafka_does_not_define_is_damage_and_a_codec_is_not(path: Path) -> None:
    log_file = segment(path, 12)
    builders.set_byte(log_file, 16, value=7)
    assert missing(read(path)[1]) == [(12, 15)]
    builders.set_byte(log_file, 16, value=2)
    builders.set_byte(log_file, 22, value=6)
    builders.fix_crc(log_file)
    for take in (lambda log: log.read(on_error="skip"), lambda log: log.to_arrow_batches(on_error="skip")):
        with open_log(path) as log, pytest.raises(kstore.UnsupportedCompressionTypeError):
            list(take(log))


def test_limit_of_memory_is_no_damage(tmp_path: Path) -> None:
    headers = [(b"h", None)] * 1100
    path = write_partition(tmp_path, [[write_batch([record(0, b"v", headers=headers)])]])
    config = LogConfig(max_decompressed_bytes=20_000)
    for take in (lambda log: log.read(on_error="skip"), lambda log: log.to_arrow_batches(on_error="skip")):
        with open_log(path, config=config) as log, pytest.raises(kstore.MemoryLimitError):
            list(take(log))


def test_file_that_is_replaced_is_no_damage(path: Path) -> None:
    with open_log(path) as log:
        ranges = log.plan(max_bytes=1, on_error="skip")
        rows = log.read(on_error="skip", on_skip=pytest.fail)
        next(rows)
        content = segment(path, 24).read_bytes()
        segment(path, 24).unlink()
        segment(path, 24).write_bytes(bytes(len(content)))
        with pytest.raises(kstore.LogReplacedError):
            list(rows)
    with pytest.raises(kstore.LogReplacedError):
        list(record_batches(ranges, on_error="skip", on_skip=pytest.fail))


def test_file_that_is_written_again_in_place_is_no_damage(path: Path) -> None:
    """The planned positions are inside of the new batches, so that what is there looks damaged."""
    with open_log(path) as log:
        ranges = [one for one in log.plan(max_bytes=1, on_error="skip") if one.files[0].base_offset == 24][1:]
    others = builders.batches(24, 3, records_per_batch=PER_BATCH, value_bytes=400)
    builders.edit(segment(path, 24), lambda content: content.__setitem__(slice(None), b"".join(others)))
    for one in (*ranges, *(replace(one, last_batch=None) for one in ranges)):
        with pytest.raises(kstore.LogReplacedError):
            list(record_batches([one], on_error="skip", on_skip=pytest.fail))
    assert len(ranges) == 2


@pytest.mark.parametrize("name", ["read", "batches", "to_arrow_batches"])
def test_read_that_starts_again_tells_of_a_range_once(path: Path, name: str) -> None:
    """The files change before anything was returned, so that the same damage is met in a new listing."""
    builders.set_bytes(segment(path, 0), 0, b"\xee" * segment(path, 0).stat().st_size)
    skipped: list[SkippedRange] = []

    def tell(one: SkippedRange) -> None:
        skipped.append(one)
        replaced = segment(path, 12).with_suffix(".new")
        replaced.write_bytes(segment(path, 12).read_bytes())
        replaced.rename(segment(path, 12))

    with open_log(path) as log:
        assert len(list(getattr(log, name)(on_error="skip", on_skip=tell))) > 0
        assert log._source.listing_number == 1
    assert missing(skipped) == [(0, 11)]


def test_log_that_is_written_is_read_around_damage_too(path: Path) -> None:
    with open_log(path, "a") as log:
        builders.flip_bit(segment(path, 12), HEADER_BYTES, bit=0)
        skipped: list[SkippedRange] = []
        assert [one.offset for one in log.read(on_error="skip", on_skip=skipped.append)] == ALL[:12] + ALL[16:]
        assert missing(skipped) == [(12, 15)]
        tables = log.to_arrow_batches(columns=["offset"], on_error="skip", isolation="read_committed")
        assert sum(table.num_rows for table in tables) == 32


def test_damage_outside_of_the_offsets_that_are_read_is_not_reported(path: Path) -> None:
    builders.flip_bit(segment(path, 0), HEADER_BYTES, bit=0)
    builders.flip_bit(segment(path, 12), HEADER_BYTES, bit=0)
    assert read(path, start_offset=4, end_offset=12) == (ALL[4:12], [])
    assert missing(read(path, start_offset=3, end_offset=13)[1]) == [(3, 3), (12, 12)]
    assert read(path, start_offset=13, end_offset=14)[0] == []
    with open_log(path) as log, pytest.raises(kstore.OffsetOutOfRangeError):
        log.read(37, on_error="skip")


def test_range_that_is_left_out_is_logged_without_a_function_to_tell(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builders.flip_bit(segment(path, 12), HEADER_BYTES, bit=0)
    with open_log(path) as log:
        assert len(list(log.read(on_error="skip"))) == 32
    assert [one.split(":")[0] for one in caplog.messages] == ["skipped offsets 12 to 15 of t-0"]
    assert kstore.scan(path, on_error="skip", threads=2).to_table().num_rows == 32
    assert len(caplog.messages) == 2


def test_scan_tells_each_time_that_it_is_read(path: Path) -> None:
    builders.flip_bit(segment(path, 12), 11, bit=4)
    skipped: list[SkippedRange] = []
    scan = kstore.scan(path, columns=["offset"], on_error="skip", on_skip=skipped.append, start_offset=2)
    for count in (1, 2):
        assert scan.to_table()["offset"].to_pylist() == ALL[2:12] + ALL[16:]
        assert len(skipped) == count
    skipped.clear()
    late = kstore.scan(path, since=builders.FIRST_TIMESTAMP_MS + 10, on_error="skip", on_skip=skipped.append)
    assert late.to_table()["offset"].to_pylist() == ALL[10:12] + ALL[16:]
    assert missing(skipped) == [(12, 15)]


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"on_error": "ignore"}, ValueError), ({"on_skip": 5}, TypeError)],
    ids=["on_error", "on_skip"],
)
def test_unknown_ways_to_go_on_are_refused_at_once(path: Path, options: dict[str, Any], kind: type[Exception]) -> None:
    with open_log(path) as log:
        for read_log in (log.read, log.batches, log.to_arrow_batches):
            with pytest.raises(kind):
                read_log(**options)
    with pytest.raises(kind):
        kstore.scan(path, **options)


def test_batches_that_go_on_can_be_decoded(path: Path) -> None:
    builders.flip_bit(segment(path, 12), HEADER_BYTES, bit=0)
    skipped: list[SkippedRange] = []
    with open_log(path) as log:
        batches = list(log.batches(on_error="skip", on_skip=skipped.append))
    assert [one.offset for found in batches for one in found] == ALL[:12] + ALL[16:]
    assert missing(skipped) == [(12, 15)]


# Transactions


def data(offset: int, producer_id: int = 7) -> bytes:
    return batch(offset, 2, is_transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=offset)


def marker(offset: int, producer_id: int = 7, *, commit: bool) -> bytes:
    return write_end_transaction_marker(
        offset, timestamp_ms=1, producer_id=producer_id, producer_epoch=0, commit=commit
    )


def committed(tmp_path: Path, batches: list[bytes], damaged: int, *, repairs: bool = False) -> Any:
    path = write_partition(tmp_path, [batches])
    at = sum(map(len, batches[:damaged]))
    log_file = bytearray(segment(path, 0).read_bytes())
    log_file[at + len(batches[damaged]) - 1] ^= 1
    if repairs:
        log_file[at + HEADER_BYTES + 6] ^= 0x40
        builders.fix_crc(log_file, at)
    segment(path, 0).write_bytes(log_file)
    offsets, skipped = read(path, isolation="read_committed")
    with open_log(path) as log:
        assert log.plan(on_error="skip", isolation="read_committed") or not offsets
    return offsets, missing(skipped)


def test_transaction_whose_marker_is_lost_is_left_out_and_reported(tmp_path: Path) -> None:
    """The marker may have been an abort, and that at the end the commit of another transaction."""
    batches = [batch(0, 2), data(2), marker(4, commit=False), data(5), marker(7, commit=True), batch(8, 2)]
    assert committed(tmp_path, batches, 2) == ([0, 1, 5, 6, 8, 9], [(2, 3), (4, 4)])


def test_transaction_that_lost_data_loses_what_is_before_it_and_keeps_what_is_after(tmp_path: Path) -> None:
    batches = [data(0), data(2), data(4), marker(6, commit=True), batch(7, 2)]
    assert committed(tmp_path, batches, 1) == ([4, 5, 7, 8], [(0, 1), (2, 3)])


def test_transaction_that_is_decided_before_the_damage_is_certain(tmp_path: Path) -> None:
    batches = [data(0), marker(2, commit=True), data(3), marker(5, commit=False), batch(6, 2), data(8, 9)]
    assert committed(tmp_path, batches, 4) == ([0, 1], [(6, 7)])


def test_transaction_that_is_open_after_the_damage_ends_the_read(tmp_path: Path) -> None:
    batches = [batch(0, 2), batch(2, 2), data(4), batch(6, 2)]
    assert committed(tmp_path, batches, 1) == ([0, 1], [(2, 3)])


def test_lost_records_of_others_leave_no_doubt_about_offsets_that_are_not_read(tmp_path: Path) -> None:
    batches = [data(0), batch(2, 2), marker(4, commit=True), batch(5, 2)]
    path = write_partition(tmp_path, [batches])
    builders.flip_bit(segment(path, 0), len(batches[0]) + HEADER_BYTES, bit=0)
    offsets, skipped = read(path, isolation="read_committed", start_offset=1, end_offset=2)
    assert (offsets, missing(skipped)) == ([], [(1, 1)])
    assert "the transaction of producer 7 may have been aborted there: CRC mismatch" in skipped[0].reason


@pytest.mark.parametrize("max_bytes", [1, 200, 300])
def test_ranges_of_any_size_hold_only_the_offsets_that_were_asked_for(path: Path, max_bytes: int) -> None:
    with open_log(path) as log:
        for start_offset, end_offset in ((0, 36), (5, 31), (7, 8), (13, 21), (22, 24)):
            ranges = log.plan(start_offset=start_offset, end_offset=end_offset, max_bytes=max_bytes, on_error="skip")
            tables = record_batches(ranges, columns=["offset"], on_error="skip", on_skip=pytest.fail)
            offsets = [offset for table in tables for offset in table["offset"].to_pylist()]
            assert offsets == ALL[start_offset:end_offset]
            bounds = [one.start_offset for one in ranges] + [ranges[-1].end_offset]
            assert bounds == sorted(set(bounds))
            assert (bounds[0], bounds[-1]) == (start_offset, end_offset)


def test_time_is_looked_up_in_what_is_left(path: Path) -> None:
    first = builders.FIRST_TIMESTAMP_MS
    with open_log(without_indexes(path)) as log:
        assert log.offset_for_timestamp(first + 17, on_error="skip") == log.offset_for_timestamp(first + 17)
    builders.flip_bit(segment(path, 12), start(4) + HEADER_BYTES + 3, bit=4)
    with open_log(path) as log:
        assert log.offset_for_timestamp(first + 17, on_error="skip") == (20, first + 20)
        assert log.offset_for_timestamp(first + 99, on_error="skip") is None


def test_end_for_readers_is_that_of_what_they_read(path: Path) -> None:
    with open_log(path) as log:
        assert log._readable_end() == log._readable_end(on_error="skip") == (36, 36)
    builders.flip_bit(segment(path, 24), start(8) + 11, bit=0)
    with open_log(path) as log:
        assert log._readable_end(on_error="skip") == (32, MAX_OFFSET)
