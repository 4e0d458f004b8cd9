"""Goal: repr() of the objects that users hold says what they hold, at any time, without touching a file.
Method: the exact texts, of open, closed and damaged objects; an Env that fails once the objects are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import MemoryRecords, Record
from kstore.env import LocalEnv
from tests.making.batches import batch, flip_bit, set_byte, write_root
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codecs


class SealedEnv(LocalEnv):
    """Counts the calls of its methods, except of those that touch no file."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in ("calls", "__class__", "__dict__"):
            object.__getattribute__(self, "calls").append(name)
        return object.__getattribute__(self, name)


def shown(env: SealedEnv, it: object) -> str:
    before = len(env.calls)
    text = repr(it)
    assert env.calls[before:] == []
    return text


@pytest.fixture
def env() -> SealedEnv:
    return SealedEnv()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    partitions = {f"{name}-0": [[batch(0, 3)], [batch(3, 2)]] for name in ("t", "u")}
    return write_root(tmp_path / "root", partitions)


def size_of(path: Path) -> int:
    return sum(log.stat().st_size for log in path.rglob("*.log"))


def test_log_says_which_partition_and_how_much(root: Path, env: SealedEnv) -> None:
    path = root / "t-0"
    said = f"Log(topic_partition='t-0', path={str(path)!r}, segments=2, size_in_bytes={size_of(path)}"
    log = kstore.open_log(path, env=env)
    assert shown(env, log) == f"{said})"
    log.close()
    assert shown(env, log) == f"{said}, is_closed=True)"


def test_writable_log_also_says_its_offsets(tmp_path: Path, env: SealedEnv) -> None:
    path = tmp_path / "t-0"
    log = kstore.open_log(path, "a", env=env)
    log.append([Record(value=b"v"), Record(value=b"v")])
    bounds = "log_start_offset=0, log_end_offset=2"
    said = f"WritableLog(topic_partition='t-0', path={str(path)!r}, segments=1, size_in_bytes={size_of(path)}, {bounds}"
    assert shown(env, log) == f"{said})"
    log.close()
    assert shown(env, log) == f"{said}, is_closed=True)"


@pytest.mark.parametrize(("mode", "name"), [("r", "Store"), ("a", "WritableStore")])
def test_store_says_what_is_in_its_root(root: Path, env: SealedEnv, mode: Any, name: str) -> None:
    store = kstore.open_store(root, mode, env=env)
    said = f"{name}(root={str(root)!r}, topics=2, partitions=2"
    assert shown(env, store) == f"{said})"
    store.close()
    assert shown(env, store) == f"{said}, is_closed=True)"


def test_scan_says_what_it_will_read(root: Path) -> None:
    scan = kstore.scan(root, columns=["offset", "value"])
    size = size_of(root)
    assert repr(scan) == f"Scan(partitions=[t-0, u-0], ranges=4, size_in_bytes={size}, columns=[offset, value])"
    (root / "t-0").rename(root / "moved")
    assert repr(scan).startswith("Scan(partitions=[t-0, u-0]")


def test_scan_of_many_partitions_names_the_first_ones(tmp_path: Path) -> None:
    write_root(tmp_path, {f"t-{number}": [[batch(0, 1)]] for number in range(7)})
    assert "Scan(partitions=[t-0, t-1, t-2, t-3, t-4, ... 7 in all], ranges=7," in repr(kstore.scan(tmp_path))


V2 = batch(10, 3) + batch(13, 1)
WRAPPER = write_wrapper(
    [packed_entry(b"a", None, offset=0, magic=1, timestamp_ms=1)], offset=7, magic=1, codec=codecs.GZIP
)
DAMAGED: dict[str, tuple[Callable[[bytearray], object], str]] = {
    "a wrong CRC, which is not checked": (
        lambda data: flip_bit(data, len(data) - 1, bit=0),
        "batches=2, base_offset=10",
    ),
    "an unknown magic": (lambda data: set_byte(data, 16, value=9), "batches=0, damage='"),
    "a size that is too large": (
        lambda data: data.__setitem__(slice(8, 12), b"\x7f\xff\xff\xff"),
        "batches=0, damage='",
    ),
}


def test_memory_records_say_how_many_batches_and_which_offsets() -> None:
    assert repr(MemoryRecords(V2)) == (
        f"MemoryRecords(size_in_bytes={len(V2)}, batches=2, base_offset=10, last_offset=13)"
    )
    assert repr(MemoryRecords(b"")) == "MemoryRecords(size_in_bytes=0, batches=0)"
    assert repr(MemoryRecords(V2[:-1])) == (
        f"MemoryRecords(size_in_bytes={len(V2) - 1}, batches=1, base_offset=10, last_offset=12)"
    )


def test_memory_records_that_begin_with_a_wrapper_do_not_decompress_it() -> None:
    assert repr(MemoryRecords(WRAPPER)) == f"MemoryRecords(size_in_bytes={len(WRAPPER)}, batches=1, last_offset=7)"


@pytest.mark.parametrize("name", DAMAGED)
def test_memory_records_that_are_damaged_say_so_and_raise_nothing(name: str) -> None:
    damage, said = DAMAGED[name]
    data = bytearray(V2)
    damage(data)
    assert said in repr(MemoryRecords(bytes(data)))


def test_memory_records_of_many_batches_are_not_all_counted() -> None:
    one = batch(0, 1)
    data = bytearray()
    for number in range(1001):
        data += number.to_bytes(8, "big") + one[8:]
    assert "batches=1000+, base_offset=0, last_offset=999)" in repr(MemoryRecords(bytes(data)))
