"""Goal: lookups in the segment that takes appends find what is there now, and don't prove anew what they proved.
Method: appends, cuts and lookups in any order against a list; reads of the .log are counted."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.config import LogConfig
from kstore.record import Record
from kstore.store.opening import open_log
from tests.fakes.counting import CountingEnv
from tests.making.strategies import examples

# An entry for almost every batch; a search by time trusts nothing below the proof bytes.
CONFIG = LogConfig(index_interval_bytes=150, time_index_proof_bytes=400)
FIRST_MS = 1_000_000

appends = st.tuples(st.just("append"), st.integers(1, 4), st.integers(-3, 8))
cuts = st.tuples(st.just("cut"), st.integers(0, 30), st.just(0))
lookups = st.tuples(st.sampled_from(["offset", "record", "time"]), st.integers(0, 400), st.just(0))
steps = st.lists(st.one_of(appends, appends, appends, lookups, lookups, cuts), max_size=120)


def records(count: int, *, timestamp_ms: int) -> list[Record]:
    return [Record(offset=0, timestamp_ms=timestamp_ms + number, value=b"v" * 40) for number in range(count)]


@given(todo=steps)
@examples(40)
def test_lookups_between_appends_and_cuts_find_what_a_walk_would(todo: list[tuple[str, int, int]]) -> None:
    times: list[int] = []
    ends: list[int] = []
    now_ms = FIRST_MS
    with tempfile.TemporaryDirectory() as scratch, open_log(Path(scratch) / "t-0", "a", CONFIG) as log:
        for step, number, drift in todo:
            if step == "append":
                now_ms += drift
                log.append(records(number, timestamp_ms=now_ms))
                times += range(now_ms, now_ms + number)
                ends.append(len(times))
            elif step == "cut":
                end = ends[-min(number, len(ends))] if number and ends else len(times)
                log.truncate_to(end)
                del times[end:]
                ends = [one for one in ends if one <= end]
            elif step == "offset":
                batch = log.segments[-1].translate_offset(number)
                assert (batch is not None and batch.base_offset <= number <= batch.last_offset) == (number < len(times))
            elif step == "record":
                record = log.get(number)
                assert (record and record.timestamp_ms) == (times[number] if number < len(times) else None)
            else:
                wanted = FIRST_MS - 50 + number
                found = log.offset_for_timestamp(wanted)
                expected = next(((at, ms) for at, ms in enumerate(times) if ms >= wanted), None)
                assert (None if found is None else tuple(found)) == expected


# A header, where the entry before is proven; up to the record, in a batch whose CRC is known to be right.
@pytest.mark.parametrize(("by", "most_bytes"), [("offset", 61), ("time", 4096)])
def test_lookup_in_a_log_that_grew_proves_nothing_anew(tmp_path: Path, by: str, most_bytes: int) -> None:
    env = CountingEnv()
    config = LogConfig(index_interval_bytes=4096, time_index_proof_bytes=4096)

    def look() -> int:
        before = env.log_bytes
        if by == "offset":
            batch = log.segments[-1].translate_offset(1234)
            assert batch is not None
            assert batch.base_offset <= 1234 <= batch.last_offset
        else:
            assert log.offset_for_timestamp(FIRST_MS + 1234) == (1234, FIRST_MS + 1234)
        return env.log_bytes - before

    with open_log(tmp_path / "t-0", "a", config, env=env) as log:
        for first in range(0, 4000, 100):
            log.append(records(100, timestamp_ms=FIRST_MS + first))
        for _ in range(5):
            look()
        for first in range(4000, 6000, 100):
            log.append(records(100, timestamp_ms=FIRST_MS + first))
            assert 0 < look() <= most_bytes
