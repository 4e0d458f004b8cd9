"""Random histories of one log, by kstore and by Kafka's own UnifiedLog.

After each step every answer is compared, at the end every file by its bytes.

A history is drawn from its seed alone, so that one that differs can be run again. What kstore does otherwise on purpose
has a row in docs/durability.md; here either kstore is brought to where Kafka is, so that the history continues, or the
history ends (Parted).
"""

from __future__ import annotations

import base64
import json
import logging
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log import FetchData, LogAppendInfo, WritableLog, open_log
from kstore.log.env import Env
from kstore.log.files.checkpoints import EpochEntry
from kstore.log.files.snapshots import encode_snapshot
from kstore.log.segment.segment import LogSegment
from kstore.log.segment.transaction_index import decode_aborted_txns
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    RecordBatch,
    control_record_type,
    with_end_transaction_marker,
)
from kstore.record.batches import set_last_offset, set_partition_leader_epoch
from kstore.types import MAX_TIMESTAMP
from tests.interop.broker import java
from tests.interop.comparison import hashed
from tests.interop.programs import Unavailable
from tests.making.batches import record
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codecs
from tests.reference.codec import write_batch
from tests.reference.messages import MAGIC_AT, read_all

HISTORIES = 500
STEPS = 30
RECORD_BATCH_MAGIC = 2
PRODUCERS = (1, 2, 70_000)
START_MS = 1_700_000_000_000
EXPIRATION_MS = 200_000
PARTITION = "t-0"
ISOLATIONS = {"LOG_END": "read_uncommitted", "HIGH_WATERMARK": "high_watermark", "TXN_COMMITTED": "read_committed"}
# Files that only one of the two keeps.
OF_ONE = {"kstore-durable-point", "partition.metadata"}
EMPTY_SNAPSHOT = encode_snapshot([])
Answer = dict[str, Any]


class Parted(Exception):
    """From here on the two logs differ, as docs/durability.md says, so that the history ends."""


