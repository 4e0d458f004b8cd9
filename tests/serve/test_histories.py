"""Goal: whatever members and producers do, and whenever the server starts again, they are told what Kafka's rules say.
Method: random histories of requests in frames, step by step beside a small model (making/served_model.py); the lane
`python -m tests.crash coordinators` runs 10,000, `python -m tests.interop --part coordinators` some on a broker."""

from __future__ import annotations

import pytest

from tests.making.served_histories import STEPS, History, broker_in_process

HISTORIES, PER_TEST = 30, 6


@pytest.mark.parametrize("first", range(0, HISTORIES, PER_TEST))
def test_members_and_producers_are_told_what_the_rules_say(tmp_path, first):
    for number in range(first, first + PER_TEST):
        with broker_in_process(tmp_path / f"root-{number}") as broker:
            assert History(str(number), broker, topic="t").run() == STEPS


def test_a_history_is_the_same_again(tmp_path):
    steps = []
    for name in ("one", "two"):
        with broker_in_process(tmp_path / name) as broker:
            history = History("again", broker, topic="t")
            history.run()
            steps.append(history.steps)
    assert steps[0] == steps[1]
