"""Goal: a search passes over batches without a match, and finds, refuses and counts what a search of each record would.
Method: random logs searched with small reads, beside a filter of all records; damage in batches passed over."""

from __future__ import annotations

import random
import re
import struct

import pytest

import kstore
from kstore._core import RecordMatcher
from kstore.cli.output import Progress
from kstore.cli.printing import cat
from kstore.cli.printing.cat import CatOptions, batches_of
from kstore.config import LogConfig
from kstore.log import plan
from kstore.record import RecordSearch
from tests.making.batches import batch, batches, flip_bit, patch_header, record, write_partition
from tests.reference.codec import write_batch, write_end_transaction_marker

SMALL_READS = LogConfig(read_chunk_bytes=4096)
LETTERS = b"abOR"
THREADS = (1, 3)


@pytest.fixture
def small_parts(monkeypatch):
    """Divide a file into parts of a few batches for the threads of a search."""
    monkeypatch.setattr(plan, "THREAD_RANGE_BYTES", 500)


def drawn_value(chosen: random.Random) -> bytes | None:
    size = chosen.choice((0, 1, 5, 40, 300, 900))
    return None if chosen.random() < 0.1 else bytes(chosen.choices(LETTERS, k=size))


def marker(offset: int, producer_id: int) -> bytes:
    place = {"timestamp_ms": 5, "producer_id": producer_id, "producer_epoch": 0}
    return write_end_transaction_marker(offset, **place, commit=True)


def drawn_batches(chosen: random.Random, count: int) -> list[bytes]:
    parts, offset = [], 0
    for _ in range(count):
        offset += chosen.choice((0, 0, 3))
        producer_id = chosen.choice((-1, 0, 7))
        if producer_id >= 0 and chosen.random() < 0.2:
            parts.append(marker(offset, producer_id))
            offset += 1
            continue
        held = [
            record(
                offset + n, drawn_value(chosen), drawn_value(chosen), headers=[(b"h", drawn_value(chosen))] * (n % 2)
            )
            for n in range(chosen.randrange(1, 5))
        ]
        of_producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
        parts.append(write_batch(held, codec=chosen.choice((0, 0, 0, 4)), **of_producer))
        offset += len(held)
    return parts