class SetEnv(Env):
    """An Env with a clock that stands until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS

    def wall_clock_ms(self) -> int:
        return self.now_ms


class Kafka:
    """A UnifiedLog, driven through LogHistory.java."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Kafka]:
        command = [part.replace("LogLevel=info", "LogLevel=off") for part in java("LogHistory", heap="512m")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield cls(process)
            finally:
                if process.stdin is not None:
                    process.stdin.close()

    def ask(self, *fields: object) -> Answer:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise Unavailable("java has no pipes")
        stdin.write("\t".join(map(str, fields)) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise Unavailable("java ended before its answer")
        answer: Answer = json.loads(line)
        return {name: value for name, value in answer.items() if name != "case"}


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


class History:
    """One history: the state that its steps are drawn from, both logs, and what differs."""

    def __init__(self, seed: str, kafka: Kafka, work: Path) -> None:
        self.draw = random.Random(seed)
        self.settings = drawn_settings(self.draw)
        self.config = LogConfig(**{one.ours: one.value for one in self.settings})  # type: ignore[arg-type]
        self.is_managed = self.draw.random() < 0.6
        self.verifies = self.draw.random() < 0.5
        self.requires_verification = self.verifies and self.draw.random() < 0.5
        self.has_codecs, self.has_messages = self.draw.random() < 0.5, self.draw.random() < 0.25
        self.producers = {producer_id: Producer(producer_id) for producer_id in PRODUCERS}
        self.epoch = 0
        self.env = SetEnv()
        self.kafka = kafka
        self.roots = work / "ours", work / "theirs"
        for root in self.roots:
            root.mkdir()
        self.log = self._open_ours()
        self._open_theirs(is_clean=True, start=0, point=0)
        self.steps: list[str] = []
        # Indexes that kstore rebuilt when it opened the log.
        self.rebuilt: set[str] = set()

    # Opening and closing

    def _open_ours(self) -> WritableLog:
        log = open_log(self.roots[0] / PARTITION, "a", self.config, env=self.env)
        # A log asks for it only where a coordinator can give it.
        log.producer_state._requires_verification = self.requires_verification
        if self.is_managed:
            log.update_high_watermark(0)
        return log

    def _open_theirs(self, *, is_clean: bool, start: int, point: int) -> None:
        settings = [f"{one.theirs}={one.text}" for one in self.settings]
        requires = f"transaction.partition.verification.enable={str(self.requires_verification).lower()}"
        fixed = "max.message.bytes=1000000", requires, "retention.ms=-1"
        directory = self.roots[1] / PARTITION
        opening = "open", directory, str(is_clean).lower(), start, point, self.env.now_ms, *settings, *fixed
        answer = self.kafka.ask(*opening)
        part_at_full_index(answer)
        begins_below = not is_clean and self.log.segments[0].base_offset < start
        if answer.get("error") == "InvalidTxnStateException" and begins_below:
            # LogSegment.recover replays what lies below the log start too, and so the start of a transaction that the
            # log had forgotten when its producer wrote without one.
            raise Parted
        if "error" in answer:
            raise Unavailable(f"open {directory.name}: {answer}")

    def reopen(self, *, is_clean: bool) -> None:
        mark, start, point = self.log.high_watermark, self.log.log_start_offset, self.log.flushed_offset
        epochs = self.log.leader_epochs.entries
        if is_clean:
            self.log.close()
            self._theirs("close")
        else:
            copies = tuple(root.with_name(root.name + "-copy") for root in self.roots)
            for root, copy in zip(self.roots, copies, strict=True):
                shutil.copytree(root, copy)
            self.log.close()
            self._theirs("close")
            for root, copy in zip(self.roots, copies, strict=True):
                shutil.rmtree(root)
                copy.rename(root)
        forgetful = self._forgetful_producers(start)
        self.log = self._open_ours()
        self.rebuilt |= set(self.log.recovery_report.rebuilt)
        self._open_theirs(is_clean=is_clean, start=start, point=point)
        self.set_mark(mark)
        theirs = self._theirs("state")
        if not is_clean:
            self._note_epochs_as_recovery_did(epochs, theirs, point=point)
        ours = state_of(self.log)["producers"]
        # Their order shows in snapshots.
        if forgetful is not None and theirs["producers"] == forgetful and [*forgetful.items()] != [*ours.items()]:
            raise Parted

    def _forgetful_producers(self, start: int) -> Answer | None:
        """What a log knows that drops the snapshots at and below its start when it is opened; None if there are none.

        ProducerStateManager.truncateAndReload removes those before it looks for one to load; kstore keeps one at the
        base of the first segment.
        """
        paths = sorted((self.roots[0] / PARTITION).glob("*.snapshot"))
        if not any(int(path.stem) <= start for path in paths):
            return None
        with tempfile.TemporaryDirectory() as work:
            copy = Path(shutil.copytree(self.roots[0], Path(work) / "root"))
            for path in paths:
                if int(path.stem) <= start:
                    (copy / PARTITION / path.name).unlink()
            with open_log(copy / PARTITION, "a", self.config, env=self.env) as log:
                found: Answer = state_of(log)["producers"]
        return found

    def _note_epochs_as_recovery_did(self, noted: Sequence[EpochEntry], theirs: Answer, *, point: int) -> None:
        """Give kstore the epochs that Kafka has after a recovery of a log that starts at its end, or whose epochs did
        not end with its records.

        LogSegment.recover notes the epochs of batches above the latest one that is known, and only then LogLoader.load
        truncates the LeaderEpochFileCache, from the end first. So an epoch at the log end hides those of recovered
        batches, and in an empty log the last epoch moves to the log start.
        """
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if start < end and all(one.start_offset < end for one in noted):
            return
        cache = LeaderEpochCache(None)
        cache.restore(tuple(noted))
        first = max((one.base_offset for one in self.log.segments if one.base_offset <= point), default=0)
        for segment in self.log.segments:
            for batch in MemoryRecords(bytes_of(segment)).batches() if segment.base_offset >= first else ():
                if batch.partition_leader_epoch > cache.latest_epoch:
                    cache.assign(batch.partition_leader_epoch, start_offset=batch.base_offset)
        cache.truncate_from_end(end)
        cache.truncate_from_start(start)
        if theirs["epochs"] == [list(one) for one in cache.entries]:
            self._set_epochs(cache.entries)

    def _set_epochs(self, entries: Sequence[EpochEntry]) -> None:
        self.log.leader_epochs.restore(tuple(entries))
        self.log._local.publish(self.log.log_end_offset)

    def set_mark(self, offset: int) -> None:
        if self.is_managed:
            self.log.update_high_watermark(offset)
            self._theirs("mark", offset)

    def _theirs(self, *fields: object) -> Answer:
        answer = self.kafka.ask(*fields)
        if "error" in answer:
            raise Unavailable(f"{fields[:2]}: {answer}")
        return answer

    # Steps

    def step(self) -> Iterator[str]:
        """Take a step with both and give what differs."""
        actions: dict[str, tuple[int, Callable[[], Iterator[str]]]] = {
            "append": (30, self.append),
            "send": (25, self.send),
            "end": (12, self.end),
            "replicate": (12, self.replicate),
            "messages": (8 if self.has_messages else 0, self.replicate_messages),
            "mark": (10, self.mark),
            "roll": (4, lambda: self.both("roll", lambda: self.log.roll())),
            "truncate": (6, self.truncate),
            "restart": (2, self.restart),
            "delete": (6, self.delete),
            "clock": (6, self.clock),
            "expire": (2, lambda: self.both("expire", lambda: self.log.remove_expired_producers())),
            "reopen": (4, self.reopen_clean),
            "crash": (3, self.crash),
            "delete, truncate": (2, lambda: self.after_deleting(self.truncate)),
            "delete, crash": (2, lambda: self.after_deleting(self.crash)),
        }
        (name,) = self.draw.choices(list(actions), [weight for weight, _ in actions.values()])
        self.steps.append(name)
        yield from actions[name][1]()
        if not self.is_managed:
            self._theirs("mark", self.log.log_end_offset)
        yield from self.look()

    def both(self, command: str, ours: Callable[[], Any], *fields: object) -> Iterator[str]:
        """Do one thing with both and compare kinds of errors."""
        self.steps[-1] += f" {' '.join(str(one)[:20] for one in fields)}"
        found = outcome(ours)
        answer = self.kafka.ask(command, *fields)
        part_at_full_index(answer)
        if answer.get("base_offset") == -1 and "base_offset" in found:
            # UnifiedLog.analyzeAndValidateRecords sets the first offset of an append for magic 2 only.
            data = base64.b64decode(str(fields[-1]))
            if data[MAGIC_AT] < RECORD_BATCH_MAGIC:
                answer["base_offset"] = int.from_bytes(data[:8], "big")
        yield from differences(f"{command} {answer.get('message', '')}", found, expected(answer))

    def append_to_both(
        self, command: str, ours: Callable[[], LogAppendInfo], data: bytes, *fields: object
    ) -> Iterator[str]:
        """Append with both; where nothing was written, take over what Kafka had done by then."""
        end, epochs = self.log.log_end_offset, self.log.leader_epochs.entries
        yield from self.both(command, ours, *fields, base64.b64encode(data).decode())
        if self.log.log_end_offset == end:
            if self.log.leader_epochs.entries != epochs:
                yield f"{command}: nothing appended, but epochs {self.log.leader_epochs.entries} in place of {epochs}"
            self.note_epochs_as_kafka_did(data, base_offset=end if command == "leader" else None)
        self.roll_as_kafka_did()

    def note_epochs_as_kafka_did(self, data: bytes, *, base_offset: int | None) -> None:
        """Note the leader epochs of an append that Kafka then refused, or knew already.

        UnifiedLog.append assigns them to the LeaderEpochFileCache after validating the records, but before it compares
        their size with that of a segment, and before it asks the ProducerStateManager.
        Args: base_offset: what a leader assigns; None for the offsets that the batches have.
        """
        cache = LeaderEpochCache(None)
        cache.restore(self.log.leader_epochs.entries)
        for batch in MemoryRecords(data).batches():
            if batch.magic < RECORD_BATCH_MAGIC:
                cache.clear()
            elif base_offset is not None:
                cache.assign(self.epoch, start_offset=base_offset)
            else:
                cache.assign(batch.partition_leader_epoch, start_offset=batch.base_offset)
        if self._theirs("state")["epochs"] == [list(one) for one in cache.entries]:
            self._set_epochs(cache.entries)

    def roll_as_kafka_did(self) -> None:
        """Roll where Kafka made a segment for an append that it then refused, or knew already."""
        last, size = self._theirs("state")["segments"][-1]
        if size == 0 and last == self.log.log_end_offset and last not in [one.base_offset for one in self.log.segments]:
            self.log.roll()

    def timestamps(self, count: int) -> list[int]:
        base = self.env.now_ms + self.draw.choice((0, 0, -4000, 3000))
        return [base + self.draw.randrange(-2000, 2000) for _ in range(count)]

    def batch(self, base_offset: int = 0, **options: Any) -> bytes:
        count = self.draw.choice((1, 1, 2, 5))
        times = self.timestamps(count)
        size = self.draw.choice((0, 10, 100))
        records = [record(base_offset + i, b"v" * size, b"k%d" % i, timestamp_ms=times[i]) for i in range(count)]
        return write_batch(records, codec=self.draw.randrange(5) if self.has_codecs else codecs.NONE, **options)

    def lead(self, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT, verifies: str = "") -> Iterator[str]:
        """Append as the leader; verifies: "v1" or "v2", the version of transactions, if a verification comes first."""

        def ours() -> LogAppendInfo:
            guard = None
            if verifies:
                (batch,) = MemoryRecords(data).batches()
                guard = self.log.producer_state.start_verification(
                    batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    sequence=batch.base_sequence,
                    now_ms=self.env.now_ms,
                    supports_epoch_bump=verifies == "v2",
                )
            return self.log.append(MemoryRecords(data), partition_leader_epoch=self.epoch, origin=origin, guard=guard)

        yield from self.append_to_both("leader", ours, data, self.epoch, origin.name, verifies)

    def append(self) -> Iterator[str]:
        data = self.batch()
        # Not with what may be refused: Kafka has noted the epoch by then.
        if self.draw.random() < 0.1 and len(data) <= self.config.segment_bytes:
            self.epoch += 1
        yield from self.lead(data)

    def send(self) -> Iterator[str]:
        producer = self.draw.choice(list(self.producers.values()))
        if producer.sent and self.draw.random() < 0.15:
            yield from self.lead(self.draw.choice(producer.sent), verifies=self.version_of_transactions())
            return
        if self.draw.random() < 0.05:
            producer.epoch += self.draw.choice((1, 1, -1)) if producer.epoch else 1
            producer.sequence, producer.sent = 0, []
        sequence = producer.sequence + (self.draw.choice((1, -1, 7)) if self.draw.random() < 0.07 else 0)
        is_transactional = producer.is_open or self.draw.random() < 0.5
        if self.draw.random() < 0.04:
            is_transactional = not is_transactional
        data = self.batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=max(sequence, 0),
            is_transactional=is_transactional,
        )
        end = self.log.log_end_offset
        yield from self.lead(data, verifies=self.version_of_transactions() if is_transactional else "")
        if self.log.log_end_offset > end:
            producer.sequence = max(sequence, 0) + self.log.log_end_offset - end
            producer.is_open = is_transactional
            producer.sent = [*producer.sent[-6:], data]

    def version_of_transactions(self) -> str:
        return self.draw.choice(("v1", "v2", "")) if self.verifies else ""

    def end(self) -> Iterator[str]:
        producer = self.draw.choice(list(self.producers.values()))
        yield from self.lead(self.marker(producer), AppendOrigin.COORDINATOR)

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

    def replicate(self) -> Iterator[str]:
        epoch, end = self.epoch, self.log.log_end_offset
        data, offset = b"", end + self.draw.choice((0, 0, 0, 3, -1))
        is_plain = self.draw.random() < 0.3 and self.config.segment_bytes >= 4000
        for _ in range(self.draw.choice((1, 2, 3))):
            producer = self.draw.choice(list(self.producers.values()))
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
        yield from self.append_to_both(
            "follower", lambda: self.log.append_as_follower(MemoryRecords(data)), data, 2**31 - 1
        )
        if self.log.log_end_offset == end:
            self.epoch = epoch

    def replicate_messages(self) -> Iterator[str]:
        """Append messages of magic 0 and 1, plain and in wrappers, as a follower."""
        data, offset = b"", self.log.log_end_offset + self.draw.choice((0, 0, 3))
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
        yield from self.append_to_both(
            "follower", lambda: self.log.append_as_follower(MemoryRecords(data)), data, 2**31 - 1
        )

    def mark(self) -> Iterator[str]:
        if self.is_managed:
            # At batches only: Kafka moves a mark between them to one, when a fetch first asks for its place.
            end = self.log.log_end_offset
            places = [
                batch.base_offset for batch in self.log.batches() if batch.base_offset >= self.log.log_start_offset
            ]
            mark = self.log.high_watermark
            offset = self.draw.choice(
                (
                    end,
                    self.draw.choice([end, *places]),
                    min((one for one in places if one > mark), default=end),
                    end + 2,
                )
            )
            yield from self.both("mark", lambda: self.log.update_high_watermark(offset), offset)

    def truncate(self) -> Iterator[str]:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        least = self.log.high_watermark if self.is_managed and self.draw.random() < 0.8 else start
        offset = self.draw.choice((end, self.draw.randint(least, end), self.draw.randint(max(least - 3, 0), end)))
        yield from self.both("truncate", lambda: self.log.truncate_to(offset), offset)
        # Kafka looks anew for the first unstable offset only with the next mark or append.
        self.set_mark(self.log.high_watermark)
        for producer in self.producers.values():
            entry = self.log.producer_state.entry(producer.producer_id)
            producer.sequence = 0 if entry is None else entry.last_sequence + 1
            producer.is_open = entry is not None and entry.has_open_transaction

    def restart(self) -> Iterator[str]:
        offset = self.draw.randrange(60)
        start = offset if self.draw.random() < 0.4 else self.draw.randint(0, offset)
        yield from self.both(
            "restart",
            lambda: self.log.truncate_fully_and_start_at(offset, log_start_offset=start),
            offset,
            start,
        )
        self.producers = {producer_id: Producer(producer_id) for producer_id in PRODUCERS}

    def delete(self) -> Iterator[str]:
        start, mark = self.log.log_start_offset, self.log.high_watermark
        offset = self.draw.choice((mark, self.draw.randint(start, mark), self.draw.randint(0, mark + 2)))
        yield from self.both("delete", lambda: self.log.delete_records(offset), offset)

    def after_deleting(self, then: Callable[[], Iterator[str]]) -> Iterator[str]:
        """Delete records, and then do something else before anything is appended."""
        name = self.steps[-1].split(", ")[1]
        yield from self.delete()
        self.steps.append(name)
        yield from then()

    def clock(self) -> Iterator[str]:
        self.env.now_ms += self.draw.choice((1, 1000, 4000, 30_000, 120_000))
        self._theirs("clock", self.env.now_ms)
        return iter(())

    def reopen_clean(self) -> Iterator[str]:
        self.reopen(is_clean=True)
        return iter(())

    def crash(self) -> Iterator[str]:
        self.reopen(is_clean=False)
        return iter(())

    # Answers

    def look(self) -> Iterator[str]:
        """Compare what both say of the log as it is now."""
        theirs = self._theirs("state")
        self.follow_mark(theirs["high_watermark"])
        yield from differences("state", self.known(state_of(self.log), theirs), theirs)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        for isolation in ISOLATIONS:
            for offset in {start, self.draw.randint(start, end), self.draw.randint(max(start - 2, 0), end + 2)}:
                most, min_one = self.draw.choice((0, 1, 100, 1000, 1_000_000)), self.draw.random() < 0.7
                yield from self.fetch(offset, most, isolation, min_one)
        now = self.env.now_ms
        for timestamp_ms in (
            now,
            now - 2000,
            now + self.draw.randrange(-300_000, 5000),
            START_MS - 100_000,
            -1,
            -2,
            MAX_TIMESTAMP,
            -4,
            -5,
        ):
            yield from self.look_up(timestamp_ms)
        self.follow_mark(self._theirs("state")["high_watermark"])

    def follow_mark(self, theirs: int) -> None:
        """Let the high watermark be where Kafka moved it, if no record lies between."""
        ours = self.log.high_watermark
        if ours != theirs and self.is_managed and not self.has_records(min(ours, theirs), max(ours, theirs)):
            self.log.update_high_watermark(theirs)

    def has_records(self, start_offset: int, end_offset: int) -> bool:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        least, most = max(start, start_offset), min(end, end_offset)
        return least < most and any(
            batch.last_offset >= least for batch in self.log.batches(least, most) if batch.base_offset < most
        )

    def known(self, ours: Answer, theirs: Answer) -> Answer:
        """Take over from Kafka's answer what kstore says otherwise on purpose."""
        stable, other = ours["last_stable_offset"], theirs["last_stable_offset"]
        if not self.has_records(min(stable, other), max(stable, other)):
            # A log start inside a batch, or between two: Kafka names the first offset of a batch, even below the start.
            ours["last_stable_offset"] = other
        mine, others = ours["producers"], theirs["producers"]
        if self.steps[-1].startswith("truncate") and mine != others and untimed(mine) == untimed(others):
            # A snapshot in a gap, which only Kafka kept: it has the time of the marker for that of the last batch.
            raise Parted
        return ours

    def fetch(self, offset: int, most: int, isolation: str, min_one: bool) -> Iterator[str]:
        found: list[FetchData] = []

        def ours() -> Answer:
            name: Any = ISOLATIONS[isolation]
            found.append(self.log.fetch(offset, most, min_one_batch=min_one, isolation=name))
            return {"size": len(found[0].records), "records": hashed(found[0].records)}

        answer = self.kafka.ask("fetch", offset, most, isolation, str(min_one).lower())
        what = f"fetch {offset} {most} {isolation} {min_one}"
        aborted = [(one[0], one[1]) for one in answer.pop("aborted", [])]
        yield from differences(what, outcome(ours), expected(answer))
        if found and isolation == "TXN_COMMITTED":
            listed = [(one.producer_id, one.first_offset) for one in found[0].aborted]
            if delivered(found[0].records, listed) != delivered(found[0].records, aborted):
                yield f"{what}: aborted {listed}, Kafka {aborted}"

    def look_up(self, timestamp_ms: int) -> Iterator[str]:
        def ours() -> Answer:
            found = self.log.offset_for_timestamp(timestamp_ms)
            return {"offset": -1, "timestamp_ms": -1} if found is None else found._asdict()

        answer, found = self.kafka.ask("time", timestamp_ms), outcome(ours)
        if answer == {"offset": -1, "timestamp_ms": -1} and self.is_behind_the_first_segment(found["offset"]):
            # Kafka looks into one segment only, even if what it looks for there lies below the log start.
            return
        if timestamp_ms == MAX_TIMESTAMP and -1 < answer["offset"] < self.log.log_start_offset:
            # UnifiedLog.fetchOffsetByTimestamp takes the largest timestamp of whole segments, without the log start.
            answer = self.largest_timestamp()
        yield from differences(f"time {timestamp_ms}", found, expected(answer))

    def largest_timestamp(self) -> Answer:
        """The first record with the largest timestamp at or above the log start, from the bytes of the segments."""
        start = self.log.log_start_offset
        data = b"".join(map(bytes_of, self.log.segments))
        times = [
            (one.timestamp_ms, -one.offset) for one in read_all(data) if one.offset >= start and one.timestamp_ms >= 0
        ]
        largest, offset = max(times, default=(-1, 1))
        return {"offset": -offset, "timestamp_ms": largest}

    def is_behind_the_first_segment(self, offset: int) -> bool:
        first, *others = self.log.segments
        return first.base_offset < self.log.log_start_offset and bool(others) and offset >= others[0].base_offset

    def finish(self) -> Iterator[str]:
        """Close both and compare their files."""
        batches = [(one.magic, one.base_offset, one.last_offset) for one in self.log.batches()]
        known = partial(
            is_known_file,
            first_base_offset=self.log.segments[0].base_offset,
            log_start_offset=self.log.log_start_offset,
            rebuilt=self.rebuilt,
            offsets={offset for _, first, last in batches for offset in range(first, last + 1)},
            ends_before_messages={
                last + 1
                for (magic, _, last), (following, *_) in pairwise(batches)
                if magic == RECORD_BATCH_MAGIC > following
            },
        )
        self.log.close()
        self._theirs("close")
        ours, theirs = (files_of(root / PARTITION) for root in self.roots)
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name) and not known(name, ours.get(name), theirs.get(name)):
                yield f"file {name}: {shown(ours.get(name))}, Kafka {shown(theirs.get(name))}"


