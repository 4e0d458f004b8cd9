"""Goal: an append has the same result, or the same error, whether one compiled call does it or the general path.
Method: any batches of all codecs, damaged ones too, and random histories of producers, driven down both ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import _core
from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log.write.rules import LeaderRules, LogAppendInfo
from kstore.log.write.writable_log import WritableLog
from kstore.record import AppendOrigin, ControlRecordType, EndTransactionMarker, MemoryRecords
from kstore.record.builder import with_end_transaction_marker
from kstore.record.validation import validate_and_assign_offsets
from kstore.store.opening import open_log
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS
from tests.reference import codec as reference

NOW_MS = FIRST_TIMESTAMP_MS
BASE_OFFSET, LEADER_EPOCH = 40, 3
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1
NO_ONES_ID = 999


# One batch of any codec


class Topic(NamedTuple):
    """The settings by which a batch is judged."""

    compression_type: str
    cleanup_policy: str
    message_timestamp_type: str
    max_decompressed_bytes: int

    @property
    def config(self) -> LogConfig:
        limits = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 500}
        return LogConfig(**self._asdict(), **limits, max_message_bytes=2000)


TOPICS = st.builds(
    Topic,
    compression_type=st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    cleanup_policy=st.sampled_from(["delete", "compact"]),
    message_timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
    max_decompressed_bytes=st.sampled_from([1 << 20, 200]),
)

SENT_RECORDS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 500, 501, -1000, -1001, -NOW_MS - 1, -NOW_MS - 2]),
        st.sampled_from([b"k", b"k", b"k", b"", None]),
        st.sampled_from([b"v", None, b"x" * 70, b"y" * 900]),
        st.sampled_from([(), (), ((b"h", b"1"),)]),
    ),
    min_size=1,
    max_size=12,
)


@st.composite
def sent_batches(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A batch as a client sends it, or with what it must not have; whether it is damaged, below a right CRC or not."""
    gap = draw(st.sampled_from([0] * 9 + [1]))
    rows = [
        builders.record(number + (gap if number else 0), value, key, timestamp_ms=NOW_MS + delta_ms, headers=headers)
        for number, (delta_ms, key, value, headers) in enumerate(draw(SENT_RECORDS))
    ]
    options: dict[str, Any] = {"codec": draw(st.integers(0, 4))}
    if draw(st.booleans()):
        producers = st.sampled_from(
            [(5, 0, 7), (5, 0, 7), (0, 0, 0), (-1, -1, -1), (-1, 0, 0), (-1, 7, -5), (0, -1, 0), (5, 0, -1), (-2, 0, 7)]
        )
        options |= zip(("producer_id", "producer_epoch", "base_sequence"), draw(producers), strict=True)
        options["is_transactional"] = draw(st.booleans())
    options["is_control"] = draw(st.sampled_from([False] * 9 + [True]))
    data = bytearray(reference.write_batch(rows, **options))
    undamaged = bytes(data)
    for position in draw(st.lists(st.integers(0, len(data) - 1), max_size=2)) if draw(st.booleans()) else ():
        builders.set_byte(data, position, value=draw(st.integers(0, 255)))
    if draw(st.booleans()) and _frames(data):
        builders.fix_crc(data)
    return bytes(data), data != undamaged


def _frames(data: bytearray) -> bool:
    """Tell whether its length is still that of the batch, so that there is a place for the CRC."""
    return int.from_bytes(data[8:12], "big") == len(data) - 12 and data[16] == 2


class ListLog:
    """A LogAppender over a list in place of a file."""

    def __init__(self, config: LogConfig) -> None:
        self.written: list[bytes] = []
        entries = {"base_offset": 0, "max_bytes": 12_000}
        segment = _core.SegmentAppender(
            _core.OffsetIndexEntries(b"", **entries),
            _core.TimeIndexEntries(b"", **entries),
            write=lambda data: self.written.append(bytes(data)),
            write_parts=lambda parts, _: self.written.append(b"".join(parts)),
            write_index_pages=lambda: None,
            index_interval_bytes=4096,
            segment_bytes=MAX_INT32,
            max_age_ms=MAX_INT64,
            created_ms=0,
        )
        self.appender = _core.LogAppender(
            LogAppendInfo,
            assigner=LeaderRules(config).assigner,
            max_batch_bytes=MAX_INT32,
            log_start_offset=0,
            leader_epoch=LEADER_EPOCH,
        )
        self.appender.publish((), self, segment, log_end_offset=BASE_OFFSET)


