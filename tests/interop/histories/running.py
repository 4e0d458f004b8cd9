"""One history: each step is taken with kstore and with Kafka's UnifiedLog, and every answer is compared."""

from __future__ import annotations

import base64
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kstore.log.files.checkpoints import EpochEntry
from kstore.log.source import FetchData
from kstore.log.write.rules import LogAppendInfo
from kstore.log.write.writable_log import WritableLog
from kstore.record import AppendOrigin, MemoryRecords
from kstore.store.opening import open_log
from kstore.types import MAX_TIMESTAMP
from tests.interop.comparison import hashed
from tests.interop.histories.answers import Answer, Kafka, delivered, differences, expected, outcome, state_of
from tests.interop.histories.drawing import START_MS, Drawing, Kind
from tests.interop.histories.known import (
    Parted,
    end_of_batches,
    end_of_lookup,
    epochs_of_a_recovery,
    epochs_of_a_refused_append,
    first_offset_of,
    first_record_from,
    forgets_at_magic_0_or_1,
    gaps_before_segments,
    has_records,
    is_known_file,
    largest_timestamp,
    part_after_a_cleaning,
    part_after_a_gap,
    part_at_full_index,
    part_at_invisible_batches,
    part_at_open_transaction,
    part_below_segments,
    part_where_a_forgotten_transaction_began,
    producers_from_log_start,
    producers_without_first_snapshots,
    snapshots_of_an_opening,
    untimed,
)
from tests.interop.programs import Unavailable

HISTORIES = 500
STEPS = 30
PARTITION = "t-0"
ISOLATIONS = {"LOG_END": "read_uncommitted", "HIGH_WATERMARK": "high_watermark", "TXN_COMMITTED": "read_committed"}
# Files that only one of the two keeps.
OF_ONE = {"kstore-durable-point", "partition.metadata"}