def bytes_of(segment: LogSegment) -> bytes:
    """The batches of a segment, without preallocated space."""
    return Path(segment.path).read_bytes()[: segment.size_in_bytes]


def part_at_full_index(answer: Answer) -> None:
    """End the history where Kafka fails because the batches of one append, or of a recovered segment, fill an index."""
    if "append to a full" in answer.get("message", ""):
        raise Parted


def untimed(producers: Answer) -> Answer:
    return {name: [*one[:-1], [batch[:-1] for batch in one[-1]]] for name, one in producers.items()}


def outcome(call: Callable[[], Any]) -> Answer:
    """What a call of kstore gave, in the words of LogHistory.java."""
    try:
        found = call()
    except (KStoreError, ValueError) as error:
        return {"error": type(error).__name__.removesuffix("Error")}
    if isinstance(found, dict):
        return found
    if not hasattr(found, "is_duplicate"):
        return {}
    names = ("base_offset", "last_offset", "max_timestamp_ms", "log_append_time_ms")
    return {name: getattr(found, name) for name in (names[:2] if found.is_duplicate else names)}


def expected(answer: Answer) -> Answer:
    if "error" in answer:
        return {"error": str(answer["error"]).removesuffix("Exception")}
    return answer


def differences(what: str, ours: Answer, theirs: Answer) -> Iterator[str]:
    # What Kafka says of a batch that it knew already is what was sent now, but for the offsets.
    names = ours.keys() if "base_offset" in ours and "error" not in theirs else ours.keys() | theirs.keys()
    for name in sorted(names):
        if ours.get(name) != theirs.get(name):
            yield f"{what}: {name} {ours.get(name)}, Kafka {theirs.get(name)}"


