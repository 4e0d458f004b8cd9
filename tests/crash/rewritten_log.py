"""The log of test_rewritten_log.py: values that tell who wrote them, the history that its writer reports, and whether
an answer of a reader is a state of that history.

A generation is what the log held between two changes that remove records from its end: it only grew, and lost records
at its start. Every record carries the number of the generation in which it was written, so that the same offset has
other bytes in another generation.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

FIRST_TIMESTAMP_MS = 1_600_000_000_000
GENERATIONS = 1_000_000
COMMITTED, ABORTED = "C", "A"
_DIGITS = 8


def payload(offset: int, generation: int, fate: str, size: int) -> bytes:
    """Return the value of a record: what it is, then filler, then the checksum of both."""
    data = f"{offset}/{generation}/{fate}/".encode().ljust(size, b"%d" % (generation % 10))
    return data + b"%08x" % zlib.crc32(data)


def generation_in(offset: int, value: bytes) -> int:
    """Return the generation that wrote the record at an offset; raise AssertionError for a value that nobody wrote."""
    data, checksum = value[:-_DIGITS], value[-_DIGITS:]
    assert checksum == b"%08x" % zlib.crc32(data), f"offset {offset}: torn value {value[:40]!r}"
    told, generation, _, _ = data.split(b"/", 3)
    assert int(told) == offset, f"offset {offset}: value of {value[:40]!r}"
    return int(generation)


def timestamp_of(offset: int, generation: int) -> int:
    return FIRST_TIMESTAMP_MS + offset * GENERATIONS + generation


class Run(NamedTuple):
    """Records that follow one another in an answer and are of one generation."""

    first_offset: int
    last_offset: int
    generation: int
    count: int


def runs_of(records: Iterable[tuple[int, bytes]]) -> Iterator[Run]:
    """Yield the runs of (offset, value) pairs; raise AssertionError for what no log may hold."""
    return _runs_of_pairs((offset, generation_in(offset, value)) for offset, value in records)


class Answer(NamedTuple):
    """What a reader got between two moments, and what it asked for.

    since: when the log was listed at the earliest; start_offset, end_offset: None if not asked for; is_whole: whether
    the answer goes to the end; error: the name of the one that ended it. found: for a lookup by time, the offset and
    the timestamp asked for, and the offset and timestamp of the answer.
    """

    use: str
    since: int
    until: int
    runs: tuple[Run, ...] = ()
    start_offset: int | None = None
    end_offset: int | None = None
    is_committed: bool = False
    is_whole: bool = True
    error: str | None = None
    problem: str | None = None
    looked_for: int | None = None
    found: tuple[int, int] | None = None


class Step(NamedTuple):
    """One change by the writer: when it began and ended, and what it did with which offset."""

    began: int
    ended: int
    kind: str
    offset: int = 0
    generation: int = 0
    count: int = 0
    fate: str = ""
    producer_id: int = -1


class Entry(NamedTuple):
    """A record of a generation; its batch starts at base_offset. kind is a fate, or "marker"."""

    offset: int
    base_offset: int
    generation: int
    fate: str
    producer_id: int


class State(NamedTuple):
    """The bounds of the log after a step, and the generation.

    held_end: no record has this offset or a later one; a truncation inside a batch removes it whole, and leaves the end
    offset above what is held. A reopening can then lower the end, so that the offsets between are written after all.
    """

    start_offset: int
    end_offset: int
    stable_offset: int
    generation: int
    held_end: int


class Generation:
    """The entries of one generation, by offset."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)
        self._offsets = [one.offset for one in self.entries]

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._offsets.append(entry.offset)

    def below(self, offset: int) -> list[Entry]:
        """Return the entries that a truncation to an offset leaves: those of batches that end below it."""
        kept = self.entries[: bisect_left(self._offsets, offset)]
        if len(kept) < len(self.entries) and self.entries[len(kept)].base_offset < offset:
            base_offset = self.entries[len(kept)].base_offset
            kept = [one for one in kept if one.base_offset != base_offset]
        return kept

    def open_transactions(self) -> dict[int, tuple[int, str]]:
        """Return the first offset and the fate of each producer's undecided transaction."""
        found: dict[int, tuple[int, str]] = {}
        for one in self.entries:
            if one.fate == "marker":
                found.pop(one.producer_id, None)
            elif one.producer_id >= 0:
                found.setdefault(one.producer_id, (one.offset, one.fate))
        return found

    def between(self, start_offset: int, end_offset: int) -> list[Entry]:
        return self.entries[bisect_left(self._offsets, start_offset) : bisect_left(self._offsets, end_offset)]

    def visible(self, start_offset: int, end_offset: int, *, is_committed: bool) -> list[tuple[int, int]]:
        """Return offset and generation of the records that a reader gets of [start_offset, end_offset)."""
        hidden = {"marker", ABORTED} if is_committed else {"marker"}
        return [
            (one.offset, one.generation) for one in self.between(start_offset, end_offset) if one.fate not in hidden
        ]

    def next_entry(self, offset: int) -> Entry | None:
        at = bisect_left(self._offsets, offset)
        return self.entries[at] if at < len(self.entries) else None


