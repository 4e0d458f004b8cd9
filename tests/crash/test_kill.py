"""Goal: a writer killed at any instant loses no record that it was told is written, and brings none back.
Method: a process appends, truncates, rolls, reports each step, and is killed; then the log is opened and read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.log.log import Log
from kstore.log.verify import verify
from kstore.store.opening import open_log
from tests.crash.killed_writer import (
    APPENDED,
    CONFIG,
    TRUNCATED,
    TRUNCATING,
    payload,
)
from tests.crash.nursery import Nursery

MOST_RECORDS = 1500


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery("tests.crash.killed_writer")
    yield found
    found.close()


class Model:
    """Which generation wrote each offset, as far as it was reported."""

    def __init__(self) -> None:
        self.generations: list[int] = []
        self.generation = 0
        self.least_end = 0

    def take(self, reports: list[tuple[int, int, int]]) -> None:
        self.least_end = len(self.generations)
        for kind, offset, generation in reports:
            self.generation = generation
            if kind == APPENDED:
                self.generations += [generation] * (offset - len(self.generations))
            elif kind == TRUNCATED:
                del self.generations[offset:]
            # A truncation that was begun may have happened, or not.
            self.least_end = offset if kind == TRUNCATING else len(self.generations)

    def check(self, log: Log) -> None:
        """Hold a log against the reports; what it has beyond them was written and not reported, and counts from now."""
        found = [(record.offset, record.value) for record in log.read()]
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert log.log_end_offset == len(found) >= self.least_end
        del self.generations[len(found) :]
        self.generations += [self.generation] * (len(found) - len(self.generations))
        wrong = [offset for offset, value in found if value != payload(offset, self.generations[offset])]
        assert wrong == []


def kill_again_and_again(nursery: Nursery, directory: Path, *, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    model, path = Model(), directory / "t-0"
    for number in range(kills):
        if len(model.generations) > MOST_RECORDS:
            model, path = Model(), directory / f"t-{number}"
        model.take(nursery.run_and_kill(path, generation=model.generation, rng=rng))
        if rng.random() < 0.5 and path.exists():
            with open_log(path) as log:
                model.check(log)
        else:
            with open_log(path, "a", CONFIG) as log:
                model.check(log)
            with open_log(path) as reader:
                assert list(verify(reader)) == []


def test_killed_writer_loses_nothing_that_was_written(nursery: Nursery, tmp_path: Path) -> None:
    kill_again_and_again(nursery, tmp_path, kills=20, seed=1)


@pytest.mark.long
def test_writer_killed_500_times_loses_nothing_that_was_written(nursery: Nursery, tmp_path: Path) -> None:
    kill_again_and_again(nursery, tmp_path, kills=500, seed=2)


def test_writer_that_reports_too_early_is_noticed(tmp_path: Path) -> None:
    liar = Nursery("tests.crash.killed_writer", "liar")
    try:
        with pytest.raises(AssertionError):
            kill_again_and_again(liar, tmp_path, kills=100, seed=3)
    finally:
        liar.close()