def state_of(log: WritableLog) -> Answer:
    return {
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "segments": [[one.base_offset, one.size_in_bytes] for one in log.segments],
        "epochs": [list(one) for one in log.leader_epochs.entries],
        "producers": {
            str(producer_id): [
                one.producer_epoch,
                one.coordinator_epoch,
                one.last_timestamp_ms,
                one.current_txn_first_offset,
                [list(batch) for batch in one.batches],
            ]
            for producer_id, one in log.producer_state.active_producers.items()
        },
    }


def delivered(records: bytes, aborted: Sequence[tuple[int, int]]) -> list[int]:
    """The base offsets of the batches that a consumer gives out, by what a fetch said was aborted."""
    waiting = sorted(aborted, key=lambda one: one[1])
    gone: set[int] = set()
    given = []
    for batch in MemoryRecords(records).batches():
        while waiting and waiting[0][1] <= batch.last_offset:
            gone.add(waiting.pop(0)[0])
        if batch.is_control:
            if is_abort(batch):
                gone.discard(batch.producer_id)
        elif not batch.is_transactional or batch.producer_id not in gone:
            given.append(batch.base_offset)
    return given


def is_abort(batch: RecordBatch) -> bool:
    return any(control_record_type(one, batch) is ControlRecordType.ABORT for one in batch)


