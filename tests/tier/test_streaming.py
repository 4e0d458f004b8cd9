"""Goal: a chunk of any size is read with bounded memory, or refused with the setting that allows it.
Method: the limits made small, so that chunks of some hundred bytes are large ones, against the bytes that were
uploaded; what is asked of the object is counted."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from kstore import CorruptRecordError, LogConfig, MemoryLimitError, open_log, scan
from kstore.errors import DecompressionError
from kstore.log.damage import OnError
from kstore.tier import objects, streaming
from kstore.tier.chunks import Chunk
from kstore.tier.keys import KeyRing
from kstore.tier.streaming import ChunkStreams, blocks_of
from tests.fakes.counting import CountingEnv
from tests.making.batches import batches, shrink
from tests.making.tiers import Tier, key
from tests.tier.test_objects import BATCHES, DATA, FORMS, env_over, log_of

BLOCK = 64
# Blocks of a frame hold up to 128 KiB each: more than one of them, which no compression makes smaller.
LARGE = random.Random(7).randbytes(300_000)
FRAME = zstandard.ZstdCompressor(write_content_size=True).compress(LARGE)
CHUNK = Chunk(3, 1_000_000, len(LARGE), 0, len(FRAME))


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    return KeyRing.of({"key1": key().write(tmp_path)})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks above 300 bytes are read in blocks of 64."""
    monkeypatch.setattr(objects, "CHUNKS_LIMIT", 300)
    monkeypatch.setattr(objects._CHUNKS, "_limit", 300)
    monkeypatch.setattr(streaming, "BLOCK_BYTES", BLOCK)


