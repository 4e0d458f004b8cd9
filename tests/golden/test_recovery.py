"""Goal: loading a damaged log gives what a broker gives, or better, and says so; strict mode refuses, salvage saves.
Method: copies of the recovery sets are loaded; trees that brokers left, and the table of docs/durability.md, decide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstore.errors import CorruptLogError
from kstore.store.opening import open_log
from tests.golden.recovery_cases import (
    CLEAN_SET,
    NEW_SETS,
    OLD_SETS,
    RECOVERY_SETS,
    Batch,
    Case,
    State,
    base_of,
    batch_at,
    batches,
    cases,
    copied,
    differences,
    index_entries,
    load,
    read_state,
)
from tests.making.collecting import over

ROOT = Path(__file__).resolve().parents[2]
DURABILITY = ROOT / "docs" / "durability.md"

# Data below the recovery point that is damaged or gone.
DAMAGED = (
    *("trunc-header", "trunc-frame", "trunc-payload", "flip-last", "flip-mid", "flip-first", "flip-old-rpkeep"),
    *("zero-last", "missing-mid", "missing-mid-log", "size-huge", "size-huge-mid", "size-small", "size-neg"),
    *("size-minus1", "magic5", "offset-back", "offset-jump", "offset-below-base", "offset-2g", "empty-last"),
    "empty-mid",
)
# Without producer snapshots nothing is left that speaks of a segment all of whose files are gone.
UNSEEN_IN_OLD_SETS = ("missing-mid",)
# The entry is a wrapper of magic 0, whose records have their own offsets: all of them are there, and where they belong.
HARMLESS = (("recovery-0.8.2.2", "offset-jump"),)
# Behind a clean-shutdown marker only the end of the log is looked at.
UNSEEN_IN_CLEAN_SET = (
    *("flip-last", "flip-mid", "flip-first", "flip-old-rpkeep", "missing-mid", "missing-mid-log", "size-huge-mid"),
    *("size-small", "size-minus1", "offset-jump", "offset-below-base", "empty-mid"),
)

# The log start offset of the cases logstart-beyond.
BEYOND = 12345

# The sets of the newest broker, of the newest old format, and of clean loads; the others in the long lane.
DEFAULT_SETS = ("recovery-4.4.0", "recovery-0.10.2.2", CLEAN_SET)
LONG_SETS = tuple(name for name in RECOVERY_SETS if name not in DEFAULT_SETS)

every_case = over("case", cases(*RECOVERY_SETS))
most_cases = over("case", cases(*RECOVERY_SETS), long=LONG_SETS)


def table_rows() -> list[tuple[str, ...]]:
    """Return the cells of each row of the table of deliberate differences."""
    table = DURABILITY.read_text().partition("| case | sets | differs in |")[2].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if re.match(r"\| `", line)]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def sets_of(cell: str) -> list[str]:
    short = {name.removeprefix("recovery-"): name for name in (*OLD_SETS, *NEW_SETS)} | {"clean": CLEAN_SET}
    return [short[word] for word in cell.replace(",", " ").split()]


def stated_differences() -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for case_cell, sets_cell, facets_cell, *_ in table_rows():
        for set_name in sets_of(sets_cell):
            for name in named(case_cell):
                found.setdefault((set_name, name), set()).update(named(facets_cell))
    return found


STATED = stated_differences()


def test_table_of_differences_names_cases_that_exist() -> None:
    known = {(case.set_name, case.name) for case in cases(*RECOVERY_SETS)}
    assert STATED
    assert set(STATED) - known == set()


@every_case
def test_point_in_time_leaves_what_the_broker_left_but_for_the_stated_differences(case: Case, tmp_path: Path) -> None:
    directory = copied(case, tmp_path)
    loaded = load(case, directory, mode="point_in_time")
    state = read_state(Path(directory.path))
    assert differences(case, loaded, state) == STATED.get((case.set_name, case.name), set())
    if not case.is_clean:
        check_sound(state, log_end_offset=loaded.log_end_offset, may_keep_damage=case.name == "flip-old-rpkeep")


def check_sound(state: State, *, log_end_offset: int, may_keep_damage: bool) -> None:
    """Hold every file against the batches, found without kstore: no index entry is wrong, no byte is left over."""
    logs = {name: batches(content) for name, content in state.items() if name.endswith(".log")}
    last = max(logs)
    for name, found in logs.items():
        is_whole = sum(len(batch.data) for batch in found) == len(state[name])
        assert is_whole or may_keep_damage, name
        if is_whole:
            check_indexes(state, found, base_offset=base_of(name), stem=name.removesuffix(".log"))
    assert log_end_offset == (logs[last][-1].last_offset + 1 if logs[last] else base_of(last))
    side_files = [name for name in state if re.search(r"\.(deleted|cleaned|swap|tmp)$", name)]
    assert side_files == []


def check_indexes(state: State, found: list[Batch], *, base_offset: int, stem: str) -> None:
    # A wrapper's header has only its last offset; what comes before is behind the batch before it.
    before = [base_offset - 1, *(batch.last_offset for batch in found)]
    least_offsets = {batch.position: least + 1 for batch, least in zip(found, before, strict=False)}
    for relative, position in index_entries(state[f"{stem}.index"], ">ii"):
        assert least_offsets[position] <= base_offset + relative, (f"{stem}.index", position)
    largest = -1
    expected = {}
    for batch in found:
        largest = max(largest, batch.max_timestamp_ms)
        expected[batch.last_offset - base_offset] = largest
    for timestamp_ms, relative in index_entries(state[f"{stem}.timeindex"], ">qi"):
        at_or_behind = [offset for offset in expected if offset >= relative]
        assert expected[min(at_or_behind)] == timestamp_ms, (f"{stem}.timeindex", base_offset + relative)


@most_cases
def test_dry_run_changes_nothing_and_a_second_recovery_finds_nothing_to_do(case: Case, tmp_path: Path) -> None:
    directory = copied(case, tmp_path)
    path = Path(directory.path)
    before = read_state(path)
    foretold = load(case, directory, mode="point_in_time", dry_run=True)
    assert read_state(path) == before
    assert [one for one in path.iterdir() if one.is_dir()] == []
    loaded = load(case, directory, mode="point_in_time")
    after = read_state(path)
    assert foretold.log_end_offset == loaded.log_end_offset
    assert foretold.report.truncated_bytes == loaded.report.truncated_bytes
    assert foretold.report.deleted_segments == loaded.report.deleted_segments
    again = load(case, directory, mode="point_in_time")
    assert read_state(path) == after
    assert again.log_end_offset == loaded.log_end_offset
    assert again.report.truncated_bytes == 0
    assert again.report.rebuilt == ()


def is_to_be_refused(case: Case) -> bool:
    if case.name not in DAMAGED or (case.set_name, case.name) in HARMLESS:
        return False
    if case.is_clean:
        return case.name not in UNSEEN_IN_CLEAN_SET
    return case.has_states or case.name not in UNSEEN_IN_OLD_SETS


@most_cases
def test_strict_refuses_where_data_below_the_recovery_point_is_damaged_and_names_the_place(
    case: Case, tmp_path: Path
) -> None:
    directory = copied(case, tmp_path)
    path = Path(directory.path)
    before = read_state(path)
    if case.log_start_offset == BEYOND:
        with pytest.raises(CorruptLogError, match=r"log start offset 12345 .* is above the log end offset") as caught:
            load(case, directory, mode="strict")
        assert str(caught.value.path).endswith("log-start-offset-checkpoint")
        assert read_state(path) == before
        return
    if not is_to_be_refused(case):
        loaded = load(case, directory, mode="strict")
        if case.recovery_point is not None:
            assert loaded.log_end_offset >= min(case.recovery_point, case.clean_log_end_offset)
        return
    with pytest.raises(CorruptLogError) as caught:
        load(case, directory, mode="strict")
    assert read_state(path) == before
    name = str(caught.value.path).rpartition("/")[2]
    assert name.endswith(".log")
    position = caught.value.position
    assert position is not None
    whole = batches(before[name])
    assert position in {0, *(batch.position + len(batch.data) for batch in whole), *(one.position for one in whole)}
    if name in case.damage:
        stated = re.search(r"(?:last entry|entry \d+ of \d+) \(?at (\d+)", case.damage)
        assert stated is None or position == int(stated[1])


@most_cases
def test_salvage_keeps_every_batch_that_is_whole(case: Case, tmp_path: Path) -> None:
    directory = copied(case, tmp_path)
    before = read_state(Path(directory.path))
    kept = [content for name, content in before.items() if name.endswith((".log", ".log.swap"))]
    expected = {batch.data[12:16] + batch.data[17:] for content in kept for batch in whole_batches(content)}
    loaded = load(case, directory, mode="salvage")
    state = read_state(Path(directory.path))
    found = {
        batch.data[12:16] + batch.data[17:]
        for name, content in state.items()
        if name.endswith(".log")
        for batch in batches(content)
    }
    assert expected - found == set()
    check_sound(state, log_end_offset=loaded.log_end_offset, may_keep_damage=False)


def whole_batches(content: bytes) -> list[Batch]:
    """Return every batch with a right CRC: behind a damaged one where its size says, else searched byte by byte.

    What a search finds may be a message inside a damaged wrapper; then its offset is far off.
    """
    found, position, is_search = [], 0, False
    while position < len(content):
        batch = batch_at(content, position)
        size = 12 + int.from_bytes(content[position + 8 : position + 12], "big", signed=True)
        if batch is not None and not (is_search and abs(batch.last_offset - found[-1].last_offset) > 1000):
            found.append(batch)
            position, is_search = position + len(batch.data), False
        elif size > 26 and (position + size == len(content) or batch_at(content, position + size) is not None):
            position, is_search = position + size, False
        else:
            position, is_search = position + 1, True
    return found


@pytest.mark.parametrize("name", HARMLESS)
def test_wrong_offset_of_a_wrapper_of_magic_0_costs_none_of_its_records(name: tuple[str, str], tmp_path: Path) -> None:
    (case,) = (one for one in cases(name[0]) if one.name == name[1])
    directory = copied(case, tmp_path)
    load(case, directory, mode="strict")
    with open_log(directory.path) as log:
        assert [record.offset for record in log.read()] == list(range(case.clean_log_end_offset))
