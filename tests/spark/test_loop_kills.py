"""Goal: a query from a topic through typed columns and windows to a topic, killed again and again, has written each
result once when it ends, and no other. Method: real Spark in a process of its own; its processes, its JVM or its Python
workers are killed while it runs; what it wrote is held against a count of the source in plain Python."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kstore.store.checks import verify
from kstore.store.store import open_store
from tests.making.staging import TOPIC, committed_values, make_root
from tests.spark.killing import REPOSITORY, run_with_kills
from tests.spark.loop_query import SOURCE_TOPIC, WATERMARK_DAYS

pytestmark = [pytest.mark.spark, pytest.mark.long]

FLIGHTS = REPOSITORY / "examples" / "flights"
LIMIT_SECONDS = 1200

# Day, carrier, flights, sum of the departure delays in minutes.
Result = tuple[str, str, int, int | None]


def expected_results() -> list[Result]:
    """The results of all days that end before the last watermark."""
    flights: Counter[tuple[datetime, str]] = Counter()
    delays: dict[tuple[datetime, str], int] = {}
    latest = 0
    with open_store(FLIGHTS) as store:
        for one in store.partitions:
            if one.topic != SOURCE_TOPIC:
                continue
            for record in store.log(*one).read():
                latest = max(latest, record.timestamp_ms)
                day = datetime.fromtimestamp(record.timestamp_ms // 86_400_000 * 86_400, UTC)
                flight = json.loads(record.value or b"")
                group = day, flight["carrier"]
                flights[group] += 1
                if flight["dep_delay"] != "NA":
                    delays[group] = delays.get(group, 0) + int(flight["dep_delay"])
    watermark = datetime.fromtimestamp(latest / 1000, UTC) - timedelta(days=WATERMARK_DAYS)
    return sorted(
        (f"{day:%Y-%m-%d}", carrier, count, delays.get((day, carrier)))
        for (day, carrier), count in flights.items()
        if day + timedelta(days=1) <= watermark
    )


def results(root: Path) -> list[Result]:
    found = [json.loads(value) for values in committed_values(root, topic=TOPIC) for value in values]
    return sorted((one["day"], one["carrier"], one["flights"], one.get("delay")) for one in found)


def test_loop_that_is_killed_again_and_again_writes_each_result_once(tmp_path: Path) -> None:
    rng = random.Random(18)
    root, checkpoint = make_root(tmp_path / "root"), tmp_path / "checkpoint"
    commits = checkpoint / "commits"
    run_with_kills(
        "tests.spark.loop_query",
        [FLIGHTS, root, checkpoint],
        ["all", "workers", "jvm"] * 2,
        steps=lambda: len([*commits.glob("[0-9]*")]) if commits.exists() else 0,
        steps_between=4,
        pause=lambda: rng.uniform(0, 1.0),
        limit_seconds=LIMIT_SECONDS,
    )
    expected = expected_results()
    assert len(expected) > 1000
    assert results(root) == expected
    assert [one.damage for one in verify(root).partitions if one.damage] == []
