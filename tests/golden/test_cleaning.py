"""Goal: compaction and retention leave what Kafka's own cleaner and retention left, partition by partition.
Method: each partition as it was before is given to kstore with the broker's settings and clock; what is left, read from
the files, is compared with what the broker left. The table in docs/durability.md lists every difference."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.store.opening import open_log
from tests.golden.cleaning_cases import (
    CLEANING_SETS,
    LOG_START_CHECKPOINT,
    NEW_SET,
    CleaningCase,
    aspects,
    batches_of,
    cases,
    checkpointed,
    segment_bases,
    side_files,
    worked_on,
)
from tests.making.collecting import over

DURABILITY = Path(__file__).resolve().parents[2] / "docs" / "durability.md"
HEADING = "| case | set | differs in | the broker | kstore | why |"

Work = Callable[[CleaningCase], Path]

compacted = [case for case in cases(*CLEANING_SETS) if case.is_compacted]
retained = [case for case in cases(*CLEANING_SETS) if not case.is_compacted]


def documented() -> dict[tuple[str, str], set[str]]:
    """Return (case, version) -> the aspects that differ, from the table in docs/durability.md; "all" for any case."""
    text = DURABILITY.read_text()
    rows = text[text.index(HEADING) :].split("\n\n")[0].splitlines()[2:]
    found = {}
    for row in rows:
        names, versions, differs, *_ = [cell.strip() for cell in row.strip("|").split(" | ")]
        for name in re.findall(r"`([a-z0-9-]+)`", names) or ["all"]:
            for version in versions.split():
                found[name, version] = set(re.findall(r"`([a-z ]+)`", differs))
    return found


def allowed(case: CleaningCase) -> set[str]:
    version = case.set_name.removeprefix("cleaning-")
    table = documented()
    return table.get((case.topic, version), set()) | table.get(("all", version), set())


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Give a function that returns the directory in which kstore worked on a case, once for all tests; none writes."""
    root, done = tmp_path_factory.mktemp("cleaned"), dict[CleaningCase, Path]()

    def working(case: CleaningCase) -> Path:
        if case not in done:
            done[case] = worked_on(case, root / str(case))
        return done[case]

    return working


@over("case", compacted)
def test_compaction_leaves_what_the_broker_left(case: CleaningCase, work: Work) -> None:
    directory = work(case)
    found, wanted = aspects(case, directory), aspects(case, case.root(case.after) / case.name)
    differing = {name for name in wanted if found[name] != wanted[name]}
    assert differing <= allowed(case), differing - allowed(case)


@over("case", [case for case in compacted if case.set_name == NEW_SET])
def test_indexes_of_cleaned_segments_are_the_brokers(case: CleaningCase, work: Work) -> None:
    directory = work(case)
    theirs = case.root(case.after) / case.name
    logs, their_logs = side_files(directory, ".log"), side_files(theirs, ".log")
    # Where a compressor of another library made other bytes, positions differ.
    same = {name.removesuffix(".log") for name, data in logs.items() if their_logs.get(name) == data}
    for suffix in (".index", ".timeindex"):
        found, wanted = side_files(directory, suffix), side_files(theirs, suffix)
        assert all(found[f"{stem}{suffix}"] == wanted[f"{stem}{suffix}"] for stem in same)


@over("case", [case for case in compacted if case.set_name == NEW_SET and "txn" in case.topic])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_consumers_get_the_same_records(case: CleaningCase, isolation: str, work: Work) -> None:
    directory = work(case)
    with open_log(directory) as ours, open_log(case.root(case.after) / case.name) as theirs:
        assert list(ours.read(isolation=isolation)) == list(theirs.read(isolation=isolation))


@over("case", compacted)
def test_a_compacted_log_is_sound_and_clean(case: CleaningCase, tmp_path: Path) -> None:
    """Opened without the marker of a clean shutdown it is recovered without a change, and cleaning it does nothing."""
    directory = worked_on(case, tmp_path / str(case.name) / case.after)
    (directory.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    before = [one.data for one in batches_of(directory)]
    with open_log(directory, "a", case.config) as log:
        assert log.recovery_report.is_unharmed
        assert log.compact(now_ms=case.now_ms()).replaced_segments == 0
    assert [one.data for one in batches_of(directory)] == before


@over("case", retained)
def test_retention_ends_as_the_brokers(case: CleaningCase, work: Work) -> None:
    directory = work(case)
    assert segment_bases(directory) == case.expected["segments"]
    theirs = case.root(case.after) / case.name
    assert [one.data for one in batches_of(directory)] == [one.data for one in batches_of(theirs)]
    start = checkpointed(directory, LOG_START_CHECKPOINT) or 0
    assert max(start, segment_bases(directory)[0]) == max(
        case.expected["log_start_checkpoint"] or 0, case.expected["segments"][0]
    )


def test_every_documented_difference_occurs(work: Work) -> None:
    table = documented()
    for (name, version), wanted in table.items():
        seen: set[str] = set()
        for case in compacted:
            if case.set_name == f"cleaning-{version}" and name in (case.topic, "all"):
                directory = work(case)
                found, theirs = aspects(case, directory), aspects(case, case.root(case.after) / case.name)
                seen |= {one for one in theirs if found[one] != theirs[one]}
        assert wanted <= seen, (name, version, wanted - seen)
