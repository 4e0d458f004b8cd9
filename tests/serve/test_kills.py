"""Goal: a server that is killed or stopped under its clients loses nothing that it acknowledged, and doubles nothing.
Method: `kstore serve` in a process of its own, and four clients of librdkafka (tests/crash/serving.py)."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from tests.crash.serving import Killing, killing
from tests.fakes.waiting import wait_until

KILLS, RESTARTS = 3, 2


def wait_for_more(run: Killing) -> None:
    """Return when each client was told something that it was not told before."""
    plain, once, copied, read = run.plain.told, run.once.told, run.copying.transactions, run.reading.commits
    wait_until(lambda: run.plain.told > plain and run.once.told > once)
    wait_until(lambda: run.copying.transactions > copied or run.copying.error)
    wait_until(lambda: run.reading.commits > read or run.reading.error)


@pytest.mark.timeout(240)
def test_a_server_that_is_killed_or_stopped_under_its_clients_loses_nothing(tmp_path):
    with killing(tmp_path / "root", seed=1) as run:
        for _ in range(RESTARTS):
            wait_for_more(run)
            run.restart()
        assert run.model.doubled == 0, "a graceful end: what was written was acknowledged"
        for _ in range(KILLS):
            run.kill()
        wait_for_more(run)
        run.settle()
    assert run.model.once > 0
    assert run.model.copied[0] > 0
    assert run.reading.told > 0
