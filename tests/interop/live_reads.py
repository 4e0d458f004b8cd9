"""Readers beside a live broker: what they ask a Log for, and what must be true of every answer.

Each value repeats its history, the fate of its transaction and its offset. A history is what a topic holds between its
creation and its deletion; a topic that is created again has the next one.
"""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from kstore.arrow import record_batches, scan
from kstore.log.log import Log
from kstore.log.verify import verify
from tests.crash.rewritten_reader import records_in, rows_of

VALUE_BYTES = 200
COLUMNS = ["offset", "value"]
# Of the rows after which a reader pauses, so that the broker changes files under an iterator.
PAUSED_SHARE = 1 / 3000
LONGEST_PAUSE_SECONDS = 0.4
Isolation = Literal["read_uncommitted", "read_committed"]
Verify = Literal["crc", "header"]


def label_of(history: int, fate: str) -> str:
    """Return what BrokerClient.java puts before the number of each value."""
    return f"{history}/{fate}"


class MisplacedError(AssertionError):
    """A record is whole, but was sent for another offset; history: the one that it tells."""

    def __init__(self, offset: int, sent: int, history: int) -> None:
        super().__init__(f"offset {offset}: the record of offset {sent} of history {history}")
        self.history = history


class Origin(NamedTuple):
    """Where a value comes from; fate: plain, commit or abort."""

    history: int
    fate: str


