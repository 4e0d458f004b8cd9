"""kstore reads and verifies a root while a broker rolls, deletes, compacts and preallocates its segments, and while
topics are deleted and created again.

Nothing that the broker does may look like damage, or mix two topics of one name: a reader gets records of one history,
or an error that the log has moved on.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from kstore.errors import LogNotFoundError, LogReplacedError, OffsetOutOfRangeError
from kstore.log.files.names import find_partitions
from kstore.log.verify import verify, verify_checkpoints
from kstore.store.opening import open_log
from kstore.store.store import open_store
from tests.interop.broker import NODE_ID, Broker, Client, Refusal
from tests.interop.live_reads import ITERATORS, USES, VALUE_BYTES, Answers, MisplacedError, label_of, some_uses
from tests.interop.store import CLUSTER_ID, Problems

BUSY = """
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=200
log.flush.offset.checkpoint.interval.ms=500
log.flush.start.offset.checkpoint.interval.ms=500
"""
SMALL = ("segment.bytes=1048576", "index.interval.bytes=1024")
DELETED = ("retention.bytes=3000000",)
COMPACTED = ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "segment.ms=2000", "delete.retention.ms=1000")
KEPT = {
    "deleted": (*SMALL, *DELETED),
    "compacted": (*SMALL, *COMPACTED),
    "preallocated": (*SMALL, *DELETED, "preallocate=true"),
    "compacted-preallocated": (*SMALL, *COMPACTED, "preallocate=true"),
}
RECREATED = {"recreated": SMALL, "recreated-preallocated": (*SMALL, "preallocate=true")}
MODES = ("plain", "plain", "commit", "abort")
CODECS = ("none", "lz4", "zstd")
MOST_TOLD = 20
# What an untroubled minute does many times over.
LEAST_RECREATIONS_A_MINUTE = 5
# A run of this length meets rare outcomes too.
LONG_SECONDS = 300


def may_meet(error: Exception, topic: str, use: str) -> bool:
    """Whether an error of a use says what the broker did to the topic."""
    if topic in RECREATED:
        # Only a scan of the path opens it again.
        return isinstance(error, LogReplacedError) or (use == "read_path" and isinstance(error, LogNotFoundError))
    if isinstance(error, LogReplacedError):
        return use != "verify_all"
    # Of retention, after the bounds were asked for.
    return isinstance(error, OffsetOutOfRangeError)


class Beside:
    """Threads that write and read, and what they met: outcomes counts, problems says what must not be."""

    def __init__(self, root: Path, seconds: int) -> None:
        self._root = root
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        # By topic, the newest history that was begun; set before the broker hears of it.
        self._newest = dict.fromkeys((*KEPT, *RECREATED), 0)
        # Histories of which the broker did not take every record, and misplaced records of all, which follow from that.
        self._refused: set[tuple[str, int]] = set()
        self._misplaced: list[tuple[str, int, str]] = []
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []

    def note(self, outcome: str) -> None:
        with self._lock:
            self.outcomes[outcome] += 1

    def guarded(self, work: Callable[..., None], *arguments: object) -> Callable[[], None]:
        """Return what a thread runs: the work, whose every error is a problem."""

        def run() -> None:
            try:
                work(*arguments)
            except BaseException:
                self.problems.append(f"{work.__name__} ended early: {traceback.format_exc()[-400:]}")
                raise

        return run

    def is_going_on(self) -> bool:
        return time.monotonic() < self._end

    def write(self, client: Client, seed: int) -> None:
        """Append to the topics that stay."""
        choice = random.Random(seed)
        ends = dict.fromkeys(KEPT, 0)
        while self.is_going_on():
            topic = choice.choice([*KEPT])
            ends[topic] = self._append(client, choice, topic, ends[topic], keys=choice.randrange(1, 500))

    def recreate(self, client: Client, seed: int) -> None:
        """Create, fill and delete topics in turn. Full batches of one history have the sizes of those of the next."""
        choice = random.Random(seed)
        ends: dict[str, int] = {}
        while self.is_going_on():
            topic = choice.choice([*RECREATED])
            is_refused = (topic, self._newest[topic]) in self._refused
            if topic in ends and (is_refused or choice.random() < 0.3):
                client.ask("delete", topic)
                del ends[topic]
                self.note("deletions")
                continue
            if topic not in ends:
                self._newest[topic] += 1
                client.ask("create", topic, 1, *RECREATED[topic])
                ends[topic] = 0
            try:
                ends[topic] = self._append(client, choice, topic, ends[topic], keys=100)
            except Refusal as error:
                # A producer may meet the topic before every part of the broker knows it.
                self._refused.add((topic, self._newest[topic]))
                self.note(f"refused appends: {str(error)[-120:]}")

    def _append(self, client: Client, choice: random.Random, topic: str, end: int, *, keys: int) -> int:
        """Append records whose values tell what they are; return the new end of the log."""
        codec, mode, count = choice.choice(CODECS), choice.choice(MODES), choice.randrange(1, 3000)
        label = label_of(self._newest[topic], mode)
        (answer,) = client.ask("produce", topic, 0, codec, count, mode, keys, VALUE_BYTES, label, end)
        self.note(f"appends to {topic}")
        return int(answer["last_offset"]) + (1 if mode == "plain" else 2)

    def read(self, topics: tuple[str, ...], seed: int) -> None:
        """Use one Log after another, each several times."""
        choice = random.Random(seed)
        while self.is_going_on():
            topic = choice.choice(topics)
            try:
                log = open_log(self._root / f"{topic}-0")
            except LogNotFoundError:
                self.note("recreated, open_log: LogNotFoundError")
                if topic in KEPT:
                    self.problems.append(f"{topic} was not found")
                time.sleep(0.002)
                continue
            newest = self._newest[topic]
            with log:
                answers = Answers(choice, newest=newest, has_gaps=topic.startswith("compacted"))
                for use in some_uses(choice):
                    if not self._used(topic, newest, lambda: use(log, answers, choice), use.__name__):  # noqa: B023
                        break

    def _used(self, topic: str, newest: int, use: Callable[[], None], name: str) -> bool:
        """Use a Log once; return whether to go on with it."""
        outcome = "answered"
        try:
            use()
        except Exception as error:  # noqa: BLE001 - which errors may come is what is tested
            outcome = type(error).__name__
            if isinstance(error, MisplacedError):
                self._misplaced.append((topic, error.history, f"{topic}, {name}: {error}"))
            elif not may_meet(error, topic, name):
                self.problems.append(f"{topic}, {name}: {outcome}: {error}")
        since = " since" if self._newest[topic] > newest else ""
        self.note(f"{'kept' if topic in KEPT else 'recreated'}{since}, {name}: {outcome}")
        return outcome == "answered"

    def verify(self) -> None:
        while self.is_going_on():
            for partition in find_partitions(self._root):
                try:
                    with open_log(partition.path) as log:
                        damage = list(verify(log))
                    self.note("verify of a partition of the root")
                except Exception as error:  # noqa: BLE001 - as above
                    damage = []
                    self.note(f"verify of a partition of the root: {type(error).__name__}")
                    is_recreated = partition.topic_partition.topic in RECREATED
                    if not (is_recreated and isinstance(error, LogReplacedError | LogNotFoundError)):
                        self.problems.append(f"{partition.path}: verify: {type(error).__name__}: {error}")
                self.problems += [f"{partition.path}: {one}" for one in damage]
            self.problems += [f"{one}" for one in verify_checkpoints(str(self._root))]

    def wrong(self) -> Iterator[str]:
        """Yield what must not be; records of a history that the broker took in part may have other offsets."""
        yield from self.problems[:MOST_TOLD]
        found = (text for topic, history, text in self._misplaced if (topic, history) not in self._refused)
        yield from islice(found, MOST_TOLD)

    def missing(self, seconds: int) -> Iterator[str]:
        """Yield what a run must have met to mean anything, and did not."""
        expected = [f"appends to {topic}" for topic in (*KEPT, *RECREATED)]
        expected += [f"{kind}, {use.__name__}: answered" for kind in ("kept", "recreated") for use in USES]
        if seconds >= LONG_SECONDS:
            expected += [f"recreated since, {use.__name__}: LogReplacedError" for use in ITERATORS]
        yield from (f"never met: {outcome}" for outcome in expected if not self.outcomes[outcome])
        least = LEAST_RECREATIONS_A_MINUTE * seconds // 60
        if self.outcomes["deletions"] < least:
            yield f"only {self.outcomes['deletions']} topics were deleted and created again, expected {least}"


def steps(work: Path, *, seconds: int, say: Callable[[str], None]) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work, BUSY)
    broker.format(CLUSTER_ID)
    with broker.running() as client, Client.connected(f"127.0.0.1:{broker.port}") as another:
        for name, settings in KEPT.items():
            client.ask("create", name, 1, *settings)
        beside = Beside(root, seconds)
        works = [
            beside.guarded(beside.write, client, 1),
            beside.guarded(beside.recreate, another, 2),
            *(beside.guarded(beside.read, tuple(KEPT), seed) for seed in (3, 4)),
            *(beside.guarded(beside.read, tuple(RECREATED), seed) for seed in (5, 6)),
            beside.guarded(beside.verify),
        ]
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    say("  met beside the broker:")
    for outcome, count in sorted(beside.outcomes.items()):
        say(f"    {outcome}: {count}")
    yield f"{seconds} s of reads beside a broker take nothing for damage", beside.wrong()
    yield f"{seconds} s of reads beside a broker met every outcome", beside.missing(seconds)
