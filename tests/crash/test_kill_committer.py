"""Goal: a batch that was staged is in the log exactly once, whole for readers of committed records, wherever its commit
was killed. Method: a forked process kills itself before one chosen call that changes a file; what it left is read, and
then the batch is staged anew, in another order and split, and committed again."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.staging import StagingArea
from kstore.store.checks import verify
from kstore.store.store import open_store
from kstore.types import SINK_TOPIC
from tests.crash.killed_committer import values_of
from tests.making.staging import PARTITIONS, TOPIC, make_root

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS = 40
KILLED = -9


class Committers:
    """The process that forks committers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.killed_committer"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, root: Path, query: str, version: int, *, seed: int, kill_at: int = 0) -> tuple[int, int]:
        """Return the exit status of a committer, and its calls that change a file."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{root} {query} {version} {ROWS} {seed} {kill_at}\n")
        self._process.stdin.flush()
        status, calls = self._process.stdout.readline().split()
        return int(status), int(calls)

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def committers() -> Iterator[Committers]:
    found = Committers()
    yield found
    found.close()


Version = tuple[str, int]
# Partition and offset of each committed record, by version and value.
Committed = dict[Version, dict[bytes, tuple[int, int]]]


def committed(root: Path) -> Committed:
    """The committed records, as a reader finds them that opens the root without recovering it."""
    found: Committed = {}
    with open_store(root) as store:
        for partition in range(PARTITIONS):
            for record in store.log(TOPIC, partition).read(isolation="read_committed"):
                value = bytes(record.value or b"")
                query, version, _, _ = value.split(b"/")
                places = found.setdefault((query.decode(), int(version)), {})
                assert value not in places, "a record is there twice"
                places[value] = partition, record.offset
    return found


def check_whole(root: Path, done: set[Version], *, killed: Version | None = None) -> Committed:
    """Check that the committed records are those of the versions that are done.

    The one that was killed may be there too: some partitions may have their markers and others not yet, as after the
    crash of a broker.
    """
    found = committed(root)
    assert found.keys() - {killed} == done
    for version, places in found.items():
        expected = set(values_of(*version, rows=ROWS))
        assert places.keys() == expected or (version == killed and places.keys() <= expected)
    return found


def check_clean(root: Path) -> None:
    reports = verify(root)
    assert [one.damage for one in reports.partitions] == [()] * len(reports.partitions)
    with open_store(root) as store:
        for topic_partition in store.partitions:
            log = store.log(*topic_partition)
            assert log.transactions().last_stable_offset == log.log_end_offset, f"{topic_partition}: open transaction"
        assert SINK_TOPIC in store.topics
    area = StagingArea(root)
    left = [path for path in Path(area.path).rglob("*") if path.is_file()]
    assert len(left) <= 6, "what killed attempts staged is not collected"


def kill_at_each(committers: Committers, root: Path, kill_points: list[int], *, seed: int) -> tuple[int, int]:
    """Commit one version for each point, killed there first, and between them versions of another query.

    Returns: how many kills came after the commit point, and how many of these before the last marker.
    """
    rng = random.Random(seed)
    make_root(root)
    assert committers.run(root, "a", 0, seed=rng.randrange(1 << 30))[0] == 0
    done = {("a", 0)}
    decided = between = 0
    for version, kill_at in enumerate(kill_points, start=1):
        killed = ("a", version)
        status, _ = committers.run(root, *killed, seed=rng.randrange(1 << 30), kill_at=kill_at)
        assert status in (KILLED, 0)
        seen = check_whole(root, done, killed=killed)
        if rng.random() < 0.5:
            other = ("b", version)
            assert committers.run(root, *other, seed=rng.randrange(1 << 30))[0] == 0
            done.add(other)
            # It ended what the crash left, so that the killed version is there as a whole or not at all.
            now = check_whole(root, done | (committed(root).keys() & {killed}))
            assert (killed in now) >= (killed in seen)
            seen[other] = now[other]
        assert committers.run(root, *killed, seed=rng.randrange(1 << 30))[0] == 0
        done.add(killed)
        after = check_whole(root, done)
        assert {one: after[one] for one in seen if one != killed} == {one: seen[one] for one in seen if one != killed}
        assert after[killed].items() >= seen.get(killed, {}).items(), "a record that was committed has moved or is gone"
        decided += killed in seen
        between += 0 < len(seen.get(killed, {})) < ROWS
    check_clean(root)
    return decided, between


def changes_of_commit(committers: Committers, root: Path) -> int:
    """Return how many calls of a commit change a file."""
    make_root(root)
    changes = [committers.run(root, "a", version, seed=version)[1] for version in range(3)]
    return changes[-1]


def test_commit_killed_at_steps_all_over_it_is_whole_and_once(committers: Committers, tmp_path: Path) -> None:
    most = changes_of_commit(committers, tmp_path / "counted")
    points = [1 + most * at // 20 for at in range(20)]
    decided, _ = kill_at_each(committers, tmp_path / "root", points, seed=1)
    assert 0 < decided < len(points)


@pytest.mark.long
def test_commit_killed_200_times_is_whole_and_once(committers: Committers, tmp_path: Path) -> None:
    most = changes_of_commit(committers, tmp_path / "counted")
    rng = random.Random(7)
    points = [*range(1, most + 1), *(rng.randint(1, most) for _ in range(200))]
    rng.shuffle(points)
    between = 0
    for seed, at in enumerate(range(0, len(points), 50)):
        between += kill_at_each(committers, tmp_path / f"root-{seed}", points[at : at + 50], seed=seed)[1]
    assert between > 0, "no kill came between the decision and the last marker"
