"""Goal: batches that an encoder here sealed are appended from where they lie as a copy of them would be, byte for byte.
Method: each batch goes sealed to one log and as bytes to another; views that may still change it, short writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore._core import ColumnBuffer
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV
from kstore.errors import CorruptRecordError, InvalidRecordError, KStoreError
from kstore.record import MemoryRecords, MemoryRecordsBuilder, Record
from kstore.store.opening import open_log

NOW_MS = DEFAULT_ENV.wall_clock_ms()
HOUR_MS = 3_600_000


def sealed(*records: tuple[int, bytes | None], **options: Any) -> MemoryRecords:
    """Return a batch of (timestamp, key) records as its encoder gives it."""
    builder = MemoryRecordsBuilder(**options)
    for timestamp_ms, key in records:
        headers = [("h", b"1")] if builder.magic == 2 else []
        builder.append(timestamp_ms=timestamp_ms, key=key, value=b"v" * 40, headers=headers)
    built: MemoryRecords = builder.build()
    return built


def appended(directory: Path, config: LogConfig, batches: list[MemoryRecords]) -> tuple[list[Any], bytes]:
    """Append to a new log; return what became of each batch, errors by their types, and the file."""
    directory.mkdir(exist_ok=True)
    with open_log(directory / "t-0", "a", config) as log:
        # the first append of a segment goes a way of its own
        log.append_batches([sealed((NOW_MS, b"first"))])
        infos = log.append_batches(batches)
    file = next((directory / "t-0").glob("*.log")).read_bytes()
    return [type(one) if isinstance(one, KStoreError) else tuple(one) for one in infos], file


PLAIN = ((NOW_MS, b"k"), (NOW_MS + 5, b"l"), (NOW_MS - 5, b"m"))
PRODUCER = {"producer_id": 7, "producer_epoch": 0}
NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
OPENING = PRODUCER | {"base_sequence": 0, "is_transactional": True}


@pytest.mark.parametrize(
    ("settings", "batches"),
    [
        pytest.param({}, [(PLAIN, {}), (PLAIN, {}), (PLAIN, {})], id="common"),
        pytest.param({}, [(PLAIN, {"base_offset": 5}), (PLAIN, {})], id="offsets that do not begin at 0"),
        pytest.param({}, [(PLAIN, OPENING), (PLAIN, OPENING | {"base_sequence": 3}), (PLAIN, {})], id="a transaction"),
        pytest.param({}, [(((-1, b"k"), (NOW_MS, b"k")), {}), (((-1, b"k"),), {})], id="no timestamps"),
        pytest.param({}, [(((NOW_MS + 3 * HOUR_MS, b"k"),), {}), (PLAIN, {})], id="timestamp too late"),
        pytest.param(
            {"message_timestamp_before_max_ms": HOUR_MS},
            [(((NOW_MS, b"k"), (NOW_MS - 2 * HOUR_MS, b"k"), (NOW_MS, b"k")), {}), (PLAIN, {})],
            id="least timestamp too early",
        ),
        pytest.param(
            {"cleanup_policy": "compact"},
            [(((NOW_MS, b"k"), (NOW_MS, None)), {}), (PLAIN, {})],
            id="no key to compact by",
        ),
        pytest.param({"max_message_bytes": 160}, [(PLAIN, {}), (PLAIN[:1], {})], id="too large"),
        pytest.param({"segment_bytes": 600}, [(PLAIN, {})] * 4, id="a segment is full"),
        pytest.param({"compression_type": "lz4"}, [(PLAIN, {}), (PLAIN, {})], id="the log has a codec"),
        pytest.param({}, [(PLAIN, {"compression": "lz4"}), (PLAIN, {}), (PLAIN, {"magic": 1})], id="mixed"),
        pytest.param(
            {},
            [(PLAIN, PRODUCER | {"base_sequence": sequence}) for sequence in (0, 3, 6, 3, 20)],
            id="an idempotent producer",
        ),
    ],
)
def test_sealed_batch_ends_as_its_copy_does(tmp_path: Path, settings: dict[str, Any], batches: list[Any]) -> None:
    config = LogConfig(**settings)
    ours = [sealed(*records, **options) for records, options in batches]
    copies = [MemoryRecords(bytes(sealed(*records, **options))) for records, options in batches]
    assert appended(tmp_path / "sealed", config, ours) == appended(tmp_path / "copied", config, copies)


def test_sealed_batch_is_left_as_it_was(tmp_path: Path) -> None:
    ours = [sealed(*PLAIN), sealed(*PLAIN)]
    appended(tmp_path, LogConfig(), ours)
    assert [bytes(one) for one in ours] == [bytes(sealed(*PLAIN))] * 2


def test_log_append_time_is_stamped_on_a_copy(tmp_path: Path) -> None:
    one = sealed(*PLAIN)
    infos, _ = appended(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"), [one, sealed(*PLAIN)])
    assert infos[0][3] >= NOW_MS
    assert bytes(one) == bytes(sealed(*PLAIN))


def test_producer_state_that_was_rewritten_is_what_is_appended(tmp_path: Path) -> None:
    builder = MemoryRecordsBuilder(**PRODUCER, base_sequence=50)
    builder.append(timestamp_ms=NOW_MS, key=b"k", value=b"v")
    builder.build()
    builder.reopen_and_rewrite_producer_state(producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=False)
    again: MemoryRecords = builder.build()
    with open_log(tmp_path / "t-0", "a") as log:
        log.append_batches([sealed(*PLAIN)])
        log.append_batches([again])
        assert [entry.producer_id for entry in log.producer_state.active_producers.values()] == [9]
        assert len(list(log.read())) == 4


def test_batch_that_a_view_could_have_changed_is_looked_at(tmp_path: Path) -> None:
    buffer = ColumnBuffer(4096)
    kept = memoryview(buffer)
    builder = MemoryRecordsBuilder(buffer=buffer, write_limit_bytes=4096)
    builder.append(timestamp_ms=NOW_MS, key=b"k", value=b"v" * 100)
    changed: MemoryRecords = builder.build()
    kept[100] ^= 1
    with open_log(tmp_path / "t-0", "a") as log:
        log.append_batches([sealed(*PLAIN)])
        (outcome,) = log.append_batches([changed])
    assert isinstance(outcome, CorruptRecordError)


@pytest.mark.parametrize("most_bytes", [1, 15, 16, 17, 300], ids=lambda most: f"{most} bytes")
def test_write_that_takes_a_part_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    def write_a_part(fd: int, parts: list[Any], position: int) -> int:
        return os.pwrite(fd, b"".join(parts)[:most_bytes], position)

    expected = appended(tmp_path / "whole", LogConfig(), [sealed(*PLAIN), sealed(*PLAIN)])
    monkeypatch.setattr(os, "pwritev", write_a_part)
    assert appended(tmp_path / "parts", LogConfig(), [sealed(*PLAIN), sealed(*PLAIN)]) == expected


def without_pwritev(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pwritev")


def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.env.files._MOST_PARTS", 3)


@pytest.mark.parametrize("change", [without_pwritev, few_parts], ids=["no pwritev", "too many parts"])
def test_parts_are_joined_where_the_system_does_not_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None]
) -> None:
    expected = appended(tmp_path / "whole", LogConfig(), [sealed(*PLAIN), sealed(*PLAIN)])
    change(monkeypatch)
    assert appended(tmp_path / "joined", LogConfig(), [sealed(*PLAIN), sealed(*PLAIN)]) == expected


def test_records_of_sealed_batches_are_read_back(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a") as log:
        log.append_batches([sealed(*PLAIN) for _ in range(3)])
        found: list[Record] = list(log.read())
    assert [(one.offset, one.timestamp_ms, one.key) for one in found] == [
        (number, *PLAIN[number % 3]) for number in range(9)
    ]


def grown(builder: MemoryRecordsBuilder) -> None:
    builder.append(timestamp_ms=NOW_MS, key=b"k", value=b"v" * 5000)


def rewritten(builder: MemoryRecordsBuilder) -> None:
    builder.build()
    builder.reopen_and_rewrite_producer_state(**NO_PRODUCER, is_transactional=False)


def rewritten_beside_a_reader(builder: MemoryRecordsBuilder) -> None:
    before: MemoryRecords = builder.build()
    rewritten(builder)
    assert len(before) == len(builder.build())


@pytest.mark.parametrize(
    "step",
    [lambda _: None, grown, rewritten, rewritten_beside_a_reader],
    ids=["at once", "in a longer buffer", "with another producer", "with another producer, in a copy"],
)
def test_batch_that_a_view_from_before_has_changed_is_looked_at(tmp_path: Path, step: Callable[..., None]) -> None:
    buffer = ColumnBuffer(4096)
    builder = MemoryRecordsBuilder(buffer=buffer)
    builder.append(timestamp_ms=NOW_MS, key=b"k", value=b"v" * 100)
    with memoryview(buffer) as view:
        view[61] ^= 2
    step(builder)
    changed: MemoryRecords = builder.build()
    with open_log(tmp_path / "t-0", "a") as log:
        log.append_batches([sealed(*PLAIN)])
        (outcome,) = log.append_batches([changed])
    assert isinstance(outcome, InvalidRecordError)
