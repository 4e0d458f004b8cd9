"""Goal: no bytes in an index change an answer, and no bytes in a log make one up, crash or hang.
Method: Hypothesis overwrites parts of the files of a built partition; answers are compared with the untouched one."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log.log import Log
from kstore.log.verify import verify
from kstore.store.opening import open_log
from tests.making.batches import Layout, batches, write_partition

SEGMENTS = [
    batches(0, 12, records_per_batch=3, value_bytes=150),
    batches(40, 12, records_per_batch=3, value_bytes=150),
]
CONFIG = LogConfig(read_chunk_bytes=4096)
END = 76
FIRST_MS = 1_600_000_000_000
ASKED_OFFSETS = [0, 1, 17, 35, 36, 39, 40, 41, 60, 75]
ASKED_TIMES = [0, FIRST_MS + 5, FIRST_MS + 20, FIRST_MS + 37, FIRST_MS + 60, FIRST_MS + 75, FIRST_MS + 76]
INDEX_NAMES = [f"{base:020d}.{suffix}" for base in (0, 40) for suffix in ("index", "timeindex")]
LOG_NAMES = [f"{base:020d}.log" for base in (0, 40)]
LAYOUT = Layout(index_interval_bytes=600)

small = st.integers(-3, 80)
offset_entries = st.lists(st.tuples(small, st.integers(-1, 8000) | st.integers(-(2**31), 2**31 - 1)), max_size=12)
time_entries = st.lists(st.tuples(st.integers(-1, 80).map(lambda ms: FIRST_MS + ms), small), max_size=12)
index_content = (
    st.binary(max_size=200)
    | offset_entries.map(lambda entries: b"".join(struct.pack(">ii", *entry) for entry in entries))
    | time_entries.map(lambda entries: b"".join(struct.pack(">qi", *entry) for entry in entries))
)
edits = st.lists(
    st.tuples(st.sampled_from(LOG_NAMES), st.integers(0, 9000), st.binary(min_size=1, max_size=70)), max_size=3
)


def answers(log: Log) -> list[object]:
    """Ask everything that an index could spoil."""
    return [
        log.log_end_offset,
        [log.fetch(offset, 1) for offset in ASKED_OFFSETS],
        [log.offset_for_timestamp(timestamp_ms) for timestamp_ms in ASKED_TIMES],
        [record.offset for record in log.read(17, 60)],
        [scan_range.files for scan_range in log.plan(max_bytes=1500)],
    ]


def build(parent: str) -> Path:
    return write_partition(Path(parent), SEGMENTS, layout=LAYOUT)


with TemporaryDirectory() as parent, open_log(build(parent), config=CONFIG) as untouched:
    EXPECTED = answers(untouched)[:-1]
    RECORDS = list(untouched.read())
    EXPECTED_PLAN = [
        [(Path(file.path).name, *file[1:]) for file in scan_range.files]
        for scan_range in untouched.plan(max_bytes=1500)
    ]


@given(st.dictionaries(st.sampled_from(INDEX_NAMES), index_content))
def test_no_index_content_changes_an_answer(contents: dict[str, bytes]) -> None:
    with TemporaryDirectory() as parent:
        directory = build(parent)
        for name, content in contents.items():
            (directory / name).write_bytes(content)
        with open_log(directory, config=CONFIG) as log:
            *found, plan = answers(log)
            assert found == EXPECTED
            assert [[(Path(file.path).name, *file[1:]) for file in files] for files in plan] == EXPECTED_PLAN


@given(edits)
def test_damaged_log_gives_true_records_or_a_typed_error(changes: list[tuple[str, int, bytes]]) -> None:
    """A base offset is outside the CRC, so offsets may lie; keys and values never do."""
    with TemporaryDirectory() as parent:
        directory = build(parent)
        for name, position, new in changes:
            data = bytearray((directory / name).read_bytes())
            data[position : position + len(new)] = new
            (directory / name).write_bytes(data)
        true_values = {record.value for record in RECORDS}
        with open_log(directory, config=CONFIG) as log:
            for ask in (
                log.read,
                lambda: iter(log.plan(max_bytes=1500)),
                lambda: iter([log.offset_for_timestamp(FIRST_MS + 60)]),
            ):
                try:
                    given = list(ask())
                except KStoreError:
                    continue
                assert all(record.value in true_values for record in given if hasattr(record, "value"))


@given(edits)
def test_verify_walks_through_any_damage(changes: list[tuple[str, int, bytes]]) -> None:
    with TemporaryDirectory() as parent:
        directory = build(parent)
        is_changed = False
        for name, position, new in changes:
            old = (directory / name).read_bytes()
            data = bytearray(old)
            data[position : position + len(new)] = new
            (directory / name).write_bytes(data)
            is_changed = is_changed or bytes(data) != old
        with open_log(directory, config=CONFIG) as log:
            found = list(verify(log))
        assert is_changed or not found
        for name in LOG_NAMES:
            ranges = sorted(
                (one.position, one.position + one.size_in_bytes) for one in found if one.path.endswith(name)
            )
            assert all(start < end <= (directory / name).stat().st_size for start, end in ranges)
            assert all(left[1] <= right[0] for left, right in pairwise(ranges))