class History:
    """One history: what its steps are drawn from, both logs, and what differs."""

    def __init__(self, seed: str, kafka: Kafka, work: Path, kind: Kind) -> None:
        self.drawn = Drawing(seed, kind)
        self.draw, self.config, self.env = self.drawn.draw, self.drawn.config, self.drawn.env
        self.kafka = kafka
        self.roots = work / "ours", work / "theirs"
        for root in self.roots:
            root.mkdir()
        self.log = self._open_ours()
        self._open_theirs(is_clean=True, start=0, point=0)
        self.steps: list[str] = []
        # Indexes that kstore rebuilt when it opened the log.
        self.rebuilt: set[str] = set()
        # See gaps_before_segments; also of deleted segments, since a deletion leaves the snapshots in gaps.
        self.gaps: set[int] = set()
        self.cleaned_offset = 0

    # Opening and closing

    def _open_ours(self) -> WritableLog:
        log = open_log(self.roots[0] / PARTITION, "a", self.config, env=self.env)
        # A log asks for it only where a coordinator can give it.
        log.producer_state._requires_verification = self.drawn.requires_verification
        if self.drawn.is_managed:
            log.update_high_watermark(0)
        return log

    def _open_theirs(self, *, is_clean: bool, start: int, point: int) -> None:
        settings = [f"{one.theirs}={one.text}" for one in self.drawn.settings]
        requires = f"transaction.partition.verification.enable={str(self.drawn.requires_verification).lower()}"
        fixed = "max.message.bytes=1000000", requires
        directory = self.roots[1] / PARTITION
        opening = "open", directory, str(is_clean).lower(), start, point, self.env.now_ms, *settings, *fixed
        answer = self.kafka.ask(*opening)
        part_at_full_index(answer)
        if not is_clean:
            part_where_a_forgotten_transaction_began(answer, self.log, log_start_offset=start)
        if "error" in answer:
            raise Unavailable(f"open {directory.name}: {answer}")

    def reopen(self, *, is_clean: bool) -> None:
        mark, start, point = self.log.high_watermark, self.log.log_start_offset, self.log.flushed_offset
        epochs = self.log.leader_epochs.entries
        ends_in_gap = end_of_batches(self.log.segments[-1]) < self.log.log_end_offset
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
        forgetful = producers_without_first_snapshots(
            self.roots[0], PARTITION, config=self.config, env=self.env, log_start_offset=start
        )
        had_none = not self._snapshots(0)
        self.log = self._open_ours()
        self.rebuilt |= set(self.log.recovery_report.rebuilt)
        self._open_theirs(is_clean=is_clean, start=start, point=point)
        self.set_mark(mark)
        theirs = self._theirs("state")
        if not is_clean:
            self._take_over_epochs(epochs_of_a_recovery(self.log, epochs, recovery_point=point), theirs)
        ours = state_of(self.log)["producers"]
        # Their order shows in snapshots.
        if forgetful is not None and theirs["producers"] == forgetful and [*forgetful.items()] != [*ours.items()]:
            raise Parted
        if is_clean and ends_in_gap:
            part_after_a_gap(ours, theirs["producers"])
        if not is_clean and ours != theirs["producers"] and forgets_at_magic_0_or_1(self.log, recovery_point=point):
            known = producers_from_log_start(self.roots[0], PARTITION, config=self.config, env=self.env)
            if theirs["producers"] == known:
                raise Parted
        self._take_over_snapshots(is_clean=is_clean, had_none=had_none)
        self.gaps.clear()

    def _snapshots(self, side: int) -> dict[int, bytes]:
        paths = (self.roots[side] / PARTITION).glob("*.snapshot")
        return {int(path.stem): path.read_bytes() for path in paths}

    def _take_over_snapshots(self, *, is_clean: bool, had_none: bool) -> None:
        """Let kstore have the snapshots that Kafka has after an opening, so that both do the same with them later."""
        ours, theirs = self._snapshots(0), self._snapshots(1)
        manager = self.log.producer_state
        for offset, content in snapshots_of_an_opening(
            self.log, ours, theirs, is_clean=is_clean, had_none=had_none
        ).items():
            if content is None:
                manager.delete_snapshots_at([offset])
            elif offset not in ours:
                (self.roots[0] / PARTITION / f"{offset:020d}.snapshot").write_bytes(content)
                manager._snapshots = sorted([*manager._snapshots, offset])

    def _take_over_epochs(self, entries: tuple[EpochEntry, ...] | None, theirs: Answer) -> None:
        """Let kstore have these leader epochs if Kafka has them."""
        if entries is not None and theirs["epochs"] == [list(one) for one in entries]:
            self.log.leader_epochs.restore(entries)
            self.log._local.publish(self.log.log_end_offset)

    def set_mark(self, offset: int) -> None:
        if self.drawn.is_managed:
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
            "end": (30 if self.drawn.kind == "compacted" else 12, self.end),
            "replicate": (12, self.replicate),
            "messages": (8 if self.drawn.has_messages else 0, self.replicate_messages),
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
            "clean": (16 if self.drawn.kind == "compacted" else 0, self.clean),
            "retain": (16 if self.drawn.kind == "retained" else 0, self.retain),
        }
        (name,) = self.draw.choices(list(actions), [weight for weight, _ in actions.values()])
        self.steps.append(name)
        yield from actions[name][1]()
        if not self.drawn.is_managed:
            self._theirs("mark", self.log.log_end_offset)
        yield from self.look()

    def both(self, command: str, ours: Callable[[], Any], *fields: object) -> Iterator[str]:
        """Do one thing with both and compare kinds of errors."""
        self.steps[-1] += f" {' '.join(str(one)[:20] for one in fields)}"
        found = outcome(ours)
        answer = self.kafka.ask(command, *fields)
        part_at_full_index(answer)
        if "base_offset" in answer and "base_offset" in found:
            answer["base_offset"] = first_offset_of(base64.b64decode(str(fields[-1])), answer)
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
            base_offset = end if command == "leader" else None
            noted = epochs_of_a_refused_append(epochs, data, epoch=self.drawn.epoch, base_offset=base_offset)
            self._take_over_epochs(noted, self._theirs("state"))
        self.roll_as_kafka_did()

    def roll_as_kafka_did(self) -> None:
        """Roll where Kafka made a segment for an append that it then refused, or knew already; end the history where
        that is after the log end, since the refused batch began there.
        """
        last, size = self._theirs("state")["segments"][-1]
        if size == 0 and last > self.log.log_end_offset:
            raise Parted
        if size == 0 and last == self.log.log_end_offset and last not in [one.base_offset for one in self.log.segments]:
            self.log.roll()

    def part_where_kafka_forgets_the_end(self) -> None:
        """End the history where kstore rolled, or put a segment in the place of others, since the log start is not
        below the end of the last batch: Kafka does not, and when it opens the log again it starts at the log start.
        """
        last = self.log.segments[-1]
        theirs = max((self.roots[1] / PARTITION).glob("*.log"))
        if last.size_in_bytes == 0 and int(theirs.stem) < last.base_offset == self.log.log_end_offset:
            batches = [*MemoryRecords(theirs.read_bytes()).batches()]
            end = batches[-1].last_offset + 1 if batches else int(theirs.stem)
            if end <= self.log.log_start_offset:
                raise Parted

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
            return self.log.append(
                MemoryRecords(data), partition_leader_epoch=self.drawn.epoch, origin=origin, guard=guard
            )

        yield from self.append_to_both("leader", ours, data, self.drawn.epoch, origin.name, verifies)

    def append(self) -> Iterator[str]:
        data = self.drawn.batch()
        # Not with what may be refused: Kafka has noted the epoch by then.
        if self.draw.random() < 0.1 and len(data) <= self.config.segment_bytes:
            self.drawn.epoch += 1
        yield from self.lead(data)

    def send(self) -> Iterator[str]:
        producer = self.drawn.producer()
        if producer.sent and self.draw.random() < 0.15:
            yield from self.lead(self.draw.choice(producer.sent), verifies=self.drawn.version_of_transactions())
            return
        if self.draw.random() < 0.05:
            producer.epoch += self.draw.choice((1, 1, -1)) if producer.epoch else 1
            producer.sequence, producer.sent = 0, []
        sequence = producer.sequence + (self.draw.choice((1, -1, 7)) if self.draw.random() < 0.07 else 0)
        is_transactional = producer.is_open or self.draw.random() < 0.5
        if self.draw.random() < 0.04:
            is_transactional = not is_transactional
        data = self.drawn.batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=max(sequence, 0),
            is_transactional=is_transactional,
        )
        end = self.log.log_end_offset
        yield from self.lead(data, verifies=self.drawn.version_of_transactions() if is_transactional else "")
        if self.log.log_end_offset > end:
            producer.sequence = max(sequence, 0) + self.log.log_end_offset - end
            producer.is_open = is_transactional
            producer.sent = [*producer.sent[-6:], data]

    def end(self) -> Iterator[str]:
        producer = self.drawn.producer()
        yield from self.lead(self.drawn.marker(producer), AppendOrigin.COORDINATOR)

    def replicate(self) -> Iterator[str]:
        epoch, end = self.drawn.epoch, self.log.log_end_offset
        yield from self.follow(self.drawn.replicated(end))
        if self.log.log_end_offset == end:
            self.drawn.epoch = epoch

    def replicate_messages(self) -> Iterator[str]:
        yield from self.follow(self.drawn.messages(self.log.log_end_offset))

    def follow(self, data: bytes) -> Iterator[str]:
        """Append as a follower."""
        yield from self.append_to_both(
            "follower", lambda: self.log.append_as_follower(MemoryRecords(data)), data, 2**31 - 1
        )

    def mark(self) -> Iterator[str]:
        if self.drawn.is_managed:
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
        least = self.log.high_watermark if self.drawn.is_managed and self.draw.random() < 0.8 else start
        offset = self.draw.choice((end, self.draw.randint(least, end), self.draw.randint(max(least - 3, 0), end)))
        yield from self.both("truncate", lambda: self.log.truncate_to(offset), offset)
        self.part_where_kafka_forgets_the_end()
        # Kafka looks anew for the first unstable offset only with the next mark or append.
        self.set_mark(self.log.high_watermark)
        for producer in self.drawn.producers.values():
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
        self.drawn.forget_producers()

    def delete(self) -> Iterator[str]:
        start, mark = self.log.log_start_offset, self.log.high_watermark
        offset = self.draw.choice((mark, self.draw.randint(start, mark), self.draw.randint(0, mark + 2)))
        yield from self.both("delete", lambda: self.log.delete_records(offset), offset)
        self.part_where_kafka_forgets_the_end()
        if self.drawn.kind == "retained":
            yield from self.retain()

    def after_deleting(self, then: Callable[[], Iterator[str]]) -> Iterator[str]:
        """Delete records, and then do something else before anything is appended."""
        name = self.steps[-1].split(", ")[1]
        yield from self.delete()
        self.steps.append(name)
        yield from then()

    def retain(self) -> Iterator[str]:
        yield from self.both("retain", lambda: self.log.delete_old_segments(self.env.now_ms))
        part_at_open_transaction(self.log, self._theirs("state"))

    def clean(self) -> Iterator[str]:
        def ours() -> Answer:
            report = self.log.compact(drops_keyless=True)
            cleaned = self.log._writer_files.cleaned_offset()
            self.cleaned_offset = max(self.cleaned_offset, cleaned or 0)
            return {"rounds": report.rounds, "cleaned": -1 if cleaned is None else cleaned}

        part_below_segments(self.log)
        config, end = self.config, self.log.cleanable().first_uncleanable_offset
        yield from self.both(
            "clean",
            ours,
            config.cleaner_dedupe_buffer_bytes,
            config.cleaner_dedupe_buffer_load_factor,
            config.cleaner_io_buffer_bytes,
        )
        mine, theirs = (cleaned_of(root / PARTITION, end) for root in self.roots)
        bounds = {"base_offset": self.log.segments[0].base_offset, "log_start_offset": self.log.log_start_offset}
        part_at_invisible_batches(mine, theirs, **bounds, end_offset=end)

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
        first = self.log.segments[0].base_offset
        self.gaps = gaps_before_segments(self.log) | {one for one in self.gaps if one < first}
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
        if ours != theirs and self.drawn.is_managed and not has_records(self.log, min(ours, theirs), max(ours, theirs)):
            self.log.update_high_watermark(theirs)

    def known(self, ours: Answer, theirs: Answer) -> Answer:
        """Take over from Kafka's answer what kstore says otherwise on purpose."""
        stable, other = ours["last_stable_offset"], theirs["last_stable_offset"]
        if not has_records(self.log, min(stable, other), max(stable, other)):
            # A log start inside a batch, or between two: Kafka names the first offset of a batch, even below the start.
            ours["last_stable_offset"] = other
        mine, others = ours["producers"], theirs["producers"]
        if self.cleaned_offset and self.steps[-1].startswith(("truncate", "reopen", "crash")):
            part_after_a_cleaning(mine, others)
        is_truncated = self.steps[-1].startswith("truncate") and mine != others
        if is_truncated and untimed(mine) == untimed(others) and self._snapshots(1).keys() - self._snapshots(0).keys():
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
        if (
            answer.get("offset") == -1
            and timestamp_ms >= 0
            and found["offset"] >= end_of_lookup(self.log, timestamp_ms)
        ):
            # Kafka looks into one segment only.
            answer = first_record_from(self.log, timestamp_ms)
        is_empty = self.drawn.kind == "compacted" and answer.get("offset") == -1
        if timestamp_ms == MAX_TIMESTAMP and (is_empty or -1 < answer["offset"] < self.log.log_start_offset):
            answer = largest_timestamp(self.log)
        yield from differences(f"time {timestamp_ms}", found, expected(answer))

    def finish(self) -> Iterator[str]:
        """Close both and compare their files."""
        end, last = self.log.log_end_offset, max(end_of_batches(self.log.segments[-1]), self.log.log_start_offset)
        known = partial(
            is_known_file,
            log_start_offset=self.log.log_start_offset,
            rebuilt=self.rebuilt,
            gaps=self.gaps | set(range(last + 1, end + 1)),
            end_of_batches=last if last < end else None,
            cleaned_offset=self.cleaned_offset,
            in_transactions=[
                (one.producer_id, one.base_offset)
                for one in self.log.batches()
                if one.is_transactional and not one.is_control
            ],
        )
        self.log.close()
        self._theirs("close")
        ours, theirs = (files_of(root / PARTITION) for root in self.roots)
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name) and not known(name, ours.get(name), theirs.get(name)):
                yield f"file {name}: {shown(ours.get(name))}, Kafka {shown(theirs.get(name))}"