def files_of(directory: Path) -> dict[str, bytes]:
    names = (path for path in directory.iterdir() if path.is_file() and path.name not in OF_ONE)
    return {path.name: path.read_bytes() for path in names if not path.name.endswith(".deleted")}


def is_known_file(
    name: str,
    ours: bytes | None,
    theirs: bytes | None,
    *,
    first_base_offset: int,
    log_start_offset: int,
    rebuilt: set[str],
    offsets: set[int],
    ends_before_messages: set[int],
) -> bool:
    """Whether docs/durability.md says why a file differs.

    Args: rebuilt: names of indexes that kstore rebuilt at an opening; offsets: all that batches hold;
        ends_before_messages: the offsets after batches of magic 2 that messages of magic 0 or 1 follow.
    """
    if name.endswith(".txnindex"):
        return name in rebuilt and starts_earlier(ours or b"", theirs or b"", log_start_offset=log_start_offset)
    if name.endswith("index"):
        # Kafka makes the indexes of a segment when they are first used, and leaves those without entries as they are.
        return not theirs and (not ours or name in rebuilt)
    if not name.endswith(".snapshot"):
        return False
    if name == f"{first_base_offset:020d}.snapshot" and theirs is None:
        # kstore keeps the snapshot at the base of the first segment.
        return True
    # A clean start without any snapshot, for which Kafka writes empty ones; one inside a gap of offsets; and one that
    # LogSegment.recover leaves after the last batch of magic 2, since messages do not move the end of the producers.
    offset = int(name.split(".")[0])
    return ours is None and (theirs == EMPTY_SNAPSHOT or offset not in offsets or offset in ends_before_messages)


