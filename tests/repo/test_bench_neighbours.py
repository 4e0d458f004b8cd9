# Goal: a round that was measured while others used the machine is measured again, whatever its figures are, and one
# that is kept nevertheless is counted.
# Method: a look at the processors that gives made-up times; one that really looks.

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.__main__ import run_workload
from bench.common import Case, Settings, in_rounds
from bench.neighbours import Neighbours

QUIET, BESIDE = 1.0, 1.5


def watching(monkeypatch: pytest.MonkeyPatch, slowness: Callable[[int], float], *, patience_s: float) -> Neighbours:
    """Return what finds `slowness` at its first, second, ... pair of looks of a run; each pause takes no time."""
    monkeypatch.setattr("bench.neighbours._FIRST_PROBES", 0)
    monkeypatch.setattr("time.sleep", lambda _: None)
    looks = count()
    found = Neighbours(patience_s)
    # The first look of each pair is interrupted by the process itself.
    monkeypatch.setattr(found, "_slowness", lambda: 9.0 if (look := next(looks)) % 2 == 0 else slowness(look // 2))
    return found


def test_a_round_that_ends_beside_a_neighbour_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # The looks: before and after the first round, before and after the second one.
    neighbours = watching(monkeypatch, [QUIET, BESIDE, QUIET, QUIET].__getitem__, patience_s=100)
    rounds = count(1)
    assert neighbours.measured(lambda: next(rounds)) == 2
    assert neighbours.told() == {"rounds": 1, "disturbed_rounds": 0, "repeated_rounds": 1}


def test_a_round_begins_when_the_neighbour_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def slowness(look: int) -> float:
        seen.append(BESIDE if look < 5 else QUIET)
        return seen[-1]

    neighbours = watching(monkeypatch, slowness, patience_s=100)
    assert neighbours.measured(lambda: list(seen)) == [BESIDE] * 5 + [QUIET]
    assert neighbours.told() == {"rounds": 1, "disturbed_rounds": 0, "repeated_rounds": 0}


def test_a_round_is_kept_and_counted_when_the_patience_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = watching(monkeypatch, lambda _: BESIDE, patience_s=0.01)
    rounds = count(1)
    assert [neighbours.measured(lambda: next(rounds)) for _ in range(3)] == [1, 2, 3]
    assert neighbours.told() == {"rounds": 3, "disturbed_rounds": 3, "repeated_rounds": 0}


def test_a_round_that_is_never_quiet_leaves_patience_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    # A tenth of the patience, 10 s, takes 200 looks.
    neighbours = watching(monkeypatch, lambda look: BESIDE if look < 500 else QUIET, patience_s=100)
    assert [neighbours.measured(lambda: "round") for _ in range(6)] == ["round"] * 6
    assert neighbours.told() == {"rounds": 6, "disturbed_rounds": 2, "repeated_rounds": 0}


def test_a_round_that_takes_longer_than_the_patience_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = watching(monkeypatch, [QUIET, BESIDE].__getitem__, patience_s=100)
    seconds = iter([0.0, 11.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(seconds))
    assert neighbours.measured(lambda: "round") == "round"
    assert neighbours.told() == {"rounds": 1, "disturbed_rounds": 1, "repeated_rounds": 0}


def test_the_slowest_processor_counts_against_the_best_that_was_ever_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = watching(monkeypatch, lambda _: QUIET, patience_s=100)
    monkeypatch.undo()
    monkeypatch.setattr("bench.neighbours._processors", lambda: [None, None])
    monkeypatch.setattr("bench.neighbours._PROBES", 3)
    times = iter([9.0, 1.0, 1.5, 2.0, 9.0, 9.0, 9.0, 9.0, 3.0, 2.5, 2.0, 9.0])
    monkeypatch.setattr("bench.neighbours._probe_seconds", lambda: next(times))
    # Of the times of a processor the least one counts: the first fills the caches, any may wait for the interpreter.
    assert [neighbours._slowness(), neighbours._slowness()] == [2.0, 3.0]


def test_without_patience_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = Neighbours()
    monkeypatch.setattr(neighbours, "_slowness", None)
    assert neighbours.measured(lambda: "round") == "round"
    assert neighbours.told() == {"rounds": 0, "disturbed_rounds": 0, "repeated_rounds": 0}


def test_every_processor_is_looked_at() -> None:
    neighbours = Neighbours(1e-9)
    assert neighbours._slowness() >= 1
    assert neighbours.measured(lambda: "round") == "round"
    assert neighbours.told()["rounds"] == 1


def test_a_round_is_measured_again_as_a_whole_and_its_order_is_reversed_every_other_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    neighbours = watching(monkeypatch, [QUIET, BESIDE, *[QUIET] * 4].__getitem__, patience_s=100)
    taken: list[str] = []

    def rates_of(name: str) -> tuple[float, float]:
        taken.append(name)
        return float(len(taken)), -float(len(taken))

    one, other = in_rounds(["one", "other"], rates_of, Settings(rounds=2, neighbours=neighbours))
    assert taken == ["one", "other", "one", "other", "other", "one"]
    assert (one.wall, one.cpu, other.wall, other.cpu) == ([3.0, 6.0], [-3.0, -6.0], [4.0, 5.0], [-4.0, -5.0])


def test_each_workload_has_its_own_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Neighbours] = []

    def run(settings: Settings) -> list[Case]:
        found.append(settings.neighbours)
        return []

    monkeypatch.setattr("importlib.import_module", lambda _: SimpleNamespace(run=run))
    for patience_s in (0.0, 1e-9, 1e-9):
        run_workload("crc", Settings(results_directory=tmp_path, allows_dirty=True), patience_s=patience_s)
    assert [one._is_looking for one in found] == [False, True, True]
    assert found[1] is not found[2]
