"""Goal: whoever reads committed records sees whole transactions only, and every one that was told to be committed.
Method: a producer process is killed in the middle of transactions; the next init_producer_id ends what it left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.log.verify import verify
from kstore.store.store import WritableStore, open_store
from tests.crash.killed_producer import (
    ABORTED,
    COMMITTED,
    PARTITIONS,
    TOPIC,
    TRANSACTIONAL_ID,
    coordinator_of,
    opened,
    values_of,
)
from tests.crash.nursery import Nursery

MODULE = "tests.crash.killed_producer"
LONGEST_LIFE_SECONDS = 0.25


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery(MODULE, longest_life_seconds=LONGEST_LIFE_SECONDS)
    yield found
    found.close()


def committed(store: WritableStore) -> dict[int, Counter[bytes]]:
    """The committed records of each transaction."""
    found: dict[int, Counter[bytes]] = {}
    for partition in range(PARTITIONS):
        for record in store.log(TOPIC, partition).read(isolation="read_committed"):
            value = bytes(record.value or b"")
            found.setdefault(int(value.split(b"/")[0]), Counter())[value] += 1
    return found


def check(store: WritableStore, outcomes: dict[int, int]) -> None:
    for partition in range(PARTITIONS):
        log = store.log(TOPIC, partition)
        assert log.last_stable_offset == log.log_end_offset, "a transaction is open"
    found = committed(store)
    for number, values in found.items():
        assert values == Counter(values_of(number)), f"transaction {number} is not whole"
        assert outcomes.get(number) != ABORTED, f"transaction {number} was aborted"
    missing = [number for number, outcome in outcomes.items() if outcome == COMMITTED and number not in found]
    assert missing == []


def kill_again_and_again(nursery: Nursery, root: Path, *, kills: int, seed: int) -> int:
    """Return how many transactions were told to be committed."""
    rng = random.Random(seed)
    outcomes: dict[int, int] = {}
    number = 0
    for _ in range(kills):
        reports = nursery.run_and_kill(root, generation=number, rng=rng)
        outcomes.update({transaction: kind for kind, transaction, _ in reports})
        # The one that was killed may be committed or not, and its number is not used again.
        number += len(reports) + 1
        with opened(str(root)) as store:
            coordinator_of(store).init_producer_id(TRANSACTIONAL_ID)
            check(store, outcomes)
        with open_store(root) as reader:
            assert [list(verify(reader.log(*one))) for one in reader.partitions] == [[]] * len(reader.partitions)
    return sum(kind == COMMITTED for kind in outcomes.values())


def test_killed_producer_leaves_whole_transactions_only(nursery: Nursery, tmp_path: Path) -> None:
    assert kill_again_and_again(nursery, tmp_path / "root", kills=12, seed=1) > 0


# After each kill all records are read, so that 300 kills of one root would take hours.
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 14))
def test_producer_killed_300_times_leaves_whole_transactions_only(nursery: Nursery, tmp_path: Path, seed: int) -> None:
    assert kill_again_and_again(nursery, tmp_path / "root", kills=25, seed=seed) > 0


def test_commit_that_is_told_too_early_is_found_out(tmp_path: Path) -> None:
    liar = Nursery(MODULE, "liar", longest_life_seconds=LONGEST_LIFE_SECONDS)
    try:
        with pytest.raises(AssertionError):
            kill_again_and_again(liar, tmp_path / "root", kills=200, seed=3)
    finally:
        liar.close()
