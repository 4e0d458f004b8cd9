"""Goal: salvage takes as a batch of the log what is proven to be one, and keeps the rest in quarantine by name.
Method: small logs whose values hold batches that could pass for the log's own are damaged in one stated way."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.log.damaged.order import WholeBatch, longest_in_order
from kstore.log.files.names import PartitionDirectory
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.making.batches import (
    Layout,
    batch,
    batches,
    flip_bit,
    grow,
    patch_header,
    record,
    set_bytes,
    write_partition,
    zero,
)
from tests.making.messages import packed_entry
from tests.reference.codec import Header, encode_record, write_batch

LAYOUT = Layout(index_interval_bytes=100)
CONFIG = LogConfig(index_interval_bytes=100)
HEADER_BYTES = 61
SIZE_AT, MAGIC_AT = 8, 16


def load(path: Path, *, config: LogConfig = CONFIG, dry_run: bool = False) -> LoadedLog:
    directory = PartitionDirectory(TopicPartition("t", 0), str(path), str(path.parent))
    return load_log(directory, config=config, mode="salvage", dry_run=dry_run)


def keys(path: Path) -> list[tuple[int, bytes | None]]:
    with open_log(path) as log:
        return [(one.offset, one.key) for one in log.read()]


def log_of(path: Path) -> Path:
    return path / f"{0:020d}.log"


def partition(root: Path, segment: list[bytes], *, is_indexed: bool = True) -> Path:
    path = write_partition(root, [segment], layout=LAYOUT)
    if not is_indexed:
        for suffix in (".index", ".timeindex"):
            log_of(path).with_suffix(suffix).unlink()
    return path


def evil(offset: int) -> bytes:
    return write_batch([record(offset, b"PAY 1000000", b"evil")])


def host(offset: int, stored: bytes, *, count: int = 1) -> bytes:
    """A batch that ends with bytes of the producer's choice: the value of a header."""
    made = [record(offset + n, b"v", b"k%d" % (offset + n)) for n in range(count - 1)]
    last = record(offset + count - 1, b"v", b"k%d" % (offset + count - 1), headers=[(b"h", stored)])
    return write_batch([*made, last])


def after(start: int, count: int) -> list[bytes]:
    return batches(start, count, value_bytes=60)


