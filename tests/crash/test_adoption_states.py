"""Goal: wherever an adoption fails or the power does, no byte of a log has changed, nothing of an earlier cluster is
lost, its metadata or the new one is whole, and the same call ends it with the same topics, ids and settings.
Method: each call of the operating system fails, once or for good; the power fails after each change of a simulated
disk, in states that the disk may be in then, and again in the call that follows; and the same with a disk that is not
honest, which must be noticed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.adoption.cluster import read_cluster
from kstore.adoption.report import AdoptionReport
from kstore.env import DEFAULT_ENV, Env
from kstore.errors import KStoreError
from kstore.log.files.root_files import read_meta_properties, read_partition_metadata
from tests.adoption.test_adopt import append, write_cluster
from tests.fakes.disk import DiskThatForgetsFiles, DiskThatForgetsNames, Inode, PowerCut, SimulatedDisk
from tests.fakes.faults import FAULT_KINDS, Fault, FaultKind, FaultyEnv
from tests.reference.codec import Refusal
from tests.reference.metadata import read_snapshot

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")
ROOT = "/disk/root"
METADATA = "__cluster_metadata-0"
TOPICS = {"t": 3, "keys": 1}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root that a cluster has used, with a topic without ids, and a bootstrap file."""
    path = tmp_path / "root"
    with kstore.open_store(path, "a") as store:
        store.create_topic("t", 2)
        store.create_topic("keys", config={"cleanup_policy": "compact"})
        append(store.log("t", 0))
    write_cluster(path)
    (path / "keys-0" / "partition.metadata").unlink()
    (path / "bootstrap.checkpoint").write_bytes(b"old")
    return path


def adopt(place: str | Path, env: Env) -> AdoptionReport:
    return kstore.adopt(place, node_id=4, replace=True, env=env)


def files_below(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def logs_in(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path.endswith(".log") and METADATA not in path}


def check_nothing_is_lost(files: dict[str, bytes], before: dict[str, bytes]) -> None:
    """Files: by their paths from the directory that holds the root."""
    of_roots = {path: data for path, data in files.items() if path.startswith("root/")}
    assert logs_in(of_roots) == logs_in(before)
    for path, data in before.items():
        if METADATA in path or path.endswith("bootstrap.checkpoint"):
            name = path.rpartition("/")[2]
            copies = [
                files[other] for other in files if other == path or (".set-aside-" in other and other.endswith(name))
            ]
            assert data in copies, path


def check_adopted(report: AdoptionReport, files: dict[str, bytes], env: Env, root: str) -> None:
    records = read_snapshot(files["root" + report.snapshot.removeprefix(root)])
    ids = {one["name"]: one["id"] for name, one in records if name == "topic"}
    assert {
        topic: len([one for name, one in records if name == "partition" and one["id"] == ids[topic]]) for topic in ids
    } == TOPICS
    for directory, topic in (("t-0", "t"), ("t-1", "t"), ("keys-0", "keys")):
        assert read_partition_metadata(f"{root}/{directory}", env) == ids[topic]
    settings = {(one["of"], one["name"]): one["value"] for name, one in records if name == "config"}
    assert settings["t", "retention.ms"] == "777"
    assert settings["keys", "cleanup.policy"] == "compact"
    properties = read_meta_properties(root, env)
    assert properties is not None
    assert properties.node_id == 4
    (broker,) = (one for name, one in records if name == "broker")
    assert broker["directories"] == [properties.directory_id]
    assert [path for path in files if path.startswith(f"root/{METADATA}/")] == [
        "root" + report.snapshot.removeprefix(root)
    ]


@pytest.mark.parametrize("kind", FAULT_KINDS)
@pytest.mark.parametrize("is_for_good", [False, True])
def test_an_adoption_after_a_failed_call_ends_it(
    root: Path, tmp_path: Path, kind: FaultKind, is_for_good: bool
) -> None:
    before = files_below(tmp_path)
    numbers = calls_that_fail(root, tmp_path / "watched", kind)
    for number in numbers:
        place = tmp_path / f"place-{number}"
        shutil.copytree(root, place / "root")
        env = FaultyEnv(Fault(number, kind, is_for_good=is_for_good))
        with suppress(KStoreError):
            adopt(place / "root", env)
        check_nothing_is_lost(files_below(place), before)
        read_cluster([str(place / "root")], DEFAULT_ENV)
        report = adopt(place / "root", DEFAULT_ENV)
        check_nothing_is_lost(files_below(place), before)
        check_adopted(report, files_below(place), DEFAULT_ENV, str(place / "root"))
        shutil.rmtree(place)


def calls_that_fail(root: Path, place: Path, kind: FaultKind) -> list[int]:
    """The numbers of the calls of an adoption that write, or follow one that does: reading changes nothing."""
    shutil.copytree(root, place / "root")
    env = FaultyEnv()
    env.watch(kind)
    adopt(place / "root", env)
    numbers = env.fault_numbers(kind)
    first = next(number for number, call in enumerate(env._watched, 1) if call == "make")
    shutil.rmtree(place)
    return [number for number in numbers if number >= first - 2]


def simulated(root: Path, disk_class: type[SimulatedDisk] = SimulatedDisk) -> SimulatedDisk:
    """A disk with the root on it, all durable."""
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return disk_class({f"{ROOT}/{path.relative_to(root)}": Inode(data) for path, data in files.items()}, now_ms=1)


def files_on(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path.removeprefix("/disk/"): data for path, data in disk.files().items()}


def cut_runs(root: Path, **options: Any) -> Iterator[SimulatedDisk]:
    whole = simulated(root, **options)
    adopt(ROOT, whole)
    for number in range(1, whole.calls + 1):
        disk = simulated(root, **options)
        disk.cut_at = number
        with pytest.raises(PowerCut):
            adopt(ROOT, disk)
        yield disk


def test_an_adoption_after_a_power_cut_ends_it(root: Path) -> None:
    before = files_on(simulated(root))
    rng = random.Random(1)
    for disk in cut_runs(root):
        for _ in range(3):
            again = disk.after_cut(rng, cut_at=rng.randint(1, 25))
            check_nothing_is_lost(files_on(again), before)
            read_cluster([ROOT], again)
            with suppress(PowerCut):
                adopt(ROOT, again)
            left = again.after_cut(rng)
            report = adopt(ROOT, left)
            check_nothing_is_lost(files_on(left), before)
            check_adopted(report, files_on(left), left, ROOT)


def test_what_an_adoption_has_ended_is_durable(root: Path) -> None:
    before = files_on(simulated(root))
    disk = simulated(root)
    report = adopt(ROOT, disk)
    for seed in range(20):
        left = disk.after_cut(random.Random(seed))
        check_nothing_is_lost(files_on(left), before)
        check_adopted(report, files_on(left), left, ROOT)


@pytest.mark.parametrize("disk_class", [DiskThatForgetsFiles, DiskThatForgetsNames])
def test_a_disk_that_is_not_honest_is_noticed(root: Path, disk_class: type[SimulatedDisk]) -> None:
    disk = simulated(root, disk_class)
    report = adopt(ROOT, disk)
    found = 0
    for seed in range(20):
        try:
            left = disk.after_cut(random.Random(seed))
            check_adopted(report, files_on(left), left, ROOT)
        except (AssertionError, KeyError, KStoreError, Refusal):
            found += 1
    assert found