def origin_of(offset: int, value: bytes) -> Origin:
    """Return where the value at an offset comes from.

    Raises: AssertionError for a value that no producer sent; MisplacedError for one that was sent for another offset.
    """
    label, _, rest = value.partition(b" ")
    number = rest.partition(b" ")[0]
    text = label + b" " + number + b" "
    if not number.isdigit() or value != (text * (VALUE_BYTES // len(text) + 1))[:VALUE_BYTES]:
        raise AssertionError(f"offset {offset}: no producer sent {value!r}")
    history, _, fate = label.decode().partition("/")
    if int(number) != offset:
        raise MisplacedError(offset, int(number), int(history))
    return Origin(int(history), fate)


class Answers:
    """All that one Log has given: records of one history, each once, in order.

    Args: newest: the number of the newest history that was begun when the Log had been opened, None if it is opened
        later; has_gaps: whether a cleaner removes records.
    """

    def __init__(self, choice: random.Random, *, newest: int | None, has_gaps: bool) -> None:
        self._choice = choice
        self._newest = newest
        self._has_gaps = has_gaps
        self._history: int | None = None

    def take(self, rows: Iterable[tuple[int, bytes]], *, is_committed: bool = False) -> None:
        """Check rows of (offset, value) that follow one another in the log; raise AssertionError."""
        previous = None
        for offset, value in rows:
            self._check(offset, value, is_committed=is_committed)
            if previous is not None and offset <= previous:
                raise AssertionError(f"offset {offset} after {previous}")
            # Between two records there is at most the marker of a transaction.
            if previous is not None and offset > previous + 2 and not (self._has_gaps or is_committed):
                raise AssertionError(f"no record from offset {previous + 1} to {offset - 1}")
            previous = offset
            if self._choice.random() < PAUSED_SHARE:
                time.sleep(self._choice.uniform(0, LONGEST_PAUSE_SECONDS))

    def _check(self, offset: int, value: bytes, *, is_committed: bool) -> None:
        history, fate = origin_of(offset, value)
        if is_committed and fate == "abort":
            raise AssertionError(f"offset {offset} was aborted")
        if self._history not in (None, history):
            raise AssertionError(f"offset {offset} is of history {history}, those before of {self._history}")
        if self._newest is not None and history > self._newest:
            raise AssertionError(f"offset {offset} is of history {history}, the Log of {self._newest} or earlier")
        self._history = history


def some_isolation(choice: random.Random) -> Isolation:
    return choice.choice(("read_uncommitted", "read_committed"))


def read(log: Log, answers: Answers, choice: random.Random, verified: Verify = "crc") -> None:
    isolation = some_isolation(choice)
    records = log.read(isolation=isolation, verify=verified)
    answers.take(((one.offset, one.value or b"") for one in records), is_committed=isolation == "read_committed")


def read_by_headers(log: Log, answers: Answers, choice: random.Random) -> None:
    read(log, answers, choice, "header")


def read_batches(log: Log, answers: Answers, _: random.Random) -> None:
    batches = (batch for batch in log.batches() if not batch.header.is_control)
    answers.take((one.offset, one.value or b"") for batch in batches for one in batch)


def read_columns(log: Log, answers: Answers, choice: random.Random) -> None:
    isolation = some_isolation(choice)
    tables = log.to_arrow_batches(
        columns=COLUMNS,
        isolation=isolation,
        binary=choice.choice(("copy", "view")),
        batch_bytes=choice.choice((50_000, 1 << 20)),
        threads=choice.choice((1, 2)),
    )
    answers.take(rows_of(tables), is_committed=isolation == "read_committed")


def read_path(log: Log, _: Answers, choice: random.Random) -> None:
    """Scan by path, which opens a Log of its own."""
    answers = Answers(choice, newest=None, has_gaps=True)
    answers.take(rows_of(scan(log.path, columns=COLUMNS, batch_bytes=50_000, threads=choice.choice((1, 2)))))


def read_planned(log: Log, answers: Answers, choice: random.Random, verified: Verify = "crc") -> None:
    """Read ranges as another process does, some time after they were planned."""
    isolation = some_isolation(choice)
    ranges = pickle.loads(pickle.dumps(log.plan(max_bytes=choice.choice((30_000, 300_000)), isolation=isolation)))
    time.sleep(choice.uniform(0, LONGEST_PAUSE_SECONDS))
    tables = record_batches(
        ranges,
        columns=COLUMNS,
        batch_bytes=50_000,
        threads=choice.choice((1, 2)),
        config=log.config,
        verify_crc=verified == "crc",
    )
    answers.take(rows_of(tables), is_committed=isolation == "read_committed")


def read_planned_by_headers(log: Log, answers: Answers, choice: random.Random) -> None:
    read_planned(log, answers, choice, "header")


def fetch(log: Log, answers: Answers, choice: random.Random) -> None:
    for _ in range(10):
        offset, isolation = choice.randint(log.log_start_offset, log.log_end_offset), some_isolation(choice)
        found = log.fetch(offset, choice.choice((1, 10_000, 300_000)), isolation=isolation)
        rows = ((at, value) for at, value in records_in(found) if at >= offset)
        answers.take(rows, is_committed=isolation == "read_committed")


def look_up(log: Log, answers: Answers, choice: random.Random) -> None:
    for _ in range(10):
        wanted = int(time.time() * 1000) - choice.randrange(60_000)
        found = log.offset_for_timestamp(wanted)
        if found is None:
            continue
        if found.timestamp_ms < wanted:
            raise AssertionError(f"{found} was found for {wanted}")
        records = log.read(found.offset, found.offset + 1)
        # None if it is a marker, or was compacted since.
        record = next(records, None)
        if record is not None:
            answers.take([(record.offset, record.value or b"")])
            if record.timestamp_ms != found.timestamp_ms:
                raise AssertionError(f"{found} was found for {wanted}, but the record has {record.timestamp_ms}")


def verify_all(log: Log, _: Answers, choice: random.Random) -> None:
    damage = list(verify(log, deep=choice.random() < 0.5))
    if damage:
        raise AssertionError(f"verify: {damage[:3]}")


Use = Callable[[Log, Answers, random.Random], None]
USES: tuple[Use, ...] = (
    read,
    read_by_headers,
    read_batches,
    read_columns,
    read_path,
    read_planned,
    read_planned_by_headers,
    fetch,
    look_up,
    verify_all,
)
# Of these, each record was read from a file, so that another file in its place must end them.
ITERATORS: tuple[Use, ...] = (read, read_by_headers, read_batches, read_columns, read_planned, read_planned_by_headers)


def some_uses(choice: random.Random) -> Iterator[Use]:
    """Yield what is done with one Log, with time between."""
    for _ in range(choice.choice((1, 2, 6))):
        yield choice.choice(USES)
        time.sleep(choice.choice((0, 0, choice.uniform(0, LONGEST_PAUSE_SECONDS))))
