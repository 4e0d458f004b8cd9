"""Goal: wherever the power fails during changes of topics and maintenance, a store opens with every flushed record of
the topics that are there; a topic whose deletion returned stays gone, also if another of its name was made; a change
that was cut off is done or not. Method: a few cases of the lanes `topics` and `topic-pairs` of `python -m tests.crash`,
and the same with a disk that is not honest, which must be noticed."""

from __future__ import annotations

import pytest

from kstore.errors import KStoreError
from tests.crash.topic_states import states_of_topic_pair, states_of_topics
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, SimulatedDisk

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")


@pytest.mark.parametrize("number", range(12))
def test_topics_after_power_cuts(number: int) -> None:
    assert states_of_topics(f"suite-{number}") > 0


@pytest.mark.parametrize(
    ("first", "second", "most_units"),
    [
        ("delete a", "create a", 1),
        pytest.param("delete a", "create a", 2, marks=pytest.mark.long),
        ("append b", "delete b", 2),
        ("set a", "maintain", 1),
        pytest.param("set a", "maintain", 2, marks=pytest.mark.long),
        ("grow a", "reopen", 1),
        pytest.param("grow a", "reopen", 2, marks=pytest.mark.long),
    ],
)
def test_every_crash_of_two_changes_of_topics_leaves_a_store_that_opens(
    first: str, second: str, most_units: int
) -> None:
    assert states_of_topic_pair("suite", first, second, most_units=most_units) > 4


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_a_store_that_does_not_sync_is_noticed(disk_class: type[SimulatedDisk]) -> None:
    found = 0
    for seed in range(20):
        try:
            states_of_topics(seed, disk_class=disk_class)
        except (AssertionError, KStoreError):
            found += 1
            break
    assert found
