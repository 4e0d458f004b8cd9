"""What is drawn for a history, from its seed alone: the settings of the log, and the bytes of the appends."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kstore.config import MAX_INT64, LogConfig
from kstore.env import LocalEnv
from kstore.record import ControlRecordType, EndTransactionMarker, MemoryRecords, with_end_transaction_marker
from kstore.record.batches import set_last_offset, set_partition_leader_epoch
from tests.making.batches import record
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codecs
from tests.reference.codec import write_batch

PRODUCERS = (1, 2, 70_000)
Kind: TypeAlias = Literal["plain", "retained", "compacted"]
START_MS = 1_700_000_000_000
EXPIRATION_MS = 200_000


class SetEnv(LocalEnv):
    """An Env with a clock that stands until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS

    def wall_clock_ms(self) -> int:
        return self.now_ms


@dataclass
class Producer:
    """What a producer will send next; it may be wrong about what the log knows."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False
    sent: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """One setting under kstore's name and Kafka's."""

    ours: str
    theirs: str
    value: int | str | bool

    @property
    def text(self) -> str:
        """The value as Kafka reads it."""
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


def drawn_settings(draw: random.Random) -> list[Setting]:
    return [
        Setting("segment_bytes", "internal.segment.bytes", draw.choice((1000, 2000, 4000, 100_000))),
        Setting("segment_index_bytes", "segment.index.bytes", draw.choice((48, 240, 10_000))),
        Setting("index_interval_bytes", "index.interval.bytes", draw.choice((0, 200, 4096))),
        Setting("segment_ms", "segment.ms", draw.choice((5_000, 604_800_000))),
        Setting(
            "message_timestamp_type", "message.timestamp.type", draw.choice(("CreateTime",) * 3 + ("LogAppendTime",))
        ),
        Setting("producer_id_expiration_ms", "producer.id.expiration.ms", draw.choice((EXPIRATION_MS, 86_400_000))),
        Setting("preallocate", "preallocate", draw.random() < 0.3),
        Setting("compression_type", "compression.type", draw.choice(("producer",) * 3 + ("uncompressed",))),
    ]


def settings_of_retention(draw: random.Random) -> list[Setting]:
    return [
        Setting("retention_ms", "retention.ms", draw.choice((-1, 1000, 5000, 60_000))),
        Setting("retention_bytes", "retention.bytes", draw.choice((-1, 500, 2000, 5000))),
    ]


def settings_of_cleaning(draw: random.Random) -> list[Setting]:
    return [
        Setting("cleanup_policy", "cleanup.policy", "compact"),
        Setting("delete_retention_ms", "delete.retention.ms", draw.choice((0, 5_000, 100_000))),
        Setting("min_compaction_lag_ms", "min.compaction.lag.ms", draw.choice((0, 0, 0, 5_000))),
        Setting("max_compaction_lag_ms", "max.compaction.lag.ms", draw.choice((MAX_INT64, 60_000))),
        Setting("min_cleanable_dirty_ratio", "min.cleanable.dirty.ratio", draw.choice((0.0, 0.0, 0.5))),
    ]


class Drawing:
    """The settings of one history, and what its leader, followers, producers and coordinator append.

    Args: kind: "retained" and "compacted" for logs of which retention, or compaction, removes records.
    Attributes: epoch: the leader's; producers: each may be wrong about what the log knows of it. A log that is
        compacted is not compressed and has no messages of magic 0 or 1: Kafka's compressors are other libraries, and
        its cleaner converts these messages. All its keys fit the cleaner's map.
    """

    def __init__(self, seed: str, kind: Kind = "plain") -> None:
        self.draw = random.Random(seed)
        self.settings = drawn_settings(self.draw)
        self.kind = kind
        # Kafka is told to delete files at once.
        ours: dict[str, Any] = {"file_delete_delay_ms": 0}
        if kind == "compacted":
            ours |= {"cleaner_dedupe_buffer_bytes": 65536, "cleaner_io_buffer_bytes": self.draw.choice((1024, 65536))}
            self.settings += settings_of_cleaning(self.draw)
        if kind == "retained":
            self.settings += settings_of_retention(self.draw)
        else:
            self.settings.append(Setting("retention_ms", "retention.ms", -1))
        self.config = LogConfig(**ours, **{one.ours: one.value for one in self.settings})  # type: ignore[arg-type]
        self.is_managed = self.draw.random() < 0.6
        self.verifies = self.draw.random() < 0.5
        self.requires_verification = self.verifies and self.draw.random() < 0.5
        self.has_codecs, self.has_messages = self.draw.random() < 0.5, self.draw.random() < 0.25
        if kind == "compacted":
            self.has_codecs = self.has_messages = False
        self.key_count = self.draw.choice((3, 10, 30)) if kind == "compacted" else 0
        self.env = SetEnv()
        self.epoch = 0
        self.forget_producers()

    def forget_producers(self) -> None:
        self.producers = {producer_id: Producer(producer_id) for producer_id in PRODUCERS}

    def producer(self) -> Producer:
        return self.draw.choice(list(self.producers.values()))

    def timestamps(self, count: int) -> list[int]:
        base = self.env.now_ms + self.draw.choice((0, 0, -4000, 3000))
        return [base + self.draw.randrange(-2000, 2000) for _ in range(count)]

    def batch(self, base_offset: int = 0, **options: Any) -> bytes:
        count = self.draw.choice((1, 1, 2, 5))
        times = self.timestamps(count)
        size = self.draw.choice((0, 10, 100))
        records = [
            record(base_offset + i, value, key, timestamp_ms=times[i])
            for i, (key, value) in enumerate(self.keys_and_values(count, size))
        ]
        return write_batch(records, codec=self.draw.randrange(5) if self.has_codecs else codecs.NONE, **options)

    def keys_and_values(self, count: int, size: int) -> list[tuple[bytes | None, bytes | None]]:
        if not self.key_count:
            return [(b"k%d" % i, b"v" * size) for i in range(count)]
        keys = [
            None if self.draw.random() < 0.01 else b"k%d" % self.draw.randrange(self.key_count) for _ in range(count)
        ]
        return [(key, None if self.draw.random() < 0.25 else b"v" * size) for key in keys]

    def version_of_transactions(self) -> str:
        return self.draw.choice(("v1", "v2", "")) if self.verifies else ""

    def marker(self, producer: Producer, base_offset: int = 0) -> bytes:
        kind = self.draw.choice((ControlRecordType.COMMIT, ControlRecordType.ABORT))
        if self.draw.random() < 0.1:
            producer.epoch += 1
            producer.sequence = 0
        found = with_end_transaction_marker(
            EndTransactionMarker(control_type=kind, coordinator_epoch=self.draw.choice((0, 0, 0, 1))),
            timestamp_ms=self.timestamps(1)[0],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        producer.is_open = False
        data = bytearray(found.buffer)
        set_last_offset(data, last_offset=base_offset)
        set_partition_leader_epoch(data, partition_leader_epoch=self.epoch)
        return bytes(data)

    def replicated(self, end: int) -> bytes:
        """The batches of a follower's append to a log with this end."""
        data, offset = b"", end + self.draw.choice((0, 0, 0, 3, -1))
        is_plain = self.draw.random() < 0.3 and self.config.segment_bytes >= 4000
        for _ in range(self.draw.choice((1, 2, 3))):
            producer = self.producer()
            if is_plain and self.draw.random() < 0.4:
                self.epoch += 1
            kind = 0.0 if is_plain else self.draw.random()
            if kind < 0.5:
                one = self.batch(max(offset, 0), partition_leader_epoch=self.epoch)
            elif kind < 0.8:
                producer.is_open = producer.is_open or self.draw.random() < 0.7
                one = self.batch(
                    max(offset, 0),
                    partition_leader_epoch=self.epoch,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    base_sequence=producer.sequence,
                    is_transactional=producer.is_open,
                )
            else:
                one = self.marker(producer, max(offset, 0))
            data += one
            (batch,) = MemoryRecords(one).batches()
            if kind >= 0.5 and not batch.is_control:
                producer.sequence += batch.last_offset - batch.base_offset + 1
            offset = batch.last_offset + 1 + self.draw.choice((0, 0, 2))
        return data

    def messages(self, end: int) -> bytes:
        """Messages of magic 0 and 1, plain and in wrappers, for a follower's append to a log with this end."""
        data, offset = b"", end + self.draw.choice((0, 0, 3))
        for _ in range(self.draw.choice((1, 2))):
            magic, codec = self.draw.choice((0, 1)), self.draw.choice((codecs.NONE, *range(codecs.ZSTD)))
            times = self.timestamps(self.draw.choice((1, 2, 5)))
            first = offset if magic == 0 or codec == codecs.NONE else 0
            entries = [
                packed_entry(b"v" * 10, b"k%d" % i, offset=first + i, magic=magic, timestamp_ms=one)
                for i, one in enumerate(times)
            ]
            offset += len(times)
            if codec != codecs.NONE:
                largest_ms = max(times)
                entries = [write_wrapper(entries, magic=magic, codec=codec, offset=offset - 1, timestamp_ms=largest_ms)]
            data += b"".join(entries)
        return data
