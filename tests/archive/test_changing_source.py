"""Goal: what another process does to the source between two calls of an export, or between two runs, is never taken
for damage, and brings nothing back that was deleted. Method: every change before every call of the source's Env."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from kstore.archive import export, read_manifest
from kstore.archive.options import export_options
from kstore.archive.run import local_export
from kstore.config import LogConfig
from kstore.errors import ExportSourceError, LogNotFoundError, LogReplacedError
from kstore.log.files.checkpoints import (
    EpochEntry,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    write_leader_epoch_checkpoint,
)
from kstore.log.files.names import LEADER_EPOCH_CHECKPOINT
from kstore.log.files.root_files import read_partition_metadata, write_partition_metadata
from kstore.log.files.snapshots import write_snapshot
from kstore.record import Record
from kstore.record.builder import with_records
from kstore.store.checks import verify
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import TopicPartition
from tests.fakes.changing_files import CHANGES, ChangingEnv, history
from tests.making.batches import write_offset_checkpoint

# More than the calls of a run.
_MOST_CALLS = 200


def offsets_of(path: Path) -> list[int]:
    with open_log(path / "t-0") as log:
        return [record.offset for record in log.read()]


def offsets_in(target: Path) -> list[int]:
    return offsets_of(target) if (target / "t-0").is_dir() else []


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_change_of_the_source_while_it_is_copied_is_taken_for_damage(
    tmp_path: Path, change: str, on_error: str, step: int
) -> None:
    options = export_options("kstore", on_error=on_error)  # type: ignore[arg-type]
    at = list(CHANGES).index(change)
    while True:
        root = tmp_path / str(at)
        directory = history(root / "source")
        env = ChangingEnv(lambda path=directory: CHANGES[change](path), at=at)  # type: ignore[misc]
        try:
            summary = local_export(root / "source", root / "out", options, threads=1, env=env)
        except (ExportSourceError, LogNotFoundError, LogReplacedError):
            pass
        else:
            assert summary.damage == ()
            offsets = offsets_in(root / "out")
            assert offsets == sorted(set(offsets))
        shutil.rmtree(root)
        if env.calls <= at:
            break
        at += step
        assert at < _MOST_CALLS
    assert at > 10


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_run_beside_a_cleaner_copies_what_the_log_has_by_then(tmp_path: Path, step: int) -> None:
    def copied(at: int) -> int:
        root = tmp_path / str(at)
        directory = history(root / "source")
        env = ChangingEnv(lambda: CHANGES["compact"](directory), at=at)
        local_export(root / "source", root / "out", export_options("kstore"), threads=1, env=env)
        whole = list(range(30))
        cleaned = [*range(0, 20, 2), *range(20, 30)]
        # One segment may have been copied before, and another one after the cleaning.
        assert set(cleaned) <= set(offsets_in(root / "out")) <= set(whole)
        assert not [one.damage for one in verify(root / "out").partitions if one.damage]
        return env.calls

    at = 0
    while copied(at) > at:
        at += step
    assert at > 10


def put(root: Path, count: int, *, delete_below: int = 0, **form: object) -> None:
    """Append a batch, and delete records below an offset."""
    with open_store(root, "a") as store:
        if "t" not in store.topics:
            store.create_topic("t")
        log = store.log("t")
        if count:
            records = [
                Record(offset=0, timestamp_ms=1000 + at, key=b"%d" % (at % 2) if at % 3 else None, value=b"v" * 20)
                for at in range(count)
            ]
            log.append(with_records(records, **form))  # type: ignore[arg-type]
        if delete_below:
            log.delete_records(delete_below)


FORMS = [
    {},
    {"compression": "gzip"},
    {"magic": 1, "compression": "gzip"},
    {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("before", [0, 5])
def test_records_deleted_inside_a_batch_do_not_come_back_in_a_later_run(
    tmp_path: Path, before: int, form: dict[str, object]
) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    put(source, before)
    export(source, target, "kstore")
    put(source, 6, delete_below=before + 3, **form)
    with pytest.raises(ExportSourceError):
        export(source, target, "kstore")
    for _ in range(2):
        summary = export(source, target, "kstore", fail_on_data_loss=False)
        assert offsets_in(target) == [*range(before), *offsets_of(source)]
        assert summary.partitions[0].missing == ((before, before + 3),)
        assert not [one.damage for one in verify(target).partitions if one.damage]
    put(source, 2)
    export(source, target, "kstore")
    assert offsets_in(target) == [*range(before), *offsets_of(source)]
    with open_log(target / "t-0") as copy, open_log(source / "t-0") as log:
        assert copy.log_end_offset == log.log_end_offset
        # What is left of the batch keeps its place and its producer.
        kept, whole = (next(iter(one.batches(before + 3))).header for one in (copy, log))
        for name in ("last_offset", "producer_id", "base_sequence", "codec", "partition_leader_epoch"):
            assert getattr(kept, name) == getattr(whole, name), name


def test_records_deleted_inside_a_batch_after_the_plan_do_not_come_back(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    put(source, 6)
    env = ChangingEnv(at=0)

    def stop(size: int) -> None:
        raise InterruptedError(size)

    with pytest.raises(InterruptedError):
        local_export(source, target, export_options("kstore"), env=env, on_bytes=stop)
    put(source, 0, delete_below=3)
    with pytest.raises(ExportSourceError):
        export(source, target, "kstore")
    export(source, target, "kstore", fail_on_data_loss=False)
    assert offsets_in(target) == offsets_of(source) == [3, 4, 5]


def test_a_first_run_keeps_the_first_batch_whole_and_hides_what_was_deleted(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    put(source, 6, delete_below=3)
    export(source, target, "kstore")
    assert (source / "t-0" / f"{0:020d}.log").read_bytes() == (target / "t-0" / f"{0:020d}.log").read_bytes()
    assert offsets_in(target) == [3, 4, 5]


def test_a_partition_that_is_deleted_while_the_run_is_planned_is_none_of_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    config = LogConfig()
    for topic in ("a", "b"):
        with open_store(source, "a", config) as store:
            store.create_topic(topic)
            store.log(topic).append([Record(offset=0, timestamp_ms=1, value=b"x")])

    class Deleting(ChangingEnv):
        def listdir(self, path: str) -> list[str]:
            names = super().listdir(path)
            if path == str(source):
                shutil.rmtree(source / "b-0", ignore_errors=True)
            return names

    local_export(source, target, export_options("kstore"), env=Deleting())
    manifest = read_manifest(target)
    assert manifest is not None
    assert [str(one.topic_partition) for one in manifest.partitions] == ["a-0"]


def test_a_partition_that_is_deleted_while_its_copy_is_committed_is_no_damage(tmp_path: Path) -> None:
    directory = history(tmp_path / "source")

    class Deleting(ChangingEnv):
        def listdir(self, path: str) -> list[str]:
            if path == str(directory) and (tmp_path / "out" / "t-0").exists():
                CHANGES["remove_directory"](directory)
            return super().listdir(path)

    local_export(tmp_path / "source", tmp_path / "out", export_options("kstore"), threads=1, env=Deleting())
    assert not directory.exists()
    assert offsets_in(tmp_path / "out") == list(range(30))


def test_a_topic_that_is_made_again_while_its_copy_is_committed_adds_nothing_to_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    directory = history(source)
    copied_id, other_id = uuid.UUID(int=7 << 64), uuid.UUID(int=8 << 64)
    write_partition_metadata(str(directory), copied_id)
    write_leader_epoch_checkpoint(str(directory / LEADER_EPOCH_CHECKPOINT), [EpochEntry(0, 0)])

    class MakingAgain(ChangingEnv):
        def is_copied(self, path: str) -> bool:
            return path.startswith(str(directory)) and (target / "t-0").exists()

        def make_again(self) -> None:
            shutil.rmtree(directory)
            directory.mkdir()
            write_partition_metadata(str(directory), other_id)
            write_leader_epoch_checkpoint(str(directory / LEADER_EPOCH_CHECKPOINT), [EpochEntry(9, 3)])
            write_snapshot(str(directory / f"{30:020d}.snapshot"), [])
            write_offset_checkpoint(source / "replication-offset-checkpoint", {"t-0": 2})

        def read_file(self, path: str, *, max_bytes: int) -> bytes:
            if self.is_copied(path) and read_partition_metadata(str(directory)) == copied_id:
                self.make_again()
            return super().read_file(path, max_bytes=max_bytes)

    local_export(source, target, export_options("kstore"), threads=1, env=MakingAgain())
    assert read_partition_metadata(str(directory)) == other_id
    assert read_partition_metadata(str(target / "t-0")) == copied_id
    epochs = read_leader_epoch_checkpoint(str(target / "t-0" / LEADER_EPOCH_CHECKPOINT))
    assert epochs == [EpochEntry(0, 0)]
    marks = read_offset_checkpoint(str(target / "replication-offset-checkpoint"))
    assert marks == {TopicPartition("t", 0): 30}
    assert offsets_in(target) == list(range(30))