def starts_earlier(ours: bytes, theirs: bytes, *, log_start_offset: int) -> bool:
    """Whether two transaction indexes differ only in where a transaction begins, for kstore below the log start."""
    mine, others = (decode_aborted_txns(one, base_offset=0, path="") for one in (ours, theirs))
    return len(mine) == len(others) and all(
        one == other or (one == other._replace(first_offset=one.first_offset) and one.first_offset < log_start_offset)
        for one, other in zip(mine, others, strict=True)
    )


def shown(content: bytes | None) -> str:
    return "none" if content is None else f"{len(content)} bytes {content[:40].hex()}"


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what kstore says of what a crash left; it is what the histories are for."""
    logger = logging.getLogger("kstore.log")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def run_one(seed: str, kafka: Kafka) -> tuple[list[str], list[str]]:
    """Run one history; return what differs at the first step where anything does, and the steps up to there."""
    with tempfile.TemporaryDirectory() as work:
        history = History(seed, kafka, Path(work))
        try:
            for number in range(STEPS):
                problems = list(history.step())
                if problems:
                    return [f"step {number}: {one}" for one in problems], history.steps
            return list(history.finish()), history.steps
        except Parted:
            return [], history.steps
        finally:
            history.log.close()


def steps(*, count: int = HISTORIES, seed: int = 1, only: int | None = None) -> Iterator[tuple[str, Iterator[str]]]:
    """Run the histories of a seed, or the one with a number; give the problems of each."""

    def problems() -> Iterator[str]:
        with Kafka.running() as kafka, quiet():
            for number in range(count) if only is None else [only]:
                found, taken = run_one(f"{seed} {number}", kafka)
                for problem in found:
                    yield f"history {number}: {problem}"
                if found and only is not None:
                    yield f"  after {' | '.join(taken)}"

    yield f"kstore and UnifiedLog do the same in {count if only is None else 1} histories (seed {seed})", problems()