SEARCHES = (
    ({"value_regex": "ORab"}, lambda r, _: r.value is not None and b"ORab" in r.value),
    ({"value_regex": "O[Ra]+bbb"}, lambda r, _: r.value is not None and re.search(b"O[Ra]+bbb", r.value)),
    ({"key": b"R"}, lambda r, _: r.key == b"R"),
    ({"key_regex": "RRR"}, lambda r, _: r.key is not None and b"RRR" in r.key),
    ({"headers": {"h": b"a"}}, lambda r, _: ("h", b"a") in r.headers),
    ({"producer_id": 0}, lambda _, producer_id: producer_id == 0),
    ({"producer_id": -1}, lambda _, producer_id: producer_id == -1),
    ({"producer_id": 7, "value_regex": "O"}, lambda r, p: p == 7 and r.value is not None and b"O" in r.value),
)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("small_parts")
def test_search_finds_what_a_look_at_each_record_finds(tmp_path, seed, threads):
    chosen = random.Random(seed)
    parts = drawn_batches(chosen, 60)
    with kstore.open_log(write_partition(tmp_path, [parts[:25], parts[25:35], parts[35:]]), config=SMALL_READS) as log:
        held = [(one, part.producer_id) for part in log.batches() if not part.is_control for one in part]
        end = log.log_end_offset
        for conditions, has_it in SEARCHES:
            for start, stop in ((log.log_start_offset, end), (end // 3, end // 2), (end - 1, end)):
                expected = [one for one, producer_id in held if start <= one.offset < stop and has_it(one, producer_id)]
                assert [*log.find(RecordSearch(**conditions), start, stop, threads=threads)] == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_bytes_are_found_wherever_they_are_and_however_common_their_bytes_are(size):
    chosen = random.Random(size)
    for _ in range(400):
        wanted = bytes(chosen.choices(b"eeeQ\x00", k=size))
        value = bytes(chosen.choices(b"eQ\x00", weights=(20, chosen.choice((0, 1, 20)), 3), k=chosen.randrange(400)))
        chunk = write_batch([record(5, value)])
        matcher = RecordMatcher(value_part=wanted)
        passed = matcher.pass_over(
            chunk, position=0, end_position=len(chunk), least_offset=0, next_base_offset=None, max_batch_bytes=9999
        )
        # Bytes of the record beside its value count too: they can only keep a batch from being passed over.
        assert passed == ((0, -1) if wanted in chunk[61:] else (len(chunk), 5))
        assert wanted not in value or passed == (0, -1)


def pass_over(chunk, at=0, **changed):
    places = {"position": 0, "end_position": len(chunk), "least_offset": 0, "next_base_offset": None}
    return RecordMatcher(value_part=b"QQ").pass_over(chunk, at, **{**places, "max_batch_bytes": 9999, **changed})


def test_only_whole_and_sound_batches_are_passed_over():
    one, other = batch(3, 2), batch(5, 2)
    size = len(one)
    assert pass_over(one + other) == (size + len(other), 6)
    for missing in (1, 40):
        # The missing bytes follow in memory, so that only the size of the chunk shows that they are not of it.
        chunk = memoryview(one + other)[:-missing]
        assert pass_over(chunk, end_position=size + len(other)) == (size, 4)
    assert pass_over(one + other, end_position=size) == (size, 4)
    assert pass_over(one + other, size, position=size) == (len(other), 6)
    assert pass_over(one + other, least_offset=4) == (0, -1)
    assert pass_over(one + one) == (size, 4)
    assert pass_over(one + other, next_base_offset=6) == (size, 4)
    assert pass_over(one, max_batch_bytes=size - 1) == (0, -1)
    assert pass_over(one + patch_header(other, record_count=3)) == (size, 4)
    assert pass_over(one + patch_header(other, crc=1, repair_crc=False)) == (size, 4)
    assert pass_over(one + batch(5, 2, codec=4)) == (size, 4)
    assert pass_over(one + bytes(100)) == (size, 4)
    assert pass_over(b"") == (0, -1)


@pytest.mark.parametrize(("at", "position"), [(-1, 0), (9, 0), (0, -1), (0, 9)])
def test_place_outside_of_the_chunk_is_refused(at, position):
    with pytest.raises(ValueError, match="expected an index of 0 to 8 and a position of 0 to 8"):
        pass_over(bytes(8), at, position=position)


def test_damage_of_a_batch_without_a_match_is_an_error(tmp_path):
    parts = batches(0, 9, records_per_batch=2)
    path = write_partition(tmp_path, [parts])
    position = sum(map(len, parts[:4]))
    flip_bit(path / f"{0:020}.log", position + 70, bit=1)
    with kstore.open_log(path) as log:
        with pytest.raises(kstore.CorruptRecordError, match="CRC") as caught:
            list(log.find(RecordSearch(value_regex="QQ")))
        assert caught.value.position == position
        skipped = []
        found = log.find(RecordSearch(value_regex="v17"), on_error="skip", on_skip=skipped.append)
        assert [one.offset for one in found] == [17]
        assert [(one.first_missing_offset, one.last_missing_offset) for one in skipped] == [(8, 9)]


def outcome_of(path, expression, threads):
    """Return the offsets that a search finds, and the error that ends it."""
    found = []
    try:
        with kstore.open_log(path, config=SMALL_READS) as log:
            found += [one.offset for one in log.find(RecordSearch(value_regex=expression), threads=threads)]
    except kstore.KStoreError as error:
        return found, type(error), str(error)
    return found, None, ""


DAMAGE = (
    ("payload", lambda part: part[:70] + bytes((part[70] ^ 1,)) + part[71:]),
    ("size", lambda part: patch_header(part, batch_length=len(part) - 10, repair_crc=False)),
    ("large size", lambda part: patch_header(part, batch_length=len(part) + 30, repair_crc=False)),
    ("magic", lambda part: patch_header(part, magic=9, repair_crc=False)),
    ("offset", lambda part: patch_header(part, base_offset=1)),
    ("last offset", lambda part: patch_header(part, last_offset_delta=40)),
    ("nothing", bytes),
)


@pytest.mark.parametrize("damage", [damage for _, damage in DAMAGE], ids=[name for name, _ in DAMAGE])
@pytest.mark.usefixtures("small_parts")
def test_several_threads_meet_the_damage_that_one_meets(tmp_path, damage):
    sound = batches(0, 30, records_per_batch=3)
    for at in range(1, len(sound)):
        parts = [*sound[:at], damage(sound[at]), *sound[at + 1 :]]
        path = write_partition(tmp_path / str(at), [parts])
        for expression in ("QQ", "v.*[05]$"):
            assert outcome_of(path, expression, 3) == outcome_of(path, expression, 1)


@pytest.mark.usefixtures("small_parts")
def test_index_that_points_into_a_record_changes_no_answer(tmp_path):
    held = batches(100, 60, records_per_batch=1)
    whole = write_batch([record(0, b"".join(held))])
    path = write_partition(tmp_path, [[whole, *batches(200, 30, records_per_batch=1)]])
    position = whole.index(held[0])
    entries = bytearray()
    for number, part in enumerate(held):
        entries += struct.pack(">ii", 100 + number, position)
        position += len(part)
    (path / f"{0:020}.index").write_bytes(entries)
    for expression in ("QQ", "v2", "v"):
        assert outcome_of(path, expression, 3) == outcome_of(path, expression, 1)
    assert outcome_of(path, "v", 3)[0] == [0, *range(200, 230)]


@pytest.mark.usefixtures("small_parts")
def test_error_of_a_look_for_parts_changes_no_answer(tmp_path, monkeypatch):
    def fail(*_args, **_places):
        raise kstore.CorruptRecordError("a bad sector", path="x", position=1, expected=1, found=0)

    path = write_partition(tmp_path, [batches(0, 60, records_per_batch=1)])
    monkeypatch.setattr(plan, "_find_split_point", fail)
    assert outcome_of(path, "v5", 3) == ([5, *range(50, 60)], None, "")


@pytest.mark.parametrize("threads", [0, -1, 2**31])
def test_number_of_threads_that_can_not_be_is_refused(tmp_path, threads):
    with (
        kstore.open_log(write_partition(tmp_path, [batches(0, 2)])) as log,
        pytest.raises(ValueError, match="threads must be from 1 to"),
    ):
        log.find(RecordSearch(value_regex="v"), threads=threads)


def test_cat_looks_in_as_many_threads_as_there_are_cpus_and_at_most_four(tmp_path, monkeypatch):
    used = []
    monkeypatch.setattr(kstore.Log, "_batches_for", lambda *_, threads, **__: used.append(threads) or iter(()))
    wanted = CatOptions(start_offset=0, end_offset=60, search=RecordSearch(value_regex="v"))
    with kstore.open_log(write_partition(tmp_path, [batches(0, 2)])) as log:
        for cpus in (1, 3, 64):
            monkeypatch.setattr(cat, "usable_cpus", lambda cpus=cpus: cpus)
            list(batches_of(log, wanted))
    assert used == [1, 3, 4]


def test_offsets_that_go_back_after_batches_without_a_match_are_an_error(tmp_path):
    parts = [batch(0, 3), batch(3, 3), batch(2, 3)]
    with (
        kstore.open_log(write_partition(tmp_path, [parts])) as log,
        pytest.raises(kstore.KStoreError, match="base offset"),
    ):
        list(log.find(RecordSearch(value_regex="QQ")))


@pytest.mark.parametrize("cpus", THREADS)
@pytest.mark.usefixtures("small_parts")
def test_a_search_counts_the_bytes_that_it_passes_over(tmp_path, monkeypatch, cpus):
    monkeypatch.setattr(cat, "usable_cpus", lambda: cpus)
    parts = batches(0, 20, records_per_batch=3)
    with kstore.open_log(write_partition(tmp_path, [parts[:9], parts[9:]]), config=SMALL_READS) as log:
        for expression in ("QQ", "v30", "v"):
            progress = Progress()
            list(
                batches_of(
                    log,
                    CatOptions(start_offset=0, end_offset=60, search=RecordSearch(value_regex=expression)),
                    progress=progress,
                )
            )
            assert progress.done_bytes == log.size_in_bytes


@pytest.mark.parametrize("producer_id", [-2, 2**63])
def test_producer_id_that_no_batch_can_have_is_refused(producer_id):
    with pytest.raises(ValueError, match="producer_id must be from -1 to"):
        RecordSearch(producer_id=producer_id)