def validated(data: bytes, config: LogConfig) -> tuple[bytes, bool] | None:
    """Return what the general path writes, and whether it kept the records' bytes; None if it raises."""
    rules = LeaderRules(config)
    where = {"base_offset": BASE_OFFSET, "partition_leader_epoch": LEADER_EPOCH, "now_ms": NOW_MS}
    records = MemoryRecords(data, config=config)
    try:
        survey = rules.survey(records, origin=AppendOrigin.CLIENT, **where)
        result = validate_and_assign_offsets(records, rules=rules._rules, **where)
    except KStoreError:
        return None
    return bytes(survey.records), not result.is_rebuilt


@given(batch=sent_batches(), topic=TOPICS)
def test_compiled_append_takes_what_validation_takes_as_it_is_and_gives_it_the_same_bytes(
    batch: tuple[bytes, bool], topic: Topic
) -> None:
    data, is_damaged = batch
    log = ListLog(topic.config)
    done = log.appender.append_as_leader(data, leader_epoch=None, now_ms=NOW_MS)
    expected = validated(data, topic.config)
    if done is None:
        assert log.written == []
        assert is_damaged or expected is None or not expected[1]
        return
    assert expected is not None
    content, kept_bytes = expected
    assert kept_bytes
    if isinstance(done, _core.AppendSurvey):
        assert log.written == []
        assert (bytes(done.records), done.has_producers) == (content, True)
        return
    assert log.written == [content]
    header = reference.read_header(content)
    append_time_ms = NOW_MS if topic.message_timestamp_type == "LogAppendTime" else -1
    last_offset = header.base_offset + header.last_offset_delta
    assert done == (header.base_offset, last_offset, header.max_timestamp_ms, append_time_ms, 0, len(data), False)


# Histories of producers


class Sent(NamedTuple):
    """A batch of a producer: `ahead` records behind the next sequence, or before it."""

    producer_id: int
    epoch: int
    ahead: int
    record_count: int
    is_transactional: bool
    codec: int


SENT = st.builds(
    Sent,
    producer_id=st.sampled_from([1, 1, 1, 2, 3]),
    epoch=st.sampled_from([4, 4, 4, 4, 4, 5, 3]),
    ahead=st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1, -2, -3, -9]),
    record_count=st.integers(1, 3),
    is_transactional=st.sampled_from([False, False, False, True]),
    codec=st.sampled_from([0, 0, 1, 3]),
)
STEPS = st.lists(
    st.one_of(
        st.lists(SENT, min_size=1, max_size=8),
        st.sampled_from(["commit", "abort", "roll", "expire", "reopen", "truncate", "follow", "plain"]),
    ),
    max_size=12,
)


