"""Goal: readers beside a writer that truncates, rolls, deletes, begins again and recreates its log get one state of it,
or an error that the docs name; never damage, never records of two histories.
Method: a writer process and reader processes; each record tells who wrote it, each step and each answer has its time,
and afterwards every answer is held against the states of its time."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.nursery import ROOT
from tests.crash.rewritten_log import COMMITTED, Answer, History, Run, Step

ROUND_SECONDS = 4.0
LONG_SECONDS = 600.0
MOST_ROUNDS = 5
MOST_TOLD = 5
READERS = 2


def started(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", f"tests.crash.{module}", *map(str, arguments)], cwd=ROOT)


def unpickled(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


def answers_beside_a_writer(work: Path, *, seed: int, seconds: float) -> tuple[History, list[Answer]]:
    """Return what the writer did and what its readers got."""
    work.mkdir(parents=True)
    directory, steps = work / "t-0", work / "steps"
    writer = started("rewriting_writer", directory, steps, seed, seconds)
    readers = [
        started("rewritten_reader", directory, work / f"answers-{number}", seed * READERS + number, seconds)
        for number in range(READERS)
    ]
    processes = (writer, *readers)
    try:
        statuses = [process.wait(seconds + 120) for process in processes]
    finally:
        for process in processes:
            # Does nothing to one that has ended.
            process.kill()
            process.wait()
    assert statuses == [0] * len(statuses)
    history = History()
    for step in unpickled(steps):
        history.take(step)
    return history, [answer for path in sorted(work.glob("answers-*")) for answer in unpickled(path)]


def problems_beside_a_writer(work: Path, *, seed: int, seconds: float, outcomes: Counter[str]) -> list[str]:
    history, answers = answers_beside_a_writer(work, seed=seed, seconds=seconds)
    outcomes["generations"] += len(history.generations)
    for answer in answers:
        outcomes[f"{answer.use}: {answer.error or 'answered'}"] += 1
    return [problem for problem in map(history.problem_of, answers) if problem is not None]


def test_answer_may_lack_the_end_of_a_log_only_while_it_is_restarted() -> None:
    history = History()
    history.take(Step(began=10, ended=20, kind="append", offset=0, count=10, fate=COMMITTED))
    history.take(Step(began=30, ended=50, kind="restart", offset=60, generation=1))
    begin, whole = Run(0, 4, 0, 5), Run(0, 9, 0, 10)

    def problem_of(run: Run, since: int, until: int) -> str | None:
        return history.problem_of(Answer("_read", since, until, (run,), start_offset=0))

    assert problem_of(begin, 40, 41) is None
    assert problem_of(whole, 40, 41) is None
    assert "holds [(5, 0), (6, 0), (7, 0)] too" in (problem_of(begin, 21, 22) or "")
    assert "generation 1 holds []" in (problem_of(whole, 51, 52) or "")


def test_offsets_of_a_batch_that_a_truncation_split_are_held_only_after_they_are_written_again() -> None:
    history = History()
    history.take(Step(began=10, ended=20, kind="append", offset=0, count=2, fate=COMMITTED))
    history.take(Step(began=21, ended=22, kind="append", offset=2, count=3, fate=COMMITTED))
    history.take(Step(began=30, ended=40, kind="truncate", offset=4, generation=1))
    history.take(Step(began=50, ended=60, kind="reopen", offset=2))
    history.take(Step(began=70, ended=80, kind="append", offset=2, count=1, generation=1, fate=COMMITTED))

    def problem_of(since: int, until: int) -> str | None:
        return history.problem_of(Answer("_read", since, until, (Run(0, 1, 0, 2),), start_offset=0))

    assert [problem_of(35, 36), problem_of(41, 42), problem_of(41, 71), problem_of(61, 71)] == [None] * 4
    assert "holds [(2, 0), (3, 0), (4, 0)] too" in (problem_of(24, 25) or "")
    assert "holds [(2, 1)] too" in (problem_of(81, 82) or "")


def has_seen_enough(outcomes: Counter[str]) -> bool:
    """Whether there was something to get wrong: on a busy machine a round may have hardly a read."""
    return outcomes["generations"] > 3 and outcomes["_read: answered"] > 0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_readers_beside_a_writer_that_rewrites_its_log_get_one_state_of_it(tmp_path: Path, seed: int) -> None:
    outcomes: Counter[str] = Counter()
    for more in range(MOST_ROUNDS):
        work = tmp_path / str(more)
        problems = problems_beside_a_writer(work, seed=seed + 10 * more, seconds=ROUND_SECONDS, outcomes=outcomes)
        assert problems[:MOST_TOLD] == []
        if has_seen_enough(outcomes):
            return
    raise AssertionError(f"in {MOST_ROUNDS} rounds there was only {dict(sorted(outcomes.items()))}")


@pytest.mark.long
def test_readers_beside_a_writer_get_one_state_of_its_log_for_ten_minutes(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    end, seed = time.monotonic() + LONG_SECONDS, 100
    while time.monotonic() < end:
        work = tmp_path / str(seed)
        problems = problems_beside_a_writer(work, seed=seed, seconds=10 * ROUND_SECONDS, outcomes=outcomes)
        assert problems[:MOST_TOLD] == [], seed
        seed += 1
    sys.stdout.write(f"{dict(sorted(outcomes.items()))}\n")
