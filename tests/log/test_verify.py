"""Goal: verify names every damaged range, once, and nothing that is right; behind damage it goes on.
Method: built logs without damage, then with one damage each: the exact file, position and size are expected."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.errors import StorageError
from kstore.log.damage import Damage
from kstore.log.damaged.check import SegmentCheck, Step
from kstore.log.verify import Verification, verify, verify_checkpoints
from kstore.store.opening import open_log
from tests.making.batches import (
    Layout,
    batch,
    batches,
    fix_crc,
    flip_bit,
    grow,
    patch_header,
    record,
    set_byte,
    set_bytes,
    shrink,
    write_partition,
    write_root,
    zero,
)
from tests.making.messages import packed_entry, write_wrapper
from tests.reference.codec import Header, write_batch, write_empty_batch, write_time_index

OLD = batches(0, 12, records_per_batch=3, value_bytes=60)
ACTIVE = batches(36, 12, records_per_batch=3, value_bytes=60)
AT = [sum(map(len, OLD[:number])) for number in range(len(OLD) + 1)]
SIZE = AT[-1]
LENGTHS = [len(data) for data in OLD]
ACTIVE_SIZE = sum(map(len, ACTIVE))
LAYOUT = Layout(index_interval_bytes=500)
LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"
ACTIVE_LOG = "00000000000000000036.log"
RECORD_COUNT = 72


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_partition(tmp_path, [OLD, ACTIVE], layout=LAYOUT)


def damages(directory: Path, *, deep: bool = True, config: LogConfig | None = None) -> list[tuple[str, int, int]]:
    """Return (file name, position, size) of each damage."""
    with open_log(directory, config=config) as log:
        return [(Path(path).name, position, size) for path, position, size, _ in verify(log, deep=deep)]


def reasons(directory: Path) -> list[str]:
    with open_log(directory) as log:
        return [damage.reason for damage in verify(log)]


LAYOUTS = [
    pytest.param(LAYOUT, id="closed"),
    pytest.param(Layout(index_interval_bytes=500, is_closed=False), id="active-and-preallocated"),
    pytest.param(Layout(index_interval_bytes=500, first_offset_keys=True), id="first-offset-keys"),
    pytest.param(Layout(index_interval_bytes=0), id="every-batch-indexed"),
]


@pytest.mark.parametrize("deep", [True, False], ids=["deep", "shallow"])
@pytest.mark.parametrize("value_bytes", [700, 1900, 9000])
def test_batches_that_are_read_in_parts_have_no_damage(tmp_path: Path, value_bytes: int, deep: bool) -> None:
    segment = batches(0, 20, records_per_batch=2, value_bytes=value_bytes)
    directory = write_partition(tmp_path, [segment])
    with open_log(directory, config=LogConfig(read_chunk_bytes=4096)) as log:
        verification = verify(log, deep=deep)
        assert list(verification) == []
        assert (verification.batch_count, verification.record_count) == (20, 40)


@pytest.mark.parametrize("deep", [True, False], ids=["deep", "shallow"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_log_without_damage_has_none(tmp_path: Path, layout: Layout, deep: bool) -> None:
    directory = write_partition(tmp_path, [OLD, ACTIVE], layout=layout)
    with open_log(directory) as log:
        verification = verify(log, deep=deep)
        assert list(verification) == []
        assert (verification.batch_count, verification.record_count) == (24, RECORD_COUNT)
        assert list(verification) == []
        assert (verification.batch_count, verification.record_count) == (24, RECORD_COUNT)


def test_what_compaction_leaves_is_no_damage(tmp_path: Path) -> None:
    segment = [
        write_empty_batch(0, last_offset=9, max_timestamp_ms=1_600_000_000_500),
        write_batch([record(11), record(17)], last_offset=20),
        write_batch([record(40)]),
    ]
    directory = write_partition(tmp_path, [segment, []], layout=Layout(index_interval_bytes=0))
    assert damages(directory) == []


def test_missing_indexes_are_no_damage(directory: Path) -> None:
    for path in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
        path.unlink()
    assert damages(directory) == []


def test_record_of_the_year_1970_alone_in_its_segment_is_no_padding(tmp_path: Path) -> None:
    segments = [[write_batch([record(0, timestamp_ms=0)])], [write_batch([record(1, timestamp_ms=0)])]]
    directory = write_partition(tmp_path, segments)
    assert (directory / TIME_INDEX).read_bytes() == bytes(12)
    assert damages(directory) == []


def flip(at: int) -> Callable[[Path], None]:
    return lambda path: set_byte(path, at, value=path.read_bytes()[at] ^ 0x40)


def put(at: int, new: bytes) -> Callable[[Path], None]:
    return lambda path: set_bytes(path, at, new)


def header_of(number: int, **fields: int) -> bytes:
    return patch_header(OLD[number], **fields)[:61]


def replace_batch(number: int, **fields: int) -> Callable[[Path], None]:
    """Change header fields and store the CRC that fits."""
    return put(AT[number], patch_header(OLD[number], **fields))


def set_record_count(path: Path) -> None:
    set_bytes(path, AT[3], header_of(3, record_count=2))
    fix_crc(path, AT[3])


BATCH_DAMAGES = [
    pytest.param(flip(AT[3] + 70), [(AT[3], LENGTHS[3])], "CRC mismatch", id="record-byte"),
    pytest.param(flip(AT[3] + 20), [(AT[3], LENGTHS[3])], "CRC mismatch", id="stored-crc"),
    pytest.param(flip(AT[0] + 70), [(AT[0], LENGTHS[0])], "CRC mismatch", id="first-batch"),
    pytest.param(flip(AT[11] + 70), [(AT[11], LENGTHS[11])], "CRC mismatch", id="last-batch"),
    pytest.param(flip(AT[3] + 16), [(AT[3], LENGTHS[3])], "unsupported magic", id="magic"),
    pytest.param(
        put(AT[3], header_of(3, batch_length=5)), [(AT[3], LENGTHS[3])], "smaller than its header", id="size-small"
    ),
    pytest.param(
        put(AT[3], header_of(3, batch_length=-1)), [(AT[3], LENGTHS[3])], "smaller than its header", id="size-negative"
    ),
    pytest.param(
        put(AT[3], header_of(3, batch_length=LENGTHS[3] - 13)),
        [(AT[3], LENGTHS[3])],
        "CRC mismatch",
        id="size-less-one",
    ),
    pytest.param(
        put(AT[3], header_of(3, batch_length=LENGTHS[3] - 11)),
        [(AT[3], LENGTHS[3])],
        "CRC mismatch",
        id="size-plus-one",
    ),
    pytest.param(
        put(AT[3], header_of(3, batch_length=10**6)),
        [(AT[3], LENGTHS[3])],
        "runs past the end",
        id="size-past-the-end",
    ),
    pytest.param(
        put(AT[3], header_of(3, batch_length=2**31 - 1)), [(AT[3], LENGTHS[3])], "larger than the limit", id="size-huge"
    ),
    pytest.param(lambda path: zero(path, AT[3], size=LENGTHS[3]), [(AT[3], LENGTHS[3])], "zero bytes", id="zeroed"),
    pytest.param(
        lambda path: zero(path, AT[3] + 30, size=AT[6] - AT[3]),
        [(AT[3], LENGTHS[3]), (AT[4], AT[7] - AT[4])],
        "CRC mismatch",
        id="zeroed-across-batches",
    ),
    pytest.param(
        put(AT[3], header_of(3, base_offset=2)),
        [(AT[3], LENGTHS[3])],
        "not above the last offset",
        id="offset-back",
    ),
    pytest.param(
        put(AT[3], header_of(3, base_offset=20)), [(AT[3], LENGTHS[3])], "offsets jump ahead", id="offset-ahead"
    ),
    pytest.param(
        put(AT[3], header_of(3, base_offset=35)), [(AT[3], LENGTHS[3])], "into the next segment", id="next-segment"
    ),
    pytest.param(
        put(AT[3], header_of(3, base_offset=-5)),
        [(AT[3], LENGTHS[3])],
        "base offset out of range",
        id="offset-negative",
    ),
    pytest.param(
        replace_batch(3, attributes=5), [(AT[3], LENGTHS[3])], "unsupported compression type 5", id="unknown-codec"
    ),
    pytest.param(
        replace_batch(3, last_offset_delta=-1),
        [(AT[3], LENGTHS[3])],
        "delta does not fit",
        id="negative-delta",
    ),
    pytest.param(set_record_count, [(AT[3], LENGTHS[3])], "bytes left after the last record", id="record-count"),
    pytest.param(lambda path: shrink(path, by_bytes=10), [(AT[11], LENGTHS[11] - 10)], "runs past the end", id="cut"),
    pytest.param(lambda path: shrink(path, by_bytes=LENGTHS[11] - 20), [(AT[11], 20)], "past the end", id="cut-short"),
    pytest.param(lambda path: grow(path, bytes(100)), [(SIZE, 100)], "zero bytes", id="zero-tail"),
    pytest.param(lambda path: grow(path, b"\xaa" * 100), [(SIZE, 100)], "unsupported magic", id="garbage-tail"),
    pytest.param(lambda path: grow(path, b"\xaa" * 10), [(SIZE, 10)], "past the end", id="short-tail"),
]


@pytest.mark.parametrize(("damage", "expected", "reason"), BATCH_DAMAGES)
@pytest.mark.parametrize("read_chunk_bytes", [4096, 1 << 20], ids=["4-kib", "1-mib"])
def test_damaged_range_is_named_and_the_rest_is_checked(
    directory: Path,
    damage: Callable[[Path], None],
    expected: list[tuple[int, int]],
    reason: str,
    read_chunk_bytes: int,
) -> None:
    for path in (directory / INDEX, directory / TIME_INDEX):
        path.unlink()
    damage(directory / LOG)
    with open_log(directory, config=LogConfig(read_chunk_bytes=read_chunk_bytes)) as log:
        verification = verify(log)
        found = list(verification)
        assert [(Path(path).name, position, size) for path, position, size, _ in found] == [
            (LOG, position, size) for position, size in expected
        ]
        assert reason in found[0].reason
        lost = sum(position <= at < position + size for at in AT[:-1] for position, size in expected)
        assert verification.batch_count == 24 - lost
        assert verification.record_count == RECORD_COUNT - 3 * lost


def test_each_of_several_damages_is_named(directory: Path) -> None:
    (directory / INDEX).unlink()
    (directory / TIME_INDEX).unlink()
    for number in (1, 5, 6, 9):
        flip(AT[number] + 80)(directory / LOG)
    assert damages(directory) == [(LOG, AT[number], LENGTHS[number]) for number in (1, 5, 6, 9)]


def test_batch_at_an_offset_after_which_there_is_none_is_damage(directory: Path) -> None:
    active = directory / ACTIVE_LOG
    data = bytearray(active.read_bytes())
    at = len(data) - len(ACTIVE[-1])
    data[at : at + 8] = (2**63 - 3).to_bytes(8, "big")  # of three records, so that the last one is at 2^63 - 1
    active.write_bytes(data)
    (directory / ACTIVE_LOG.replace(".log", ".index")).unlink()
    (directory / ACTIVE_LOG.replace(".log", ".timeindex")).unlink()
    assert (ACTIVE_LOG, at, len(ACTIVE[-1])) in damages(directory)
    assert any(reason.startswith("base offset out of range: expected at most") for reason in reasons(directory))


def test_records_are_decoded_only_if_deep(directory: Path) -> None:
    set_record_count(directory / LOG)
    assert damages(directory) == [(LOG, AT[3], LENGTHS[3])]
    assert damages(directory, deep=False) == []


ACTIVE_TAILS = [
    pytest.param(lambda path: grow(path, bytes(5000)), [], id="preallocated"),
    pytest.param(lambda path: grow(path, bytes(3)), [], id="three-zeros"),
    pytest.param(lambda path: grow(path, ACTIVE[0][:50]), [(ACTIVE_SIZE, 50)], id="torn-header"),
    pytest.param(lambda path: grow(path, ACTIVE[0][:-1]), [(ACTIVE_SIZE, len(ACTIVE[0]) - 1)], id="torn-batch"),
    pytest.param(lambda path: grow(path, bytes(100) + b"x"), [(ACTIVE_SIZE, 101)], id="zeros-and-more"),
]


@pytest.mark.parametrize(("damage", "expected"), ACTIVE_TAILS)
def test_end_of_the_last_segment_may_be_preallocated_but_not_torn(
    directory: Path, damage: Callable[[Path], None], expected: list[tuple[int, int]]
) -> None:
    damage(directory / ACTIVE_LOG)
    assert damages(directory) == [(ACTIVE_LOG, position, size) for position, size in expected]


def test_valid_batches_behind_a_hole_of_zeros_are_found(directory: Path) -> None:
    """A power cut can leave unsynced pages empty with written ones behind them."""
    log = directory / ACTIVE_LOG
    at = len(ACTIVE[0]) + len(ACTIVE[1])
    zero(log, at, size=len(ACTIVE[2]))
    index, time_index = log.with_suffix(".index"), log.with_suffix(".timeindex")
    index.unlink()
    time_index.unlink()
    assert damages(directory) == [(ACTIVE_LOG, at, len(ACTIVE[2]))]


def test_search_for_the_next_batch_has_bounded_work(tmp_path: Path) -> None:
    """Every place looks like a batch that fills the file; without a limit the CRCs would be quadratic."""
    size = 60_000
    fake = struct.pack(">qiibIh", 0, 30_000, 0, 2, 0, 0)
    directory = write_partition(tmp_path, [[]])
    (directory / LOG).write_bytes(b"\x01" + fake * (size // len(fake)))

    with open_log(directory) as log:
        read_before = []
        records = log.segments[0].records
        original = records.read_bytes

        def counted(count: int, *, position: int) -> bytes:
            read_before.append(count)
            return original(count, position=position)

        records.read_bytes = counted
        assert [damage[1:3] for damage in verify(log)] == [(0, log.segments[0].size_in_bytes)]
    assert sum(read_before) < 20 * size


def test_batches_in_a_value_are_doubtful_and_not_counted(tmp_path: Path) -> None:
    stored = batch(3, 1) + batch(4, 1)
    host = write_batch([record(2, b"v"), record(3, b"v"), record(4, b"v", headers=[(b"h", stored)])])
    first, last = [batch(0, 1), batch(1, 1)], [batch(offset, 1) for offset in range(5, 9)]
    path = write_partition(tmp_path, [[*first, host, *last]])
    at = sum(map(len, first))
    zero(path / LOG, at, size=61)
    inside = at + host.index(stored)
    with open_log(path) as log:
        verification = verify(log)
        found = [damage for damage in verification if damage.path.endswith(".log")]
    assert [(one.position, one.size_in_bytes) for one in found] == [(at, inside - at), (inside, len(stored))]
    assert found[1].reason.startswith("doubtful: 2 whole batches, offsets 3 to 4")
    assert (verification.batch_count, verification.record_count) == (6, 6)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_of_an_old_format_is_not_called_damage_until_a_bit_of_it_flips(directory: Path, magic: int) -> None:
    entry = packed_entry(b"v", b"k", offset=1000, magic=magic)
    grow(directory / ACTIVE_LOG, entry)
    assert damages(directory) == []
    flip_bit(directory / ACTIVE_LOG, ACTIVE_SIZE + len(entry) - 1, bit=0)
    assert damages(directory) == [(ACTIVE_LOG, ACTIVE_SIZE, len(entry))]


def test_incomplete_message_at_the_end_of_a_wrapper_is_reported_only_deep(directory: Path) -> None:
    whole, cut = (packed_entry(b"v", b"k", offset=offset, magic=1) for offset in (0, 1))
    grow(directory / ACTIVE_LOG, write_wrapper([whole, cut[:20]], magic=1, codec=1, offset=1000))
    with open_log(directory) as log:
        assert list(verify(log, deep=False)) == []
        (damage,) = verify(log)
    assert (damage.position, damage.reason.partition(": ")[2]) == (ACTIVE_SIZE, "20 bytes")


def read_entries(path: Path) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">ii" if path.suffix == ".index" else ">qi", path.read_bytes()))


def change_entry(name: str, slot: int, *, key: int = 0, place: int = 0) -> Callable[[Path], None]:
    """Add to the key and the place of one entry; a negative slot counts from the end."""

    def change(directory: Path) -> None:
        path = directory / name
        entries = read_entries(path)
        entries[slot] = (entries[slot][0] + key, entries[slot][1] + place)
        form = ">ii" if path.suffix == ".index" else ">qi"
        path.write_bytes(b"".join(struct.pack(form, *entry) for entry in entries))

    return change


INDEX_DAMAGES = [
    pytest.param(change_entry(INDEX, 1, place=1), INDEX, [(8, 8)], "not the start of a batch", id="position-inside"),
    pytest.param(
        change_entry(INDEX, 1, place=10**6), INDEX, [(8, 8)], "past the end of the log", id="position-outside"
    ),
    pytest.param(change_entry(INDEX, 1, place=-(10**6)), INDEX, [(8, 8)], "out of order", id="position-negative"),
    pytest.param(change_entry(INDEX, 1, key=-3), INDEX, [(8, 8)], "below", id="offset-of-the-batch-before"),
    pytest.param(change_entry(INDEX, 1, key=4), INDEX, [(8, 8)], "above 17", id="offset-behind-the-next-position"),
    pytest.param(change_entry(INDEX, 1, key=9), INDEX, [(8, 8)], "above 17", id="offset-behind-the-next-entry"),
    pytest.param(change_entry(INDEX, 1, key=-9), INDEX, [(8, 8)], "out of order", id="offset-back"),
    pytest.param(change_entry(INDEX, -1, key=10), INDEX, [(32, 8)], "above 35", id="last-offset-behind-the-segment"),
    pytest.param(
        change_entry(TIME_INDEX, 1, key=1), TIME_INDEX, [(12, 12)], "the largest up to offset", id="timestamp-high"
    ),
    pytest.param(
        change_entry(TIME_INDEX, 1, key=-1), TIME_INDEX, [(12, 12)], "the largest up to offset", id="timestamp-low"
    ),
    pytest.param(
        change_entry(TIME_INDEX, 1, key=-(10**12)), TIME_INDEX, [(12, 12)], "out of order", id="timestamp-back"
    ),
    pytest.param(change_entry(TIME_INDEX, 1, place=-20), TIME_INDEX, [(12, 12)], "out of order", id="time-offset-back"),
    pytest.param(
        change_entry(TIME_INDEX, -1, place=5), TIME_INDEX, [(60, 12)], "above 35", id="time-offset-behind-the-segment"
    ),
    pytest.param(
        lambda directory: grow(directory / INDEX, b"\x01\x02\x03"), INDEX, [(40, 3)], "not a multiple", id="odd-index"
    ),
    pytest.param(
        lambda directory: grow(directory / TIME_INDEX, b"\x00"),
        TIME_INDEX,
        [(72, 1)],
        "not a multiple",
        id="odd-timeindex",
    ),
    pytest.param(
        lambda directory: grow(directory / INDEX, bytes(80)), INDEX, [(40, 80)], "zero entries", id="padded-index"
    ),
    pytest.param(
        lambda directory: grow(directory / TIME_INDEX, bytes(24)), TIME_INDEX, [(72, 24)], "zero", id="padded-timeindex"
    ),
]


@pytest.mark.parametrize(("damage", "name", "expected", "reason"), INDEX_DAMAGES)
def test_damaged_index_entry_is_named(
    directory: Path, damage: Callable[[Path], None], name: str, expected: list[tuple[int, int]], reason: str
) -> None:
    assert (len(read_entries(directory / INDEX)), len(read_entries(directory / TIME_INDEX))) == (5, 6)
    damage(directory)
    assert damages(directory) == [(name, position, size) for position, size in expected]
    assert reason in reasons(directory)[0]


def test_neighbouring_wrong_entries_are_one_damage(directory: Path) -> None:
    (directory / INDEX).write_bytes(struct.pack(">ii", 3, AT[1] + 1) + struct.pack(">ii", 9, AT[3] + 1))
    assert damages(directory) == [(INDEX, 0, 16)]
    assert reasons(directory)[0].endswith("(and 1 more)")


def test_indexes_of_an_emptied_segment_are_damage(directory: Path) -> None:
    (directory / LOG).write_bytes(b"")
    assert damages(directory) == [(INDEX, 0, 40), (TIME_INDEX, 0, 72)]


def test_index_of_another_segment_is_damage(directory: Path) -> None:
    other = batches(0, 9, records_per_batch=4, value_bytes=80)
    donor = write_partition(directory.parent, [other], topic="u", layout=LAYOUT)
    for name in (INDEX, TIME_INDEX):
        (directory / name).write_bytes((donor / name).read_bytes())
    assert {name for name, _, _ in damages(directory)} == {INDEX, TIME_INDEX}


UNTIMED = [packed_entry(b"v" * 60, None, offset=offset, magic=0) for offset in range(4)]
TIMED = [packed_entry(b"v" * 60, None, offset=offset, magic=1, timestamp_ms=offset) for offset in range(4, 8)]
TIMES = {
    "left-out-by-the-format": ([(900, 1), (950, 3), (960, 6)], []),
    "left-out-then-smaller": ([(900, 3)], []),
    "below-one-that-is-there": ([(3, 4)], [(TIME_INDEX, 0, 12)]),
    "out-of-order": ([(900, 1), (900, 3)], [(TIME_INDEX, 12, 12)]),
}


@pytest.mark.parametrize(("entries", "expected"), TIMES.values(), ids=TIMES)
def test_timestamps_that_messages_of_v0_could_not_keep_are_no_damage(
    tmp_path: Path, entries: list[tuple[int, int]], expected: list[tuple[str, int, int]]
) -> None:
    directory = write_partition(tmp_path, [OLD])
    (directory / LOG).write_bytes(b"".join([*UNTIMED, *TIMED]))
    (directory / INDEX).write_bytes(b"")
    (directory / TIME_INDEX).write_bytes(write_time_index(entries))
    assert damages(directory) == expected


def test_damage_in_the_log_is_not_charged_to_the_indexes(directory: Path) -> None:
    zero(directory / LOG, AT[2], size=AT[8] - AT[2])
    assert damages(directory) == [(LOG, AT[2], AT[8] - AT[2])]


def test_index_ahead_of_a_log_that_has_grown_is_no_damage(directory: Path) -> None:
    with open_log(directory) as log:
        more = [*ACTIVE, *batches(72, 12, records_per_batch=3, value_bytes=60)]
        grown = write_partition(directory.parent, [OLD, more], topic="u", layout=LAYOUT)
        for path in grown.iterdir():
            (directory / path.name).write_bytes(path.read_bytes())
        assert list(verify(log)) == []


def test_link_in_place_of_an_index_is_named(directory: Path) -> None:
    (directory / INDEX).unlink()
    (directory / INDEX).symlink_to("/etc/hostname")
    assert damages(directory) == [(INDEX, 0, 0)]


def test_malformed_leader_epochs_are_named(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    assert damages(directory) == [("leader-epoch-checkpoint", 0, 8)]
    assert reasons(directory) == ["expected 2 entries, found 1"]


def test_leader_epochs_that_cannot_be_read_are_named(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").unlink()
    (directory / "leader-epoch-checkpoint").symlink_to("/etc/hostname")
    assert damages(directory) == [("leader-epoch-checkpoint", 0, 0)]


def test_malformed_checkpoints_of_a_root_are_named(tmp_path: Path) -> None:
    root = write_root(tmp_path / "data", {"t-0": [OLD]})
    assert list(verify_checkpoints(str(root))) == []
    (root / "recovery-point-offset-checkpoint").write_text("0\nx\n")
    (root / "replication-offset-checkpoint").unlink()
    (root / "meta.properties").write_text("version=x\n")
    assert [(Path(path).name, position, size) for path, position, size, _ in verify_checkpoints(str(root))] == [
        ("recovery-point-offset-checkpoint", 0, 4),
        ("meta.properties", 0, 10),
    ]


def test_failing_disk_is_an_error_not_damage(directory: Path) -> None:
    class FailingEnv(LocalEnv):
        def open_read(self, path: str) -> object:
            raise StorageError(f"cannot open {path}: Input/output error", path=path, errno=5)

    with open_log(directory, env=FailingEnv()) as log, pytest.raises(StorageError):
        list(verify(log))


def test_damage_and_verification_are_plain_values(directory: Path) -> None:
    flip(AT[3] + 70)(directory / LOG)
    with open_log(directory) as log:
        verification = verify(log)
        assert isinstance(verification, Verification)
        (damage,) = verification
    assert damage == Damage(str(directory / LOG), AT[3], LENGTHS[3], damage.reason)
    assert Header.unpack((directory / LOG).read_bytes(), AT[3]).size == damage.size_in_bytes


def test_verified_bytes_grow_batch_by_batch_up_to_the_size_of_the_log(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip_bit(directory / LOG, AT[2] + 70, bit=0)
    seen: list[int] = []

    class Watched(SegmentCheck):
        def steps(self, position: int = 0, *, least_offset: int | None = None) -> Iterator[Step]:
            for step in super().steps(position, least_offset=least_offset):
                yield step
                seen.append(verification.verified_bytes)

    monkeypatch.setattr("kstore.log.verify.SegmentCheck", Watched)
    with open_log(directory) as log:
        verification = verify(log)
        assert len(list(verification)) == 1
        assert verification.verified_bytes == log.size_in_bytes
    # The damaged segment is verified twice: the count stands still meanwhile.
    assert seen == AT[1:] + [SIZE] * len(OLD) + [SIZE + sum(map(len, ACTIVE[: n + 1])) for n in range(len(ACTIVE))]