@pytest.mark.parametrize("bit", range(32))
def test_size_with_a_flipped_bit_is_put_right_by_the_crc(tmp_path: Path, bit: int) -> None:
    segment = [*batches(0, 2), host(2, evil(2) + evil(3)), *after(3, 2)]
    path = partition(tmp_path, segment, is_indexed=False)
    start = sum(map(len, segment[:2]))
    flip_bit(log_of(path), start + 11 - bit // 8, bit=bit % 8)
    loaded = load(path)
    assert log_of(path).read_bytes() == b"".join(segment)
    (damage,) = loaded.report.damage
    assert (damage.position, damage.size_in_bytes) == (start, len(segment[2]))
    assert damage.reason.endswith(f"expected {len(segment[2])} by the CRC")
    assert loaded.report.truncated_bytes == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_size_of_a_message_is_put_right_by_its_crc(tmp_path: Path, magic: int) -> None:
    stored = packed_entry(b"PAY", b"evil", offset=1, magic=magic)
    segment = [packed_entry(value, b"k", offset=at, magic=magic) for at, value in enumerate((b"a", stored, b"c"))]
    path = partition(tmp_path, [batch(0)])
    log_of(path).write_bytes(b"".join(segment))
    set_bytes(log_of(path), len(segment[0]) + SIZE_AT, (len(segment[1]) - len(stored) - 12).to_bytes(4, "big"))
    load(path)
    assert log_of(path).read_bytes() == b"".join(segment)


def test_batch_in_a_value_is_doubtful_where_size_and_content_around_it_are_damaged(tmp_path: Path) -> None:
    stored = evil(2)
    segment = [*batches(0, 2), host(2, b"upload:" + stored + b":end"), *after(3, 3)]
    path = partition(tmp_path, segment)
    start = sum(map(len, segment[:2]))
    inside = start + segment[2].index(stored)
    set_bytes(log_of(path), start + SIZE_AT, (inside - start - 12).to_bytes(4, "big"))
    flip_bit(log_of(path), start + HEADER_BYTES, bit=0)
    before = log_of(path).read_bytes()
    dry = load(path, dry_run=True).report
    report = load(path).report
    assert b"evil" not in dict(map(reversed, keys(path)))
    doubtful = [one for one in report.damage if one.reason.startswith("doubtful")]
    assert [(one.position, one.size_in_bytes) for one in doubtful] == [(inside, len(stored))]
    assert "offsets 2 to 2" in doubtful[0].reason
    assert stored in [Path(one).read_bytes() for one in report.quarantined]
    assert sum(one.size_in_bytes for one in report.damage) == report.truncated_bytes
    assert report.truncated_bytes == len(before) - log_of(path).stat().st_size
    assert dry.damage == report.damage


def destroyed(root: Path, *, is_indexed: bool) -> tuple[Path, list[bytes]]:
    """A log in which the header of a batch is gone, whose last bytes are batches that fit in exactly."""
    segment = [*batches(0, 2), host(2, evil(3) + evil(4), count=3), *after(5, 8)]
    path = partition(root, segment, is_indexed=is_indexed)
    zero(log_of(path), sum(map(len, segment[:2])), size=HEADER_BYTES)
    return path, segment


def test_chain_that_fits_between_its_neighbours_ends_where_the_index_proves_a_batch(tmp_path: Path) -> None:
    path, _ = destroyed(tmp_path, is_indexed=True)
    load(path)
    found = keys(path)
    assert b"evil" not in [key for _, key in found]
    assert [at for at, _ in found][:2] == [0, 1]
    assert {at for at, _ in found} >= set(range(7, 13))


def test_batches_in_the_order_of_the_log_after_a_lost_header_stay_without_those_of_its_records(tmp_path: Path) -> None:
    path, _ = destroyed(tmp_path, is_indexed=False)
    report = load(path).report
    assert keys(path) == [(at, b"k%d" % at) for at in (0, 1, *range(5, 13))]
    (doubtful,) = [one for one in report.damage if one.reason.startswith("doubtful")]
    assert "2 whole batches, offsets 3 to 4" in doubtful.reason
    assert evil(3) + evil(4) in b"".join(Path(one).read_bytes() for one in report.quarantined)


def test_batches_between_two_lost_headers_that_a_value_may_hold_are_kept_in_quarantine(tmp_path: Path) -> None:
    segment = after(0, 8)
    path = partition(tmp_path, segment, is_indexed=False)
    for slot in (2, 5):
        zero(log_of(path), sum(map(len, segment[:slot])), size=HEADER_BYTES)
    report = load(path).report
    assert [at for at, _ in keys(path)] == [0, 1, 6, 7]
    (doubtful,) = [one for one in report.damage if one.reason.startswith("doubtful")]
    assert "2 whole batches, offsets 3 to 4" in doubtful.reason
    assert b"".join(segment[3:5]) in b"".join(Path(one).read_bytes() for one in report.quarantined)


@pytest.mark.parametrize(("lost", "doubtful"), [((2, 76), ()), ((2, 76, 79), (77, 78))])
def test_more_batches_between_two_lost_headers_than_the_lost_bytes_can_have_records_stay(
    tmp_path: Path, lost: tuple[int, ...], doubtful: tuple[int, ...]
) -> None:
    segment = after(0, 80)
    path = partition(tmp_path, segment, is_indexed=False)
    for slot in lost:
        zero(log_of(path), sum(map(len, segment[:slot])), size=HEADER_BYTES)
    load(path)
    assert [at for at, _ in keys(path)] == [at for at in range(80) if at not in (*lost, *doubtful)]


@pytest.mark.parametrize("tail", [b"", bytes(300), bytes(17), "cut short", "half written", "header"])
def test_batches_after_a_lost_header_stay_before_what_a_crash_leaves_at_the_end(
    tmp_path: Path, tail: bytes | str
) -> None:
    segment, coming = after(0, 8), after(8, 1)[0]
    tails = {"cut short": coming[:-9], "half written": coming[:80] + bytes(500), "header": coming[:10]}
    path = partition(tmp_path, segment, is_indexed=False)
    zero(log_of(path), sum(map(len, segment[:2])), size=HEADER_BYTES)
    with log_of(path).open("ab") as file:
        file.write(tails[tail] if isinstance(tail, str) else tail)
    load(path)
    assert [at for at, _ in keys(path)] == [0, 1, *range(3, 8)]


def test_number_of_lost_headers_costs_no_other_batch(tmp_path: Path) -> None:
    segment = after(0, 1200)
    path = partition(tmp_path, segment, is_indexed=False)
    lost = range(2, 1200, 50)
    for slot in lost:
        zero(log_of(path), sum(map(len, segment[:slot])), size=HEADER_BYTES)
    load(path)
    assert [at for at, _ in keys(path)] == [at for at in range(1200) if at not in lost]


@pytest.mark.parametrize("end", [b"\0", b":end", b"\0" * 9, b"end of a value"])
def test_batch_in_the_last_value_of_a_log_is_doubtful_whatever_follows_it(tmp_path: Path, end: bytes) -> None:
    last = write_batch([record(2, b"v"), record(3, b"." * 40 + evil(3) + end)])
    path = partition(tmp_path, [*after(0, 2), last], is_indexed=False)
    # Everything before it is lost, as if zeros lay between two batches.
    zero(log_of(path), sum(map(len, after(0, 2))), size=last.index(evil(3)))
    load(path)
    assert b"evil" not in [key for _, key in keys(path)]


@pytest.mark.parametrize("is_last", [True, False])
def test_message_in_the_value_of_an_old_one_is_doubtful_where_the_size_of_the_value_is_lost(
    tmp_path: Path, is_last: bool
) -> None:
    stored = packed_entry(b"PAY", b"evil", offset=5, magic=1)
    values = [b"a", b"upload:" + stored, *([] if is_last else [b"c"])]
    offsets = (0, 1, 9)
    segment = [packed_entry(value, b"k", offset=at, magic=1) for at, value in zip(offsets, values, strict=False)]
    path = partition(tmp_path, [batch(0)], is_indexed=False)
    log_of(path).write_bytes(b"".join(segment))
    zero(log_of(path), len(segment[0]), size=len(segment[1]) - len(stored))
    load(path)
    assert b"evil" not in [key for _, key in keys(path)]


def test_batches_of_a_lower_epoch_than_those_before_them_are_doubtful(tmp_path: Path) -> None:
    segment = [write_batch([record(at, b"v", b"k%d" % at)], partition_leader_epoch=3) for at in range(4)]
    older = write_batch([record(5, b"v", b"k5")], partition_leader_epoch=2)
    path = partition(tmp_path, [*segment, older], is_indexed=False)
    zero(log_of(path), sum(map(len, segment[:3])), size=len(segment[3]))
    load(path)
    assert [at for at, _ in keys(path)] == [0, 1, 2]


def test_gap_of_offsets_in_a_log_that_has_no_others_keeps_a_row_out(tmp_path: Path) -> None:
    segment = [*after(0, 4), *after(6, 1), *after(8, 2)]
    path = partition(tmp_path, segment, is_indexed=False)
    zero(log_of(path), sum(map(len, segment[:3])), size=len(segment[3]))
    load(path)
    assert [at for at, _ in keys(path)] == [0, 1, 2]
    compacted = [*after(0, 1), *after(2, 4), *after(8, 1), *after(10, 2)]
    path = partition(tmp_path / "compacted", compacted, is_indexed=False)
    zero(log_of(path), sum(map(len, compacted[:4])), size=len(compacted[4]))
    load(path)
    assert [at for at, _ in keys(path)] == [0, 2, 3, 4, 8, 10, 11]


def test_row_longer_than_the_largest_batch_is_in_no_batch(tmp_path: Path) -> None:
    segment = after(0, 12)
    path = partition(tmp_path, segment, is_indexed=False)
    at = sum(map(len, segment[:3]))
    content = log_of(path).read_bytes()
    log_of(path).write_bytes(content[:at] + b"\xee" * 100 + content[at:])
    load(path, config=LogConfig(max_batch_bytes=len(segment[0])))
    assert [at for at, _ in keys(path)] == [0, 1, 2, *range(4, 12)]


def test_index_proves_batches_that_have_moved_by_what_was_removed(tmp_path: Path) -> None:
    segment = after(0, 12)
    path = partition(tmp_path, segment)
    content = log_of(path).read_bytes()
    cut = len(segment[0])
    log_of(path).write_bytes(content[: 2 * cut + 30] + content[3 * cut + 70 :])
    load(path)
    assert [at for at, _ in keys(path)][:2] == [0, 1]
    assert {at for at, _ in keys(path)} >= set(range(6, 12))


def test_damaged_batch_is_passed_by_its_size_where_nothing_speaks_against_it(tmp_path: Path) -> None:
    segment = after(0, 6)
    path = partition(tmp_path, segment, is_indexed=False)
    for slot in (2, 3):
        flip_bit(log_of(path), sum(map(len, segment[:slot])) + 90, bit=0)
    load(path)
    assert [at for at, _ in keys(path)] == [0, 1, 4, 5]


@pytest.mark.parametrize("magic", [0, 1, 3, 0x82])
def test_wrong_magic_byte_is_put_right(tmp_path: Path, magic: int) -> None:
    segment = after(0, 3)
    path = partition(tmp_path, segment)
    set_bytes(log_of(path), len(segment[0]) + MAGIC_AT, bytes([magic]))
    assert load(path).report.truncated_bytes == 0
    assert log_of(path).read_bytes() == b"".join(segment)


@pytest.mark.parametrize("offset", [100, 0])
def test_wrong_offset_of_one_batch_changes_that_of_no_other(tmp_path: Path, offset: int) -> None:
    segment = after(0, 5)
    changed = [*segment[:3], patch_header(segment[3], repair_crc=False, base_offset=offset), segment[4]]
    path = partition(tmp_path, segment)
    log_of(path).write_bytes(b"".join(changed))
    load(path)
    assert log_of(path).read_bytes() == b"".join(segment)


def test_wrong_offset_next_to_lost_bytes_is_taken_from_the_batch_after_it(tmp_path: Path) -> None:
    segment = after(0, 6)
    changed = patch_header(segment[3], repair_crc=False, base_offset=1)
    path = partition(tmp_path, segment)
    log_of(path).write_bytes(b"".join([*segment[:3], changed, *segment[4:]]))
    flip_bit(log_of(path), sum(map(len, segment[:2])) + 90, bit=0)
    load(path)
    assert [at for at, _ in keys(path)][:2] == [0, 1]
    assert {at for at, _ in keys(path)} >= {4, 5}
    assert 2 not in dict(keys(path))


def spans(*offsets: tuple[int, int]) -> list[WholeBatch]:
    return [WholeBatch(100 * slot, 100, last, last - first) for slot, (first, last) in enumerate(offsets)]


@pytest.mark.parametrize(
    ("offsets", "kept"),
    [
        (((0, 1), (2, 2), (3, 9)), {0, 1, 2}),
        (((0, 1), (50, 50), (3, 3)), {0, 2}),
        (((0, 9), (5, 6), (10, 11)), {1, 2}),
        (((0, 1), (200, 201), (2, 3)), {0, 2}),
        (((-1, 0), (1, 2)), {1}),
        ((), set()),
    ],
)
def test_most_batches_in_order_keep_their_offsets(offsets: tuple[tuple[int, int], ...], kept: set[int]) -> None:
    assert longest_in_order(spans(*offsets), range(100)) == kept


@pytest.mark.parametrize("dry_run", [True, False])
def test_preallocated_space_between_segments_is_no_damage(tmp_path: Path, dry_run: bool) -> None:
    path = write_partition(tmp_path, [after(0, 3), after(3, 3)])
    grow(log_of(path), bytes(5000))
    report = load(path, dry_run=dry_run).report
    assert (report.damage, report.quarantined, report.log_end_offset) == ((), (), 6)
    assert log_of(path).read_bytes() == b"".join(after(0, 3)) + bytes(5000 if dry_run else 0)


# What a stray segment at offset 5 of a log of offsets 0 to 9 and 10 to 19 holds.
STRAYS = {
    "empty": b"",
    "zeros": bytes(300),
    "garbage": b"\x5a" * 300,
    "other-records": b"".join(batches(5, 3)),
    "the-same-records": b"".join(after(5, 5)),
    "beyond-the-next": b"".join(batches(5, 9)),
    "below-its-base": b"".join(batches(1, 2)),
}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("name", "is_last"),
    [*((name, False) for name in STRAYS), ("empty", True), ("zeros", True), ("garbage", True), ("other-records", True)],
)
def test_stray_segment_inside_another_goes_and_changes_nothing_else(
    tmp_path: Path, name: str, is_last: bool, dry_run: bool
) -> None:
    segments = [after(0, 10)] if is_last else [after(0, 10), after(10, 10)]
    path = write_partition(tmp_path, segments, layout=LAYOUT)
    before = {one.name: one.read_bytes() for one in path.glob("*.log")}
    stray, content = path / f"{5:020d}.log", STRAYS[name]
    stray.write_bytes(content)
    loaded = load(path, dry_run=dry_run)
    assert loaded.log_end_offset == 10 * len(segments)
    report = loaded.report
    assert (report.deleted_segments, report.truncated_bytes) == ((5,), 0)
    (damage,) = report.damage
    assert (damage.path, damage.position, damage.size_in_bytes) == (str(stray), 0, len(content))
    assert damage.reason.startswith("stray segment")
    if not dry_run:
        assert {one.name: one.read_bytes() for one in path.glob("*.log")} == before
        assert Path(report.quarantined[0]).read_bytes() == content
        assert load(path).report.is_unharmed


