"""Commits of staged batches on the simulated disk, cut off at random calls: each version is there once or not."""

from __future__ import annotations

import random
from contextlib import suppress

from kstore.coordinator.transaction.log import TRANSACTION_STATE_CONFIG
from kstore.log.verify import verify
from kstore.producer.producer import Producer
from kstore.staging import AppVersion, StagedFile, StagingArea, StagingSink, commit_staged, job_name, prepare_root
from kstore.store.store import open_store
from kstore.types import TRANSACTION_STATE_TOPIC
from tests.crash.crash_states import as_durable, new_disk
from tests.fakes.disk import PowerCut, SimulatedDisk

ROOT, TOPIC, PARTITIONS, ROWS = "/root", "t", 2, 6
VERSIONS = 6
LONGEST_LIFE = 160
Values = list[list[bytes]]


def values_of(app: AppVersion) -> list[tuple[int, bytes]]:
    return [(at % PARTITIONS, b"%s/%d/%d" % (app.app_id.encode(), app.version, at)) for at in range(ROWS)]


def staged(disk: SimulatedDisk, app: AppVersion) -> list[StagedFile]:
    sink = StagingSink(StagingArea(ROOT, disk), job_name(*app), partitions={TOPIC: range(PARTITIONS)}, env=disk)
    with Producer(sink, enable_idempotence=False) as producer:
        for partition, value in values_of(app):
            producer.send(TOPIC, value, partition=partition)
    return list(sink.finish())


def committed(disk: SimulatedDisk) -> Values:
    """Return the committed values of each partition, without recovering anything."""
    with open_store(ROOT, env=disk) as store:
        logs = [store.log(TOPIC, partition) for partition in range(PARTITIONS)]
        return [[bytes(one.value or b"") for one in log.read(isolation="read_committed")] for log in logs]


def recovered(disk: SimulatedDisk) -> Values:
    """Return the committed values of a copy of the root that was recovered, with no commit that completes others."""
    copy = as_durable(disk.names, disk.directories, SimulatedDisk)
    with open_store(ROOT, "a", env=copy):
        pass
    return committed(copy)


def commit(disk: SimulatedDisk, app: AppVersion, files: list[StagedFile]) -> bool:
    return commit_staged(ROOT, files, transactional_id=f"commits-{app.app_id}", app=app, env=disk)


def states_of_commits(seed: int | str, *, disk_class: type[SimulatedDisk] = SimulatedDisk) -> int:
    """Commit several versions, each cut off at first; return how many states were looked at."""
    rng, disk = random.Random(seed), new_disk(disk_class)
    with open_store(ROOT, "a", env=disk) as store:
        store.create_topic(TOPIC, PARTITIONS)
        store.create_topic(TRANSACTION_STATE_TOPIC, 1, config=TRANSACTION_STATE_CONFIG)
    prepare_root(ROOT, env=disk)
    done: Values = [[] for _ in range(PARTITIONS)]
    states = 0
    for version in range(VERSIONS):
        app = AppVersion("a", version)
        files = staged(disk, app)
        whole = [[value for to, value in values_of(app) if to == partition] for partition in range(PARTITIONS)]
        disk.cut_at = disk.calls + rng.randint(1, LONGEST_LIFE)
        is_committed = False
        with suppress(PowerCut):
            is_committed = commit(disk, app, files)
        left = disk.after_cut(rng)
        disk = disk_class(left.names)
        disk.directories |= left.directories
        states += 1
        for before, new, found in zip(done, whole, recovered(disk), strict=True):
            # What was decided may lack some of its markers until the next commit.
            assert found == before + new or (found == before and not is_committed), f"{app}: {found}"
        # A query repeats the version that it does not know to be committed.
        commit(disk, app, staged(disk, app))
        done = [old + new for old, new in zip(done, whole, strict=True)]
        assert committed(disk) == done, "not every committed version is there once"
    with open_store(ROOT, env=disk) as store:
        for one in store.partitions:
            damage = list(verify(store.log(*one), env=disk))
            assert not damage, damage
    return states