def cleaned_of(directory: Path, end_offset: int) -> bytes:
    """The segments below an offset."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")) if int(path.stem) < end_offset)


def files_of(directory: Path) -> dict[str, bytes]:
    names = (path for path in directory.iterdir() if path.is_file() and path.name not in OF_ONE)
    return {path.name: path.read_bytes() for path in names if not path.name.endswith(".deleted")}


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


def run_one(seed: str, kafka: Kafka, kind: Kind) -> tuple[list[str], list[str]]:
    """Run one history; return what differs at the first step where anything does, and the steps up to there."""
    with tempfile.TemporaryDirectory() as work:
        history = History(seed, kafka, Path(work), kind)
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


def steps(
    kind: Kind = "plain", *, count: int = HISTORIES, seed: int = 1, only: int | None = None
) -> Iterator[tuple[str, Iterator[str]]]:
    """Run the histories of a seed, or the one with a number; give the problems of each."""

    def problems() -> Iterator[str]:
        with Kafka.running() as kafka, quiet():
            for number in range(count) if only is None else [only]:
                found, taken = run_one(f"{seed} {number}", kafka, kind)
                for problem in found:
                    yield f"history {number}: {problem}"
                if found and only is not None:
                    yield f"  after {' | '.join(taken)}"

    what = f"{count if only is None else 1} histories of {kind} logs (seed {seed})"
    yield f"kstore and Kafka's own classes do the same in {what}", problems()