def test_segment_that_holds_more_than_what_runs_into_it_is_no_stray(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [[*after(0, 10), *batches(10, 4)], after(10, 10)])
    report = load(path).report
    assert report.deleted_segments == ()
    assert log_of(path).read_bytes() == b"".join(after(0, 10))


def test_one_wrong_offset_makes_no_stray_segment_of_the_next_one(tmp_path: Path) -> None:
    # The offset of the last batch is damaged, and so is the only batch of the next segment.
    first = after(0, 10)
    path = write_partition(tmp_path, [first, after(10, 1)], layout=LAYOUT)
    last = patch_header(first[-1], repair_crc=False, base_offset=9 | 1 << 20)
    log_of(path).write_bytes(b"".join([*first[:-1], last]))
    flip_bit(path / f"{10:020d}.log", 90, bit=0)
    report = load(path).report
    assert report.deleted_segments == ()
    assert log_of(path).read_bytes() == b"".join(first)


def test_empty_stray_segment_goes_beside_a_gap_of_offsets(tmp_path: Path) -> None:
    segment = [*after(0, 3), *after(8, 1)]
    path = write_partition(tmp_path, [segment], layout=LAYOUT)
    (path / f"{5:020d}.log").write_bytes(b"")
    assert load(path).report.deleted_segments == (5,)
    assert log_of(path).read_bytes() == b"".join(segment)


