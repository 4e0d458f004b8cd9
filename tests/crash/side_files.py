"""Every byte of every side file of three small logs is flipped, each file emptied, zeroed and removed: a reader and a
writer get the same records and answers, and no record is removed; or docs/durability.md says what they get."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Literal, NamedTuple

from kstore.env import split_path
from kstore.errors import KStoreError
from kstore.log.files.names import LOG_SUFFIX
from kstore.log.files.root_files import write_partition_metadata
from kstore.log.log import Log
from kstore.log.write.writable_log import WritableLog
from kstore.store.opening import open_log
from tests.crash.crash_history import CrashHistory, abandon
from tests.crash.crash_states import as_durable, new_disk
from tests.crash.tables import rows_below
from tests.fakes.disk import Inode, SimulatedDisk

Mode = Literal["reader", "writer"]
MODES: tuple[Mode, ...] = ("reader", "writer")
PARTS = 40
SEPARATOR = ", "
HEADING = "### Side files that cannot be checked"
# How a log is made: (what is done in turn, whether it is closed).
LOGS: dict[str, tuple[tuple[str, ...], bool]] = {
    "closed": ((*["append"] * 14, "roll", *["append"] * 8, "delete records", "roll", *["append flushed"] * 6), True),
    "killed": ((*["append"] * 10, "roll", *["append flushed"] * 8, "roll", "flush", *["append flushed"] * 6), False),
    "compacted": ((*["append"] * 16, "roll", *["append"] * 8, "roll", "compaction", *["append flushed"] * 4), False),
}
SEEDS = {"closed": 39, "killed": 37, "compacted": 25}
WHOLE_DAMAGES = ("emptied", "zeroed", "removed")
# A bit of each byte turned, and all of them.
MASKS = (0x01, 0xFF)
SAME = "the same"


class Damage(NamedTuple):
    """A side file and what was done to it: "flipped" with position and mask, or one of WHOLE_DAMAGES."""

    path: str
    kind: str
    position: int = 0
    mask: int = 0


class Outcome(NamedTuple):
    """What came of a damage: SAME, the class of an error, or the answers that differ."""

    file: str
    kind: str
    mode: Mode
    result: str


@cache
def log_of(name: str) -> tuple[CrashHistory, SimulatedDisk]:
    """Return the history of a log and a disk with it, as its writer left them."""
    steps, is_closed = LOGS[name]
    history, disk = CrashHistory(random.Random(SEEDS[name]), has_retention=False), new_disk()
    history.config = replace(
        history.config, min_compaction_lag_ms=0, preallocate=False, segment_bytes=1 << 20, segment_index_bytes=4096
    )
    history.key_count = 5
    history.has_old_formats = name == "old"
    log = history.opened_by(disk)
    write_partition_metadata(log.path, uuid.uuid5(uuid.NAMESPACE_DNS, name), disk)
    for step in steps:
        history.pass_time(disk)
        log = history.operate(step, log, disk)
    if is_closed:
        history.close(log)
    else:
        abandon(log)
    disk.names["/root/.lock"] = Inode()
    return history, as_durable(disk.names, disk.directories, SimulatedDisk)


def side_files(name: str) -> list[str]:
    return sorted(path for path in log_of(name)[1].names if not path.endswith(LOG_SUFFIX))


def kind_of(path: str) -> str:
    """Return a file's name without what differs from segment to segment."""
    file = split_path(path)[1]
    return file[20:] if file[:20].isdigit() else file


def damages(name: str) -> Iterator[Damage]:
    for path in side_files(name):
        for kind in WHOLE_DAMAGES:
            yield Damage(path, kind)
        for position in range(len(log_of(name)[1].names[path].content)):
            yield from (Damage(path, "flipped", position, mask) for mask in MASKS)


