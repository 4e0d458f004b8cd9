"""Goal: followers beside a writer that appends, rolls, truncates, deletes, compacts, begins again and recreates its log
give each record that is left once, whole and in order.
Method: two writer processes, one of which follows its own log, and two processes with four followers each; each record
tells who wrote it, each step and each delivery has its time. A follower's view is what it was given, without what a
truncation took back; in the end that is the log."""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kstore.store.opening import open_log
from tests.crash.compacting_writer import value_at
from tests.crash.following_reader import Delivery
from tests.crash.rewritten_log import History, generation_in
from tests.crash.test_rewritten_log import MOST_ROUNDS, started, unpickled

SHORT_SECONDS = 3.0
LONG_SECONDS = 600.0
READERS = 2
MOST_TOLD = 3
COMMITTED_NUMBER, COMPACTED_NUMBER = 1, 3


def problems_of_rewritten(deliveries: list[Delivery], history: History, *, is_committed: bool) -> list[str]:
    """Return what a follower of the rewritten log gave that it should not have, or should have and did not."""
    view: dict[int, int] = {}
    given: set[tuple[int, int]] = set()
    latest = 0
    problems = [one.problem for one in deliveries if one.problem is not None]
    for delivery in deliveries:
        if delivery.begins_again:
            view.clear()
        for offset, value in delivery.records:
            written = generation_in(offset, value)
            if (offset, written) in given:
                problems.append(f"{offset} of generation {written} was given twice")
            given.add((offset, written))
            if written > latest:
                # It shows that those were taken back that its generation does not hold, such as a batch that a
                # truncation divided.
                latest = written
                held = {(one.offset, one.generation) for one in history.generations[written].entries}
                view = {one: by for one, by in view.items() if (one, by) in held}
            for taken in [one for one in view if one >= offset]:
                del view[taken]
            view[offset] = written
    state = history.state
    final = history.current.visible(state.start_offset, state.end_offset, is_committed=is_committed)
    if is_committed:
        final = [one for one in final if one[0] < state.stable_offset]
    # Of a truncation a follower tells only when it gives what came in place of what was removed.
    end = final[-1][0] + 1 if final else state.start_offset
    seen = [(offset, written) for offset, written in sorted(view.items()) if state.start_offset <= offset < end]
    if seen != final:
        missed, wrong = [one for one in final if one not in seen], [one for one in seen if one not in final]
        problems.append(f"at the end the log holds {missed[:5]} too, and not {wrong[:5]}")
    return problems + missed_between(deliveries, history, is_committed=is_committed)


def missed_between(deliveries: list[Delivery], history: History, *, is_committed: bool) -> list[str]:
    """Return the records that a follower passed over although they were in the log all the time.

    What it gives was read in one of the generations from the one that wrote the record to that of the moment.
    """
    problems, last, number = [], None, 0
    for delivery in deliveries:
        if delivery.begins_again:
            last = None
        while number + 1 < len(history.states) and history.began[number + 1] <= delivery.given:
            number += 1
        for offset, value in delivery.records:
            if last is not None and offset > last + 1:
                generations = range(generation_in(offset, value), history.states[number].generation + 1)
                first = number
                while first and history.states[first].generation >= generations[0]:
                    first -= 1
                start = max(one.start_offset for one in history.states[first : number + 1])
                passed = [
                    history.generations[one].visible(max(last + 1, start), offset, is_committed=is_committed)
                    for one in generations
                ]
                if all(passed):
                    problems.append(f"passed over {passed[0][:3]} between {last} and {offset} in {generations}")
            last = offset
    return problems


def problems_of_compacted(deliveries: list[Delivery], final: list[int], start_offset: int) -> list[str]:
    offsets = [offset for one in deliveries for offset, _ in one.records]
    problems = [one.problem for one in deliveries if one.problem is not None]
    torn = [offset for one in deliveries for offset, value in one.records if value != value_at(offset)]
    if torn:
        problems.append(f"torn: {torn[:5]}")
    if any(one.begins_again for one in deliveries):
        problems.append("began again")
    if any(after <= before for before, after in itertools.pairwise(offsets)):
        problems.append("offsets do not rise")
    missed = sorted({one for one in final if one >= start_offset} - set(offsets))
    return problems + ([f"missed {missed[:5]}"] if missed else [])


def problems_beside_writers(work: Path, *, seed: int, seconds: float, outcomes: Counter[str]) -> list[str]:
    work.mkdir(parents=True)
    rewritten, compacted, stop = work / "a" / "r-0", work / "b" / "c-0", work / "stop"
    for path in (rewritten, compacted):
        path.parent.mkdir()
    processes = [
        started("rewriting_writer", rewritten, work / "steps", seed, seconds),
        started("compacting_writer", compacted, work / "own", seed, seconds, work / "stop-own"),
        *(
            started("following_reader", rewritten, compacted, work / f"given-{one}", seed * 10 + one, stop)
            for one in range(READERS)
        ),
    ]
    statuses = [one.wait(seconds + 120) for one in processes[:2]]
    stop.touch()
    statuses += [one.wait(120) for one in processes[2:]]
    assert statuses == [0] * len(statuses)
    history = History()
    for step in unpickled(work / "steps"):
        history.take(step)
    with open_log(compacted) as log:
        start, final = log.log_start_offset, [record.offset for record in log.read()]
    problems = []
    for path in (work / "own-0", *(work / f"given-{one}-{number}" for one in range(READERS) for number in range(4))):
        deliveries = [Delivery(*one) for one in next(unpickled(path))]
        outcomes["records"] += sum(len(one.records) for one in deliveries)
        outcomes["began again"] += sum(one.begins_again for one in deliveries)
        number = int(path.name[-1])
        if path.name == "own-0" or number == COMPACTED_NUMBER:
            found = problems_of_compacted(deliveries, final, start)
        else:
            found = problems_of_rewritten(deliveries, history, is_committed=number == COMMITTED_NUMBER)
        problems += [f"{path.name}: {problem}" for problem in found]
    outcomes["generations"] += len(history.generations)
    return problems


def test_a_view_that_lacks_a_record_or_has_one_twice_is_a_problem() -> None:
    value = value_at(1)
    twice = [Delivery(1, ((0, value_at(0)), (1, value), (1, value)))]
    assert problems_of_compacted(twice, [0, 1, 2], 0) == ["offsets do not rise", "missed [2]"]
    assert problems_of_compacted([Delivery(1, ((1, b"x"),))], [1], 0) == ["torn: [1]"]


def test_followers_beside_writers_give_each_record_once(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for more in range(MOST_ROUNDS):
        work = tmp_path / str(more)
        problems = problems_beside_writers(work, seed=1 + 10 * more, seconds=SHORT_SECONDS, outcomes=outcomes)
        assert problems[:MOST_TOLD] == []
        # On a busy machine a round may have hardly a record.
        if outcomes["generations"] > 3 and outcomes["records"] > 100:
            return
    raise AssertionError(f"in {MOST_ROUNDS} rounds there was only {dict(sorted(outcomes.items()))}")


@pytest.mark.long
def test_followers_beside_writers_give_each_record_once_for_ten_minutes(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    end, seed = time.monotonic() + LONG_SECONDS, 100
    while time.monotonic() < end:
        problems = problems_beside_writers(tmp_path / str(seed), seed=seed, seconds=30, outcomes=outcomes)
        assert problems[:MOST_TOLD] == [], seed
        seed += 1
    sys.stdout.write(f"{dict(sorted(outcomes.items()))}\n")