def test_damage_in_a_segment_with_a_stray_one_inside_costs_the_damaged_batch(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [after(0, 10), after(10, 10)], layout=LAYOUT)
    (path / f"{5:020d}.log").write_bytes(b"".join(batches(5, 2)))
    flip_bit(log_of(path), sum(map(len, after(0, 7))) + 90, bit=0)
    assert load(path).report.deleted_segments == (5,)
    assert [at for at, _ in keys(path)] == [at for at in range(20) if at != 7]


def test_offset_that_is_a_little_too_high_changes_that_of_no_other_batch(tmp_path: Path) -> None:
    segment = batches(0, 4, records_per_batch=3, value_bytes=60)
    changed = [*segment[:2], patch_header(segment[2], repair_crc=False, base_offset=8), segment[3]]
    path = partition(tmp_path, segment)
    log_of(path).write_bytes(b"".join(changed))
    load(path)
    assert log_of(path).read_bytes() == b"".join(segment)


@pytest.mark.parametrize("is_indexed", [False, True])
def test_chain_up_to_the_end_of_the_log_is_doubtful(tmp_path: Path, is_indexed: bool) -> None:
    chain = evil(3)
    while (len(chain) + 75).bit_count() != 1:
        chain = write_batch([record(3, b"P" * (len(chain) - 70), b"evil")])
        if len(chain).bit_count() == 1:
            break
    # A record of the producer's choice before it, as if a batch ended there.
    before = encode_record(record(2, b"v", b"k2"), Header(base_offset=2))
    last = host(2, b"." * (len(chain) - 80 - len(before)) + before + chain)
    path = partition(tmp_path, [*after(0, 2), last], is_indexed=is_indexed)
    start = sum(map(len, after(0, 2)))
    set_bytes(log_of(path), start + SIZE_AT, (len(last) - len(chain) - 12).to_bytes(4, "big"))
    flip_bit(log_of(path), start + HEADER_BYTES, bit=0)
    load(path)
    assert [at for at, _ in keys(path)] == [0, 1]


def test_batch_in_a_value_that_a_size_leads_to_is_contradicted_by_the_next_of_the_log(tmp_path: Path) -> None:
    stored = evil(3)
    segment = [*batches(0, 2), host(2, b"upload:" + stored + b":end"), *after(3, 3)]
    path = partition(tmp_path, segment, is_indexed=False)
    start = sum(map(len, segment[:2]))
    set_bytes(log_of(path), start + SIZE_AT, (segment[2].index(stored) - 12).to_bytes(4, "big"))
    flip_bit(log_of(path), start + HEADER_BYTES, bit=0)
    load(path)
    assert keys(path) == [(0, b"k0"), (1, b"k1")]
