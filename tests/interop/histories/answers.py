"""What kstore and Kafka's UnifiedLog say of one log, in the same words."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kstore.errors import KStoreError
from kstore.log.write.writable_log import WritableLog
from kstore.record import ControlRecordType, MemoryRecords, RecordBatch, control_record_type
from tests.interop.broker import BROKER_JVM, java
from tests.interop.programs import Unavailable

Answer = dict[str, Any]


class Kafka:
    """A UnifiedLog, driven through LogHistory.java."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Kafka]:
        command = [part.replace("LogLevel=info", "LogLevel=off") for part in java("LogHistory", jvm=BROKER_JVM)]
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