class History:
    """What a writer did, and what an answer may be at each time of it."""

    def __init__(self) -> None:
        self.generations: dict[int, Generation] = {0: Generation([])}
        self.states = [State(0, 0, 0, 0, 0)]
        self.began = [0]
        self.ended = [0]
        self.recreations: list[int] = []

    @property
    def state(self) -> State:
        return self.states[-1]

    @property
    def current(self) -> Generation:
        return self.generations[self.state.generation]

    def take(self, step: Step) -> None:
        start, end, _, generation, held_end = self.state
        if step.kind == "append":
            end = held_end = step.offset + step.count
            for offset in range(step.offset, end):
                entry = Entry(offset, step.offset, step.generation, step.fate, step.producer_id)
                self.current.add(entry)
        elif step.kind == "delete":
            start = step.offset
        elif step.kind == "reopen":
            assert all(one.offset < step.offset for one in self.current.entries[-1:])
            end, start = step.offset, min(start, step.offset)
        elif step.kind in ("truncate", "restart", "recreate"):
            generation = step.generation
            kept = self.current.below(step.offset) if step.kind == "truncate" else []
            self.generations[generation] = Generation(kept)
            end, start = step.offset, min(start, step.offset) if step.kind == "truncate" else step.offset
            held_end = max(kept[-1].offset + 1 if kept else start, start)
        if step.kind == "restart":
            # The segments are removed one by one, the last one first.
            removed_to = self.state.start_offset
            self._add(self.state._replace(held_end=removed_to), step)
        undecided = self.generations[generation].open_transactions().values()
        stable = max(min((first for first, _ in undecided), default=end), start)
        self._add(State(start, end, stable, generation, held_end), step)
        self.recreations += [len(self.states) - 1] if step.kind == "recreate" else []

    def _add(self, state: State, step: Step) -> None:
        self.states.append(state)
        self.began.append(step.began)
        self.ended.append(step.ended)

    def problem_of(self, answer: Answer) -> str | None:
        """Return why an answer is of no state of the log in its time, None if it is of one."""
        if answer.problem is not None:
            return answer.problem
        # The state that the last step before the answer left, and those of every step that overlaps it.
        first = max(bisect_right(self.ended, answer.since) - 1, 0)
        end = bisect_right(self.began, answer.until)
        states = self.states[first:end]
        if answer.looked_for is not None:
            return self._problem_of_lookup(answer, states)
        reasons = [self._problem_in(answer, states, number) for number in {one.generation for one in states}]
        return None if None in reasons else f"{answer}: {reasons}"

    def _problem_in(self, answer: Answer, states: list[State], number: int) -> str | None:
        """Return why an answer is not what one generation held."""
        generation = self.generations[number]
        asked = answer.start_offset
        least_start = min(one.start_offset for one in states) if asked is None else asked
        most_start = max(one.start_offset for one in states) if asked is None else asked
        sure_end = min(min(one.stable_offset, one.held_end) if answer.is_committed else one.held_end for one in states)
        if answer.end_offset is not None:
            sure_end = min(sure_end, answer.end_offset)
        runs = answer.runs
        if runs and not (least_start <= runs[0].first_offset):
            return f"begins below {least_start}"
        begin, end = (runs[0].first_offset, runs[-1].last_offset + 1) if runs else (most_start, most_start)
        expected = generation.visible(begin, end, is_committed=answer.is_committed)
        if [*_runs_of_pairs(expected)] != [*runs]:
            return f"generation {number} holds {[*_runs_of_pairs(expected)]}"
        missing = generation.visible(most_start, begin, is_committed=answer.is_committed) if runs else []
        if answer.is_whole and answer.error is None:
            missing += generation.visible(max(end, most_start), sure_end, is_committed=answer.is_committed)
        return f"generation {number} holds {missing[:3]} too" if missing else None

    def _problem_of_lookup(self, answer: Answer, states: list[State]) -> str | None:
        if answer.error is not None:
            return None
        looked_for = answer.looked_for or 0
        reasons = []
        for number in {one.generation for one in states}:
            bounds = [one for one in states if one.generation == number]
            starts = {one.start_offset for one in states}
            least, most = min(starts), max(starts)
            found = answer.found
            candidates = {self._first_from(number, looked_for, start) for start in (*starts, least, most)}
            sure_end = min(one.held_end for one in states)
            if found in candidates or (found is None and all(one is None or one[0] >= sure_end for one in candidates)):
                return None
            # The log start may lie anywhere between its values while it is raised.
            if found is not None and any(one is not None and one[0] <= found[0] <= most for one in candidates):
                entry = self.generations[number].next_entry(found[0])
                if entry is not None and (entry.offset, timestamp_of(entry.offset, entry.generation)) == found:
                    return None
            reasons.append((number, bounds[0], candidates))
        return f"{answer}: {reasons}"

    def _first_from(self, number: int, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
        offset = max((timestamp_ms - FIRST_TIMESTAMP_MS) // GENERATIONS, start_offset)
        entry = self.generations[number].next_entry(offset)
        while entry is not None and timestamp_of(entry.offset, entry.generation) < timestamp_ms:
            entry = self.generations[number].next_entry(entry.offset + 1)
        return None if entry is None else (entry.offset, timestamp_of(entry.offset, entry.generation))


def _runs_of_pairs(found: Iterable[tuple[int, int]]) -> Iterator[Run]:
    run = None
    for offset, generation in found:
        assert run is None or offset > run.last_offset, f"offset {offset} after {run}"
        if run is not None and run.generation == generation:
            run = run._replace(last_offset=offset, count=run.count + 1)
            continue
        if run is not None:
            yield run
        run = Run(offset, offset, generation, 1)
    if run is not None:
        yield run