def damaged(name: str, damage: Damage | None) -> SimulatedDisk:
    _, whole = log_of(name)
    disk = as_durable(whole.names, whole.directories, SimulatedDisk)
    if damage is None:
        return disk
    content = bytearray(disk.names[damage.path].content)
    if damage.kind == "removed":
        del disk.names[damage.path]
        return as_durable(disk.names, disk.directories, SimulatedDisk)
    if damage.kind == "emptied":
        content.clear()
    elif damage.kind == "zeroed":
        content[:] = bytes(len(content))
    else:
        content[damage.position] ^= damage.mask
    disk.names[damage.path] = Inode(bytes(content))
    return as_durable(disk.names, disk.directories, SimulatedDisk)


def answers_of(log: Log) -> dict[str, Any]:
    """Return what a log tells: records, lookups by offset and by time, committed records, transactions."""
    start, end = log.log_start_offset, log.log_end_offset
    records = [(one.offset, one.timestamp_ms, one.key, one.value) for one in log.read()]
    times = sorted({one[1] for one in records})
    found: dict[str, Any] = {
        "start": start,
        "end": end,
        "records": records,
        "committed": [one.offset for one in log.read(isolation="read_committed")],
        "by offset": [log.fetch(offset, 1).records for offset in range(start, end)],
        "by time": [log.offset_for_timestamp(time + more) for time in times for more in (0, 1)],
        "largest time": log.offset_for_timestamp(-3),
    }
    if isinstance(log, WritableLog):
        found["epochs"] = [tuple(one) for one in log.leader_epochs.entries]
        found["producers"] = {
            one.producer_id: (one.producer_epoch, one.batches[-1:], one.current_txn_first_offset)
            for one in log.producer_state.active_producers.values()
        }
    return found


def opened_answers(name: str, disk: SimulatedDisk, mode: Mode) -> dict[str, Any]:
    history, _ = log_of(name)
    if mode == "reader":
        with open_log(history.path, config=history.config, env=disk) as log:
            return answers_of(log)
    writer = history.copy().opened_by(disk)
    try:
        return answers_of(writer)
    finally:
        abandon(writer)


@cache
def expected_of(name: str, mode: Mode) -> dict[str, Any]:
    return opened_answers(name, damaged(name, None), mode)


def segment_bytes(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files().items() if path.endswith(LOG_SUFFIX)}


def outcome_of(name: str, damage: Damage, mode: Mode) -> Outcome:
    """Damage a file and ask everything.

    Raises: AssertionError if bytes of a .log are gone.
    """
    disk = damaged(name, damage)
    before = segment_bytes(disk)
    try:
        found = opened_answers(name, disk, mode)
    except KStoreError as error:
        result = type(error).__name__
    else:
        expected = expected_of(name, mode)
        result = SEPARATOR.join(key for key in expected if found[key] != expected[key]) or SAME
    after = sorted(segment_bytes(disk).items(), key=lambda one: split_path(one[0])[1])
    # Those that were moved to the quarantine are not gone.
    kept = [data for _, data in after if data]
    assert kept == [data for data in before.values() if data], f"{name}: {damage}: bytes of segments are gone"
    return Outcome(kind_of(damage.path), damage.kind, mode, result)


@cache
def known_differences() -> dict[tuple[str, str], list[frozenset[str]]]:
    """Return file and damage -> what may differ, or the error, of each row of docs/durability.md."""
    found: dict[tuple[str, str], list[frozenset[str]]] = {}
    for file, kinds, differs, _ in rows_below(HEADING):
        for kind in kinds.split(", "):
            found.setdefault((file, kind), []).append(frozenset(differs.split(SEPARATOR)))
    return found


def is_known(outcome: Outcome) -> bool:
    allowed = known_differences().get((outcome.file, outcome.kind), [])
    return outcome.result == SAME or any(set(outcome.result.split(SEPARATOR)) <= one for one in allowed)


def check_part(number: int, *, part_count: int = PARTS) -> int:
    """Try every part_count-th damage of a log; return how many."""
    name = [*LOGS][number // part_count]
    found = [*damages(name)][number % part_count :: part_count]
    for damage in found:
        for mode in MODES:
            outcome = outcome_of(name, damage, mode)
            assert is_known(outcome), f"{name}: {damage}: {outcome}"
    return len(found)
