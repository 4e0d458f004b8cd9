"""Goal: damage of a side file or of a batch that is durable never gives a wrong record; the exceptions are listed.
Method: every byte, or bit, is damaged in turn (here some of them), and the lists of docs/durability.md are read."""

from __future__ import annotations

import pytest

from tests.crash import bit_flips, side_files

FEW = 25


@pytest.mark.parametrize("name", side_files.LOGS)
def test_damaged_side_file_changes_no_answer_and_no_record(name: str) -> None:
    number = [*side_files.LOGS].index(name)
    assert side_files.check_part(number * FEW * 2 + FEW, part_count=FEW * 2) > 10


@pytest.mark.parametrize("name", side_files.LOGS)
def test_side_file_that_is_emptied_zeroed_or_removed_changes_no_answer_and_no_record(name: str) -> None:
    damages = [one for one in side_files.damages(name) if one.kind != "flipped"]
    found = [side_files.outcome_of(name, damage, mode) for damage in damages for mode in side_files.MODES]
    assert len(found) > 20
    assert [one for one in found if not side_files.is_known(one)] == []


def test_three_logs_have_every_side_file() -> None:
    kinds = {side_files.kind_of(path) for name in side_files.LOGS for path in side_files.side_files(name)}
    assert kinds == {
        *(".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata"),
        *("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"),
        *("cleaner-offset-checkpoint", "kstore-durable-point", ".kafka_cleanshutdown", ".lock"),
    }


def test_outcome_that_is_not_listed_is_noticed() -> None:
    listed = side_files.Outcome("log-start-offset-checkpoint", "removed", "reader", "start, records")
    assert side_files.is_known(listed)
    assert not side_files.is_known(listed._replace(file=".snapshot"))
    assert not side_files.is_known(
        side_files.Outcome("leader-epoch-checkpoint", "flipped", "writer", "epochs, records")
    )


@pytest.mark.parametrize("number", range(len(bit_flips.SEGMENTS)))
def test_flipped_bit_below_the_durable_point_is_seen_or_listed(number: int) -> None:
    first = number * bit_flips.CASES // len(bit_flips.SEGMENTS)
    assert bit_flips.check_part(first, step=3) > 100


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_list_of_bits_that_are_not_seen_has_no_row_too_many() -> None:
    found = set()
    for number in range(bit_flips.CASES):
        found |= bit_flips.flips_of(number)[1]
    assert found == bit_flips.unguarded()