class History:
    """A log in a directory of its own, and the sequences that its producers come to next."""

    def __init__(self, directory: Path, *, is_general: bool) -> None:
        self.directory = directory
        directory.parent.mkdir()
        self.is_general = is_general
        self.sequences = dict.fromkeys((1, 2, 3), MAX_INT32 - 4)
        self.is_begun: set[int] = set()
        self.told: list[object] = []
        self.log = self.opened()

    def opened(self) -> WritableLog:
        log = open_log(self.directory, "a", LogConfig(producer_id_expiration_ms=MAX_INT64))
        if self.is_general:
            # While one is under way, more has to be known of every producer's batches.
            log.producer_state.start_verification(NO_ONES_ID, producer_epoch=0, sequence=0, now_ms=MAX_INT64)
        return log

    def bytes_of(self, one: Sent) -> MemoryRecords:
        sequence = (self.sequences[one.producer_id] + one.ahead) & MAX_INT32
        if one.epoch == 4 and one.ahead >= 0:
            self.sequences[one.producer_id] = (sequence + one.record_count) & MAX_INT32
        return MemoryRecords(
            builders.batch(
                0,
                one.record_count,
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                base_sequence=sequence,
                is_transactional=one.is_transactional,
                codec=one.codec,
            )
        )

    def send(self, batches: Sequence[Sent], *, is_together: bool) -> None:
        sent = [self.bytes_of(one) for one in batches]
        if is_together:
            self.told += map(told_of, self.log.append_batches(sent))
            return
        for one in sent:
            self.tell(lambda one=one: self.log.append(one))

    def step(self, what: str) -> None:
        if what in ("commit", "abort"):
            kind = ControlRecordType[what.upper()]
            marker = with_end_transaction_marker(
                EndTransactionMarker(control_type=kind, coordinator_epoch=0),
                timestamp_ms=1,
                producer_id=1,
                producer_epoch=4,
            )
            self.tell(lambda: self.log.append(marker, origin=AppendOrigin.COORDINATOR))
        elif what == "truncate":
            self.log.truncate_to(max(self.log.log_end_offset - 3, 0))
        elif what == "reopen":
            self.log.close()
            self.log = self.opened()
        elif what == "expire":
            self.log.remove_expired_producers()
        elif what == "roll":
            self.log.roll()
        elif what == "plain":
            self.tell(lambda: self.log.append(MemoryRecords(builders.batch(0, 2))))
        else:
            end = self.log.log_end_offset
            data = builders.batch(end, 1, producer_id=2, producer_epoch=4, base_sequence=self.sequences[2])
            self.tell(lambda: self.log.append_as_follower(MemoryRecords(data)))

    def tell(self, append: Callable[[], LogAppendInfo]) -> None:
        try:
            self.told.append(append())
        except KStoreError as error:
            self.told.append(told_of(error))

    def state(self) -> tuple[object, ...]:
        producers = self.log.producer_state
        return (
            [(key, repr(entry)) for key, entry in producers.active_producers.items()],
            producers.snapshot_entries(),
            producers.first_unstable_offset,
            self.log.log_end_offset,
            self.told,
        )

    def files(self) -> dict[str, bytes]:
        self.log.close()
        kinds = (".log", ".snapshot", ".txnindex", ".index", ".timeindex")
        return {path.name: path.read_bytes() for path in self.directory.iterdir() if path.suffix in kinds}


def told_of(info: object) -> object:
    return (type(info), str(info)) if isinstance(info, KStoreError) else info


@given(steps=STEPS, is_together=st.booleans())
def test_producers_get_the_same_answers_and_states_down_both_paths(
    steps: Sequence[Sequence[Sent] | str], is_together: bool
) -> None:
    with TemporaryDirectory() as scratch:
        fast = History(Path(scratch) / "fast" / "t-0", is_general=False)
        general = History(Path(scratch) / "general" / "t-0", is_general=True)
        for step in steps:
            for one in (fast, general):
                if isinstance(step, str):
                    one.step(step)
                else:
                    one.send(step, is_together=is_together and one is fast)
            assert fast.state() == general.state()
        assert fast.files() == general.files()


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4], ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_common_batch_of_a_known_producer_is_one_compiled_call(
    tmp_path: Path, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(tmp_path / "t-0", "a") as log:
        sent = [
            MemoryRecords(builders.batch(0, 2, producer_id=1, producer_epoch=0, base_sequence=2 * number, codec=codec))
            for number in range(9)
        ]
        log.append(sent[0])
        monkeypatch.setattr(WritableLog, "_append_as_leader", lambda *_, **__: pytest.fail("the general path"))
        assert [log.append(one).base_offset for one in sent[1:4]] == [2, 4, 6]
        assert [info.base_offset for info in log.append_batches(sent[4:])] == [8, 10, 12, 14, 16]
        assert log.producer_state.active_producers[1].last_sequence == 17
        assert [record.offset for record in log.read()] == list(range(18))