class Counted:
    """Streams of one frame, and how many stored bytes they asked for."""

    def __init__(self, frame: bytes = FRAME) -> None:
        self.frame = frame
        self.read_bytes = 0
        self.opened = 0
        self.streams = ChunkStreams(self.open)

    def open(self, _chunk: Chunk) -> Callable[[int], bytes]:
        self.opened += 1
        position = 0

        def read(size: int) -> bytes:
            nonlocal position
            data = self.frame[position : position + min(size, 10_000)]
            position += len(data)
            self.read_bytes += len(data)
            return data

        return read


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The large chunk in blocks of 70,000 bytes, of which the last one is shorter."""
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 70_000)
    return [LARGE[start : start + 70_000] for start in range(0, len(LARGE), 70_000)]


@pytest.fixture
def keeps_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_MOST_RECENT", 0)


@pytest.mark.usefixtures("keeps_no_block")
def test_blocks_are_what_is_at_their_place(blocks: list[bytes]) -> None:
    counted = Counted()
    order = [0, 1, 4, 2, 2, 3, 0, 4, 1]
    assert [counted.streams.block(CHUNK, number) for number in order] == [blocks[number] for number in order]


def test_blocks_in_order_take_each_stored_byte_once(blocks: list[bytes]) -> None:
    counted = Counted()
    for number, content in enumerate(blocks):
        assert counted.streams.block(CHUNK, number) == content
    assert (counted.opened, counted.read_bytes) == (1, len(FRAME))


def test_blocks_nearly_in_order_take_each_stored_byte_once(blocks: list[bytes]) -> None:
    counted = Counted()
    for number in (1, 0, 1, 3, 2, 4, 1, 3):
        assert counted.streams.block(CHUNK, number) == blocks[number]
    assert (counted.opened, counted.read_bytes) == (1, len(FRAME))


@pytest.mark.usefixtures("keeps_no_block")
def test_two_readers_in_order_do_not_make_each_other_begin_again(blocks: list[bytes]) -> None:
    counted = Counted()
    for number in (2, 0, 3, 1, 4, 2, 3, 4):
        assert counted.streams.block(CHUNK, number) == blocks[number]
    assert counted.opened == 2


@pytest.mark.usefixtures("keeps_no_block")
def test_no_more_than_two_streams_are_kept(blocks: list[bytes]) -> None:
    counted = Counted()
    for number in (4, 3, 2, 1, 0):
        assert counted.streams.block(CHUNK, number) == blocks[number]
        assert len(counted.streams._streams) <= 2
    counted.streams.close()
    assert counted.streams._streams == []


def test_blocks_before_damage_are_given_and_those_from_there_on_are_not_tried_again(blocks: list[bytes]) -> None:
    counted = Counted(FRAME[: len(FRAME) // 2])
    assert counted.streams.block(CHUNK, 0) == blocks[0]
    for _ in range(3):
        for number in (2, 3, 4):
            with pytest.raises(ValueError, match=r"expected 300000 plain bytes, found \d+"):
                counted.streams.block(CHUNK, number)
    assert counted.opened == 1
    assert counted.streams.block(CHUNK, 1) == blocks[1]


@pytest.mark.parametrize(
    "frame",
    [
        zstandard.ZstdCompressor(write_content_size=True).compress(LARGE + b"more"),
        FRAME + b"something else",
        FRAME + FRAME,
        zstandard.ZstdCompressor(write_content_size=False).compress(LARGE[:-1]),
        b"no frame at all" * 10,
    ],
    ids=["more", "bytes after it", "two frames", "less", "no frame"],
)
def test_a_frame_that_does_not_end_with_its_chunk_is_damage(frame: bytes, blocks: list[bytes]) -> None:
    with pytest.raises((ValueError, DecompressionError)):
        Counted(frame).streams.block(CHUNK, len(blocks) - 1)


def test_blocks_of_a_chunk_cover_the_bytes_that_are_asked_for() -> None:
    size = streaming.BLOCK_BYTES
    chunk = Chunk(1, 10 * size, 2 * size + 5, 0, 9)
    all_of_it = [(0, 10 * size, size), (1, 11 * size, size), (2, 12 * size, 5)]
    assert list(blocks_of(chunk, position=0, end_position=100 * size)) == all_of_it
    assert list(blocks_of(chunk, position=11 * size, end_position=11 * size + 1)) == all_of_it[1:2]
    assert list(blocks_of(chunk, position=11 * size - 1, end_position=12 * size + 1)) == all_of_it
    assert list(blocks_of(chunk, position=12 * size + 4, end_position=12 * size + 5)) == all_of_it[2:]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["compressed", "both", "both of 2023"])
def test_a_log_of_large_chunks_has_the_bytes_that_were_uploaded(form: str, keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **{**FORMS[form], "chunk_bytes": 400})
    with log_of(tier.upload(BATCHES), tier, keys).open(env_over(), "5.log") as file:
        for position in range(0, len(DATA) + 50, 37):
            for size in (0, 1, 61, 200, 401, len(DATA)):
                assert file.pread(size, position=position) == DATA[position : position + size]
                buffer = bytearray(size)
                done = file.pread_into(buffer, position=position)
                assert buffer[:done] == DATA[position : position + size]
        file.will_read(position=0, end_position=len(DATA))
        assert file.why_missing(0, end_position=len(DATA) + 10) is None


@pytest.mark.usefixtures("small")
def test_a_log_of_large_chunks_is_read_in_order_by_one_pass(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True, chunk_bytes=400)
    made = tier.upload(BATCHES)
    remote = CountingEnv()
    with log_of(made, tier, keys).open(env_over(remote), "5.log") as file:
        for position in range(0, len(DATA), 50):
            file.pread(50, position=position)
    assert remote.log_bytes == made.path(".log").stat().st_size


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["compressed", "both"])
def test_damage_of_a_large_chunk_is_of_that_chunk(form: str, keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **{**FORMS[form], "chunk_bytes": 400})
    made = tier.upload(BATCHES)
    shrink(made.path(".log"), by_bytes=3)
    last = len(DATA) // 400 * 400
    with log_of(made, tier, keys).open(env_over(), "5.log") as file:
        assert file.pread(last, position=0) == DATA[:last]
        with pytest.raises(CorruptRecordError, match="chunk") as caught:
            file.pread(len(DATA), position=last)
        assert caught.value.position is not None
        assert last <= caught.value.position < len(DATA)
        assert "chunk" in (file.why_missing(0, end_position=len(DATA)) or "")
        around = file.around_damage().pread(len(DATA), position=0)
        assert around[:last] == DATA[:last]
        assert around.endswith(b"\xff")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["compressed", "both"])
def test_records_of_large_chunks_are_read_by_every_reader(form: str, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **{**FORMS[form], "chunk_bytes": 400})
    tier.upload(BATCHES)
    keys = {"key1": key().write(tmp_path)}
    with open_log(tier.path / "t-0", tier=tier.path, tier_keys=keys) as log:
        assert [record.offset for record in log] == list(range(5, 17))
        assert [record.offset for record in log.read(12)] == list(range(12, 17))
    table = scan(tier.path, tier=tier.path, tier_keys=keys, threads=2).to_table()
    assert table.column("offset").to_pylist() == list(range(5, 17))


@pytest.mark.parametrize("form", ["encrypted", "both"])
def test_an_encrypted_chunk_above_the_limit_is_refused_by_the_setting_that_allows_it(form: str, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", **{**FORMS[form], "chunk_bytes": 400})
    tier.upload(BATCHES)
    keys = {"key1": key().write(tmp_path)}
    low, high = LogConfig(max_decrypted_bytes=100), LogConfig(max_decrypted_bytes=428)
    with (
        open_log(tier.path / "t-0", config=low, tier=tier.path, tier_keys=keys) as log,
        pytest.raises(MemoryLimitError, match="max_decrypted_bytes") as caught,
    ):
        list(log)
    assert (caught.value.option, caught.value.limit) == ("max_decrypted_bytes", 100)
    with open_log(tier.path / "t-0", config=high, tier=tier.path, tier_keys=keys) as log:
        assert [record.offset for record in log] == list(range(5, 17))


def test_a_compressed_chunk_has_no_limit(tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True, chunk_bytes=400)
    tier.upload(BATCHES)
    with open_log(tier.path / "t-0", config=LogConfig(max_decrypted_bytes=1), tier=tier.path) as log:
        assert [record.offset for record in log] == list(range(5, 17))


@pytest.mark.usefixtures("small")
def test_a_large_encrypted_chunk_is_decoded_once_while_it_is_the_only_one(keys: KeyRing, tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", key=key(), chunk_bytes=700)
    made = tier.upload(BATCHES)
    remote = CountingEnv()
    with log_of(made, tier, keys).open(env_over(remote), "5.log") as file:
        for position in range(0, len(DATA), 50):
            assert file.pread(50, position=position) == DATA[position : position + 50]
    assert remote.log_bytes == made.path(".log").stat().st_size


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("chunk_bytes", [4000, 100_000])
def test_a_large_chunk_is_passed_by_one_reader(
    on_error: OnError, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(objects, "CHUNKS_LIMIT", 3000)
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 1000)
    opened: list[int] = []
    init = streaming._Stream.__init__

    def counted(stream: streaming._Stream, chunk: Chunk, read_stored: Callable[[int], bytes]) -> None:
        opened.append(chunk.number)
        init(stream, chunk, read_stored)

    tier = Tier(path=tmp_path / "tier", is_compressed=True, chunk_bytes=chunk_bytes)
    size = tier.upload(batches(0, 135, value_bytes=10)).size
    chunks = size // chunk_bytes + 1
    assert chunks == 1 or size % chunk_bytes > 3000
    with open_log(tier.path / "t-0", tier=tier.path) as log:
        ranges = list(log.plan(max_bytes=500, on_error=on_error))
    assert [part.files[0].start_position // chunk_bytes for part in ranges] == list(range(chunks))
    assert all(part.files[0].start_position % chunk_bytes < 1000 for part in ranges)
    monkeypatch.setattr(streaming._Stream, "__init__", counted)
    offsets = [offset for part in ranges for offset in scan([part], on_error=on_error).to_table()["offset"].to_pylist()]
    assert offsets == list(range(135))
    # The first block of a chunk is also for the reader of the one before.
    assert sorted(opened) == sorted([*range(chunks), *range(1, chunks)])
