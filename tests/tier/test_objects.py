"""Goal: a file of a segment has the bytes that were uploaded, asks for each chunk once, and damage of one chunk is
damage of that chunk. Method: segments uploaded by this test's own writer in each form, read whole, in parts and after
one object was damaged, through an Env that counts what is read."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kstore import (
    CorruptIndexError,
    CorruptRecordError,
    LogConfig,
    MemoryLimitError,
    RemoteSegmentError,
    TierKeyError,
)
from kstore._core import ColumnBuffer
from kstore.env import DEFAULT_ENV, LocalEnv, ReadFile
from kstore.env.tiered import ShownDirectory, TieredEnv
from kstore.errors import StorageError
from kstore.log.files.names import LEADER_EPOCH_CHECKPOINT
from kstore.tier import objects
from kstore.tier.keys import KeyRing
from kstore.tier.listing import list_tier
from kstore.tier.objects import AbsentView, ChunkedFile, LogView, SegmentPlace, SideFileView, TextView
from tests.fakes.counting import CountingEnv
from tests.making.batches import batches, edit, flip_bit, shrink
from tests.making.tiers import Tier, Uploaded, key

BATCHES = batches(5, 12, value_bytes=60)
DATA = b"".join(BATCHES)
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compressed": {"is_compressed": True},
    "encrypted": {"key": key()},
    "both": {"is_compressed": True, "key": key()},
    "both of 2023": {"is_compressed": True, "key": key(), "layout": "aiven-2023"},
    "local": {"layout": "local"},
}


class _Nothing:
    """Shows no file."""

    def directories(self, _path: str) -> list[str]:
        return []

    def directory(self, _path: str) -> ShownDirectory | None:
        return None

    def is_partition(self, _path: str) -> bool:
        return False

    def forget(self, _path: str) -> None:
        """Does nothing."""


def env_over(remote: LocalEnv = DEFAULT_ENV) -> TieredEnv:
    return TieredEnv(None, remote, _Nothing())


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    return KeyRing.of({"key1": key().write(tmp_path)})


def place_of(made: Uploaded, tier: Tier, keys: KeyRing) -> SegmentPlace:
    return SegmentPlace(made.stem, made.segment_id, tier.layout != "local", keys)


def log_of(made: Uploaded, tier: Tier, keys: KeyRing, **cut: int) -> LogView:
    return LogView(place_of(made, tier, keys), made.size, made.start, made.end, **cut)


@pytest.mark.parametrize("form", FORMS)
def test_a_log_has_the_bytes_that_were_uploaded(form: str, keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **FORMS[form])
    view, env = log_of(tier.upload(BATCHES), tier, keys), env_over()
    with view.open(env, "/shown/5.log") as file:
        assert file.size() == len(DATA) == view.status(env).size_in_bytes
        assert file.path == "/shown/5.log"
        for position in range(0, len(DATA) + 50, 37):
            for size in (0, 1, 61, 200, 401, len(DATA)):
                assert file.pread(size, position=position) == DATA[position : position + size]
                buffer = bytearray(size)
                done = file.pread_into(buffer, position=position)
                assert buffer[:done] == DATA[position : position + size]
        assert file.holds(DATA[100:161], position=100)
        assert file.is_listed(view.status(env).file)


@pytest.mark.parametrize("form", FORMS)
def test_a_part_of_a_log_is_a_file_of_its_own(form: str, keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **FORMS[form])
    view, env = log_of(tier.upload(BATCHES), tier, keys, start=130, end=700), env_over()
    with view.open(env, "/shown/6.log") as file:
        assert file.size() == 570 == view.status(env).size_in_bytes
        assert file.pread(1000, position=0) == DATA[130:700]
        assert file.pread(100, position=560) == DATA[690:700]
        assert file.pread(100, position=570) == b""


@pytest.mark.parametrize("form", FORMS)
def test_side_files_have_the_bytes_that_were_uploaded(form: str, keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **FORMS[form])
    made = tier.upload(BATCHES, ((0, 0), (3, 7)), aborted=b"t" * 34, snapshot=b"producers")
    (stored,) = list_tier(DEFAULT_ENV, str(tier.path)).of(list_tier(DEFAULT_ENV, str(tier.path)).partitions[0])
    expected = {".snapshot": b"producers", ".txnindex": b"t" * 34, LEADER_EPOCH_CHECKPOINT: b"0\n2\n0 0\n3 7\n"}
    for suffix, content in expected.items():
        view = SideFileView(place_of(made, tier, keys), suffix, stored.object_suffix(suffix))
        assert view.read(env_over(), "shown") == content
        assert view.status(env_over()).size_in_bytes == len(content)


def test_a_chunk_is_requested_and_decoded_once(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True, key=key())
    made = tier.upload(BATCHES)
    remote = CountingEnv()
    with log_of(made, tier, keys).open(env_over(remote), "5.log") as file:
        for _ in range(3):
            assert file.pread(100, position=250) == DATA[250:350]
            assert file.pread(20, position=300) == DATA[300:320]
    assert remote.read_names == [made.path(".rsm-manifest").name]
    assert 0 < remote.log_bytes <= 300


def test_readers_of_a_segment_have_its_decoded_chunks_in_common(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True, key=key())
    made = tier.upload(BATCHES)
    remote = CountingEnv()
    env, view = env_over(remote), log_of(made, tier, keys)
    with view.open(env, "5.log") as one, view.open(env, "5.log") as other:
        for file in (one, other, one):
            assert file.pread(len(DATA), position=0) == DATA
    assert remote.log_bytes == made.path(".log").stat().st_size


def test_nothing_of_a_segment_is_kept_once_its_files_are_closed(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True)
    view, env = log_of(tier.upload(BATCHES), tier, keys), env_over()
    before = objects._CHUNKS._weight
    with view.open(env, "5.log") as file:
        file.pread(len(DATA), position=0)
        assert objects._CHUNKS._weight == before + len(DATA)
    assert objects._CHUNKS._weight == before


def test_a_reader_in_order_keeps_no_chunk_that_it_has_read_whole(keys: KeyRing, tmp_path: Path) -> None:
    """The first and the last one of what it announced may be those of other readers too."""
    tier = Tier(path=tmp_path / "tier", is_compressed=True)
    made = tier.upload(BATCHES)
    before, remote = objects._CHUNKS._weight, CountingEnv()
    buffer = bytearray(100)
    with log_of(made, tier, keys).open(env_over(remote), "5.log") as file:
        file.will_read(position=100, end_position=700)
        for position in range(100, 700, 100):
            assert file.pread_into(buffer, position=position) == 100
            assert buffer == DATA[position : position + 100]
            assert objects._CHUNKS._weight - before <= 400
        # Of 200 bytes each, those from 0 and from 600 on.
        assert objects._CHUNKS._weight - before == 400
        read = remote.log_bytes
        file.pread(100, position=0)
        file.pread(100, position=700)
        assert remote.log_bytes == read


@pytest.mark.parametrize("form", ["encrypted", "both"])
def test_a_part_is_what_a_chunk_has_from_a_position_on(
    form: str, keys: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = Tier(path=tmp_path / "tier", **FORMS[form])
    made, env = tier.upload(BATCHES), env_over()
    with log_of(made, tier, keys).open(env, "5.log") as file:
        assert not file.has_parts
        assert file.part_at(0) is None
    monkeypatch.setattr(objects, "_LEAST_PART_BYTES", 200)
    with log_of(made, tier, keys).open(env, "5.log") as file:
        assert file.has_parts
        for position in range(0, len(DATA), 37):
            part = file.part_at(position)
            assert part == DATA[position : (position // 200 + 1) * 200]
            assert part.readonly
        assert file.part_at(len(DATA)) == b""
    with log_of(made, tier, keys, start=130, end=700).open(env, "6.log") as file:
        assert file.has_parts
        assert file.part_at(0) == DATA[130:200]
        assert file.part_at(500) == DATA[630:700]
        assert file.part_at(570) == b""


def test_a_reader_by_parts_keeps_no_chunk_that_it_has_passed(
    keys: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_LEAST_PART_BYTES", 200)
    tier = Tier(path=tmp_path / "tier", is_compressed=True, key=key())
    made = tier.upload(BATCHES)
    before, remote = objects._CHUNKS._weight, CountingEnv()
    with log_of(made, tier, keys).open(env_over(remote), "5.log") as file:
        file.will_read(position=0, end_position=len(DATA))
        for position in range(0, len(DATA), 50):
            assert file.part_at(position) == DATA[position : (position // 200 + 1) * 200]
            assert objects._CHUNKS._weight - before <= 200
    assert remote.log_bytes == made.path(".log").stat().st_size


def test_a_damaged_chunk_takes_no_place_among_those_that_are_kept(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True)
    made = tier.upload(BATCHES)
    shrink(made.path(".log"), by_bytes=1)
    before = objects._CHUNKS._weight
    with log_of(made, tier, keys).open(env_over(), "5.log") as file:
        with pytest.raises(CorruptRecordError):
            file.pread(1, position=len(DATA) - 1)
        assert objects._CHUNKS._weight == before


def test_a_place_to_split_is_looked_for_after_the_start_of_a_chunk(keys: KeyRing, tmp_path: Path) -> None:
    size = 1 << 20
    tier = Tier(path=tmp_path / "tier", is_compressed=True, chunk_bytes=size)
    with log_of(tier.upload(BATCHES), tier, keys).open(env_over(), "5.log") as file:
        after = 128 * 1024
        for target, position, expected in (
            (2 * size, 0, 2 * size + after),
            (5 * size - 1, 2 * size, 5 * size + after),
            (5 * size + size // 3, after, 5 * size + after),
            (2 * size - 1, 0, 2 * size - 1),
        ):
            assert file.split_target(target, position=position) == expected
    small = Tier(path=tmp_path / "small", is_compressed=True)
    with log_of(small.upload(BATCHES), small, keys).open(env_over(), "5.log") as file:
        assert file.split_target(700, position=0) == 700


def test_a_manifest_is_requested_once_for_all_files_of_a_segment(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", key=key())
    made = tier.upload(BATCHES, aborted=b"t" * 34)
    remote = CountingEnv()
    env = env_over(remote)
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        SideFileView(place_of(made, tier, keys), suffix, suffix).read(env, "shown")
    with log_of(made, tier, keys).open(env, "5.log") as file:
        file.pread(1, position=0)
    assert remote.read_names == [made.path(".rsm-manifest").name]


@pytest.mark.parametrize("form", ["compressed", "encrypted", "both"])
def test_damage_of_a_chunk_is_of_that_chunk(form: str, keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **FORMS[form])
    made = tier.upload(BATCHES)
    with log_of(made, tier, keys).open(env_over(), "5.log") as file:
        assert isinstance(file, ChunkedFile)
        chunk = file._chunks.chunk(2)
    # A frame without a checksum says nothing about a bit of its content: that is for the CRC of the batch.
    place = chunk.stored_position if form == "compressed" else chunk.stored_position + chunk.stored_bytes // 2
    flip_bit(made.path(".log"), place, bit=3)
    with log_of(made, tier, keys).open(env_over(), "5.log") as file:
        assert file.pread(400, position=0) == DATA[:400]
        assert file.pread(1000, position=600) == DATA[600:]
        for position, size in ((400, 1), (599, 1), (0, 401), (0, 10_000)):
            with pytest.raises(CorruptRecordError, match="chunk 2") as caught:
                file.pread(size, position=position)
            assert (caught.value.position, caught.value.path) == (400, "5.log")
        around = file.around_damage()
        assert around.pread(10_000, position=0) == DATA[:400] + b"\xff" * 200 + DATA[600:]


def test_chunks_that_were_swapped_decrypt_and_are_found_by_their_batches(keys: KeyRing, tmp_path: Path) -> None:
    """Nothing binds a chunk to its number."""
    tier = Tier(path=tmp_path / "tier", key=key())
    made = tier.upload(BATCHES)
    stored = made.path(".log").read_bytes()
    size = 228
    made.path(".log").write_bytes(stored[size : 2 * size] + stored[:size] + stored[2 * size :])
    with log_of(made, tier, keys).open(env_over(), "5.log") as file:
        assert file.pread(400, position=0) == DATA[200:400] + DATA[:200]


@pytest.mark.parametrize("form", FORMS)
def test_an_object_that_was_cut_has_the_chunks_before_the_cut(form: str, keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **FORMS[form])
    made = tier.upload(BATCHES)
    shrink(made.path(".log"), by_bytes=1)
    with log_of(made, tier, keys).open(env_over(), "5.log") as file:
        assert file.size() == len(DATA)
        with pytest.raises(CorruptRecordError, match="damage"):
            file.pread(1, position=len(DATA) - 1)
        if form not in ("plain", "local"):
            assert file.pread(1000, position=0) == DATA[:1000]
        assert len(file.around_damage().pread(len(DATA), position=0)) == len(DATA)


def damaged_manifest(made: Uploaded, change: Callable[[dict[str, Any]], None]) -> None:
    fields = json.loads(made.path(".rsm-manifest").read_text())
    change(fields)
    made.path(".rsm-manifest").write_text(json.dumps(fields))


def test_a_segment_whose_manifest_is_damaged_or_of_another_size_is_absent(keys: KeyRing, tmp_path: Path) -> None:
    for number, change in enumerate(
        (lambda fields: fields.update(version="7"), lambda fields: fields["chunkIndex"].update(originalFileSize=1))
    ):
        tier = Tier(path=tmp_path / str(number))
        made = tier.upload(BATCHES)
        damaged_manifest(made, change)
        with log_of(made, tier, keys).open(env_over(), "5.log") as file:
            assert file.size() == made.size
            with pytest.raises(RemoteSegmentError, match="rsm-manifest") as caught:
                file.pread(1, position=0)
            assert (caught.value.first_offset, caught.value.last_offset) == (5, 16)
            assert set(file.around_damage().pread(10_000, position=0)) == {0xFF}


def test_a_chunk_that_claims_a_gigabyte_is_refused_before_it_is_made(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", key=key(), chunk_bytes=1 << 20)
    made = tier.upload(BATCHES)
    size = 1 << 30

    def claim(fields: dict[str, Any]) -> None:
        fields["chunkIndex"].update(originalChunkSize=size, originalFileSize=size)

    damaged_manifest(made, claim)
    view = LogView(place_of(made, tier, keys), size, made.start, made.end)
    with view.open(env_over(), "5.log") as file, pytest.raises(MemoryLimitError) as caught:
        file.pread(1, position=0)
    assert (caught.value.limit, caught.value.found) == (LogConfig().max_decrypted_bytes, size)
    assert caught.value.option == "max_decrypted_bytes"


def test_a_frame_that_holds_more_than_its_chunk_is_damage(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True, chunk_bytes=10_000)
    made = tier.upload(BATCHES)

    def claim(fields: dict[str, Any]) -> None:
        fields["chunkIndex"].update(originalFileSize=100)

    damaged_manifest(made, claim)
    view = LogView(place_of(made, tier, keys), 100, made.start, made.end)
    with view.open(env_over(), "5.log") as file, pytest.raises(CorruptRecordError, match="chunk 0"):
        file.pread(1, position=0)


def test_a_frame_that_holds_less_than_its_chunk_is_damage(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True, chunk_bytes=10_000)
    made = tier.upload(BATCHES)
    more = made.size + 10

    def claim(fields: dict[str, Any]) -> None:
        fields["chunkIndex"].update(originalFileSize=more)

    damaged_manifest(made, claim)
    view = LogView(place_of(made, tier, keys), more, made.start, made.end)
    with view.open(env_over(), "5.log") as file, pytest.raises(CorruptRecordError, match="plain bytes"):
        file.pread(1, position=0)


def test_a_damaged_side_file_is_one_that_cannot_be_read(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", key=key())
    made = tier.upload(BATCHES)
    flip_bit(made.path(".indexes"), 20, bit=0)
    view = SideFileView(place_of(made, tier, keys), ".timeindex", ".timeindex")
    with pytest.raises(CorruptIndexError, match="tag"):
        view.read(env_over(), "5.timeindex")
    with pytest.raises(StorageError, match="tag"):
        view.open(env_over(), "5.timeindex")
    shrink(made.path(".indexes"), by_bytes=made.path(".indexes").stat().st_size)
    with pytest.raises(CorruptIndexError, match="bytes at position"):
        view.read(env_over(), "5.timeindex")


def test_a_missing_key_is_an_error_of_the_segment(tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", key=key())
    made = tier.upload(BATCHES)
    with pytest.raises(TierKeyError, match="key1"):
        log_of(made, tier, KeyRing()).open(env_over(), "5.log")


def test_views_are_pickled_with_paths_of_keys_and_nothing_of_objects(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", key=key())
    view = log_of(tier.upload(BATCHES), tier, keys)
    data = pickle.dumps(view)
    assert pickle.loads(data) == view
    assert len(data) < 1000


def test_a_text_and_what_is_absent_are_files_too() -> None:
    env = env_over()
    text = TextView(b"0\n1\n0 0\n")
    with text.open(env, "shown") as file:
        assert (file.pread(100, position=2), file.size()) == (b"1\n0 0\n", 8)
        assert file.is_listed(text.status(env).file)
    absent = AbsentView("nobody has them", 10, 19, 1)
    with absent.open(env, "10.log") as file:
        assert file.size() == absent.status(env).size_in_bytes == 1
        with pytest.raises(RemoteSegmentError, match=r"records \[10, 19\] of 10.log cannot be read: nobody has them"):
            file.pread(1, position=0)


def test_chunks_that_are_kept_are_bounded(keys: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects._CHUNKS, "_limit", 500)
    tier = Tier(path=tmp_path / "tier", is_compressed=True)
    made = tier.upload(BATCHES)
    remote = CountingEnv()
    file: ReadFile
    with log_of(made, tier, keys).open(env_over(remote), "5.log") as file:
        for _ in range(2):
            for position in range(0, len(DATA), 200):
                assert file.pread(200, position=position) == DATA[position : position + 200]
        assert objects._CHUNKS._weight <= 500
    assert remote.log_bytes == 2 * made.path(".log").stat().st_size


def test_edits_of_this_test_reach_the_object(tmp_path: Path) -> None:
    """The file that is damaged is the one that is read."""
    tier = Tier(path=tmp_path / "tier")
    made = tier.upload(BATCHES)
    edit(made.path(".log"), lambda data: data.extend(b"tail"))
    with log_of(made, tier, KeyRing()).open(env_over(), "5.log") as file:
        assert file.pread(10_000, position=0) == DATA


def test_a_reader_in_order_decompresses_into_the_memory_of_chunks_before(
    keys: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[int] = []

    def taken(size: int) -> ColumnBuffer:
        buffer = ColumnBuffer(size)
        if size in (32768, last):
            addresses.append(np.frombuffer(buffer, np.uint8).ctypes.data)
        return buffer

    monkeypatch.setattr(objects, "ColumnBuffer", taken)
    made, size = batches(5, 300, value_bytes=600), 32768
    # What is decompressed has one of these sizes, what is stored none.
    last = sum(map(len, made)) % size
    tier = Tier(path=tmp_path / "tier", is_compressed=True, key=key(), chunk_bytes=size)
    data, buffer = b"".join(made), bytearray(8192)
    with log_of(tier.upload(made), tier, keys).open(env_over(), "5.log") as file:
        file.will_read(position=0, end_position=len(data))
        for position in range(0, len(data), len(buffer)):
            done = file.pread_into(buffer, position=position)
            assert buffer[:done] == data[position : position + len(buffer)]
    assert len(addresses) == -(-len(data) // size) > 5
    assert len(set(addresses)) <= 3


def test_threads_that_read_a_segment_in_pieces_each_have_its_bytes(
    keys: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects._CHUNKS, "_limit", 500)
    tier = Tier(path=tmp_path / "tier", is_compressed=True)
    made, env = tier.upload(BATCHES), env_over()

    def read(seed: int) -> bool:
        chosen = random.Random(seed)
        with log_of(made, tier, keys).open(env, "5.log") as file:
            for _ in range(300):
                position = chosen.randrange(len(DATA))
                end = chosen.randrange(position, len(DATA)) + 1
                file.will_read(position=position, end_position=end)
                if file.pread(end - position, position=position) != DATA[position:end]:
                    return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(4)))
