"""Goal: verify, readers that go on after damage and salvage give one answer to the question which bytes are batches.

Method: segments that brokers wrote are damaged at random, and the three are compared byte for byte."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import kstore
from kstore import open_log
from kstore.log.verify import verify
from tests.golden.sets import MAIN_SETS, MIXED_SET, OLD_FORMAT_SETS, REALDATA_SET, GoldenPartition, golden_partitions
from tests.reference.codec import HEADER_BYTES

PARTITIONS = golden_partitions(*MAIN_SETS, REALDATA_SET, MIXED_SET, *OLD_FORMAT_SETS)
SIZE_AT, CRC_AT = 8, 17
SIZES = (1, 17, HEADER_BYTES, 130, 512, 4096)
KINDS = ("flip", "header", "header", "zeros", "zeros", "noise", "removed", "inserted", "copied", "torn")

Ranges = list[tuple[int, int]]


def starts_of(content: bytes) -> list[int]:
    """Return where the batches of an undamaged .log start, as far as their sizes lead."""
    starts, at = [], 0
    while at + 12 < len(content) and (size := int.from_bytes(content[at + SIZE_AT : at + 12], "big", signed=True)) > 0:
        starts.append(at)
        at += 12 + size
    return starts or [0]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes of a .log with damage in one place."""
    data = bytearray(content)
    starts = starts_of(content)
    kind, size = rng.choice(KINDS), rng.choice(SIZES)
    at = rng.choice((rng.choice(starts), rng.randrange(len(data))))
    if kind == "flip":
        data[min(at + rng.choice((rng.randrange(30), rng.randrange(200))), len(data) - 1)] ^= 1 << rng.randrange(8)
    elif kind == "header":
        start = rng.choice(starts)
        data[start + SIZE_AT : start + SIZE_AT + 4] = rng.choice((b"\x7f\xff\xff\xff", bytes(4), rng.randbytes(4)))
        data[min(start + CRC_AT, len(data) - 1)] ^= 0xFF
    elif kind == "zeros":
        at -= at % 512 if rng.random() < 0.5 else 0
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif kind == "noise":
        data[at : at + size] = rng.randbytes(len(data[at : at + size]))
    elif kind == "removed":
        del data[at : at + size]
    elif kind == "inserted":
        data[at:at] = rng.randbytes(size)
    elif kind == "copied":
        source = rng.randrange(len(data))
        block = data[source : source + size][: len(data) - at]
        data[at : at + len(block)] = block
    else:
        del data[-rng.randrange(1, min(len(data), 300)) :]
    return bytes(data)


def joined(ranges: Ranges) -> Ranges:
    """Return ranges as few, in order."""
    out: Ranges = []
    for start, end in sorted(ranges):
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], end)
        elif start < end:
            out.append((start, end))
    return out


def sound_by_verify(directory: Path) -> dict[str, Ranges]:
    """Return the bytes of each .log that verify does not report, without zeros at the end."""
    with open_log(directory) as log:
        damages = [damage for damage in verify(log, deep=False) if damage.path.endswith(".log")]
    sound: dict[str, Ranges] = {}
    for path in directory.glob("*.log"):
        position, ranges = 0, []
        for damage in sorted(one for one in damages if Path(one.path) == path):
            ranges.append((position, damage.position))
            position = damage.position + damage.size_in_bytes
        ranges.append((position, max(position, len(path.read_bytes().rstrip(b"\0")))))
        sound[path.name] = joined(ranges)
    return sound


def bytes_of(batch: kstore.RecordBatch) -> bytes:
    return Path(batch.path).read_bytes()[batch.position : batch.position + batch.size_in_bytes]


def read_on(directory: Path) -> tuple[dict[str, Ranges], list[bytes]]:
    """Return where the batches are that a reader that goes on after damage gives, and their bytes."""
    places: dict[str, Ranges] = {path.name: [] for path in directory.glob("*.log")}
    contents: list[bytes] = []
    with open_log(directory) as log:
        for batch in log.batches(on_error="skip", on_skip=lambda _: None):
            places[Path(batch.path).name].append((batch.position, batch.position + batch.size_in_bytes))
            contents.append(bytes_of(batch))
    return {name: joined(ranges) for name, ranges in places.items()}, contents


def with_trailing_zeros(ranges: dict[str, Ranges], directory: Path) -> dict[str, Ranges]:
    """Return ranges in which the last one of a file ends without its zeros: a whole batch may end in some."""
    out = {}
    for name, of_file in ranges.items():
        content = (directory / name).read_bytes()
        out[name] = [(start, start + len(content[start:end].rstrip(b"\0"))) for start, end in of_file]
    return out


def check_one_answer(partition: GoldenPartition, root: Path, rng: random.Random) -> None:
    directory = Path(shutil.copytree(partition.directory, root / partition.name))
    path = rng.choice([path for path in sorted(directory.glob("*.log")) if path.stat().st_size])
    content = path.read_bytes()
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = damaged(content, rng) or content
    path.write_bytes(content)
    if rng.random() < 0.3:
        path.with_suffix(".index").unlink(missing_ok=True)
    places, contents = read_on(directory)
    by_verify = sound_by_verify(directory)
    assert with_trailing_zeros(places, directory) == with_trailing_zeros(by_verify, directory)
    original = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    kstore.recover(directory, "salvage")
    with open_log(directory) as log:
        kept = [bytes_of(batch) for batch in log.batches()]
    mended = iter(kept)
    assert all(any(batch == other for other in mended) for batch in contents), "salvage lost a sound batch"
    extra = list(kept)
    for batch in contents:
        extra.remove(batch)
    assert not [batch for batch in extra if batch in original], "salvage kept a batch that is not sound"


def check(root: Path, seeds: range) -> None:
    # Recovery leaves the log of the controllers alone.
    partitions = [one for one in PARTITIONS if one.topic != "__cluster_metadata"]
    usable = [one for one in partitions if any(path.stat().st_size for path in one.directory.glob("*.log"))]
    for seed in seeds:
        rng = random.Random(seed)
        partition = rng.choice(usable)
        try:
            check_one_answer(partition, root / str(seed), rng)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {partition}: {error}") from error
        shutil.rmtree(root / str(seed))


@pytest.mark.parametrize("part", range(4))
def test_what_verify_calls_sound_is_what_skipping_readers_give_and_salvage_keeps(tmp_path: Path, part: int) -> None:
    check(tmp_path, range(part * 40, part * 40 + 40))


@pytest.mark.long
def test_what_verify_calls_sound_is_what_skipping_readers_give_and_salvage_keeps_of_2000_damages(
    tmp_path: Path,
) -> None:
    check(tmp_path, range(2000))
