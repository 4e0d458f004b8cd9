"""Goal: kstore.verify and kstore.recover do for a path what the commands of these names do, with the same findings.
Method: small roots, whole and damaged, beside the functions for one log; another writer; an Env that fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kstore
from kstore.env import LocalEnv, LocalFile
from kstore.errors import CorruptLogError, LogLockedError, LogNotFoundError, StorageError
from kstore.log.verify import verify as verify_log
from kstore.store.store import open_store
from kstore.types import TopicPartition
from tests.making.batches import batch, batches, write_root

T0, U0, U1 = TopicPartition("t", 0), TopicPartition("u", 0), TopicPartition("u", 1)
LOG = "00000000000000000000.log"
CLEAN = ".kafka_cleanshutdown"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_root(
        tmp_path / "root",
        {"u-1": [batches(0, 4)], "t-0": [batches(0, 3), batches(60, 2)], "u-0": [[batch(0, 5)]]},
    )


def damage(root: Path, name: str, *, position: int) -> str:
    path = root / name / LOG
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return str(path)


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_verify_of_a_root_has_every_partition_in_order(root: Path) -> None:
    before = tree(root)
    report = kstore.verify(root)
    assert report.is_unharmed
    assert (report.damage, report.root_damage) == ((), ())
    assert [one.topic_partition for one in report.partitions] == [T0, U0, U1]
    found = report.partitions[0]
    with kstore.open_log(root / "t-0") as log:
        checked = verify_log(log)
        assert list(checked) == []
        assert (found.log_start_offset, found.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        assert (found.path, found.segment_count) == (log.path, len(log.segments))
        assert (found.batch_count, found.record_count) == (checked.batch_count, checked.record_count)
    assert tree(root) == before


def test_verify_names_each_damaged_range_of_partitions_and_root(root: Path) -> None:
    in_log = damage(root, "u-0", position=70)
    (root / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 1\n")
    report = kstore.verify(str(root))
    assert not report.is_unharmed
    assert [(one.topic_partition, len(one.damage)) for one in report.partitions] == [(T0, 0), (U0, 1), (U1, 0)]
    assert [one.path for one in report.damage] == [in_log, str(root / "recovery-point-offset-checkpoint")]
    assert report.root_damage == report.damage[1:]


def test_verify_of_a_partition_reads_only_that(root: Path) -> None:
    damage(root, "u-0", position=70)
    assert [one.topic_partition for one in kstore.verify(root / "t-0").partitions] == [T0]
    assert not kstore.verify(root / "u-0").is_unharmed


def test_shallow_verification_reads_no_record(root: Path) -> None:
    (root / "u-0" / "00000000000000000005.snapshot").write_bytes(b"no snapshot")
    assert not kstore.verify(root).is_unharmed
    assert kstore.verify(root, deep=False).is_unharmed


@pytest.mark.parametrize("topics", ["u", ["u"], {"u"}])
def test_topics_narrow_what_is_verified_and_recovered(root: Path, topics: str | list[str]) -> None:
    assert [one.topic_partition for one in kstore.verify(root, topics=topics).partitions] == [U0, U1]
    assert [one.topic_partition for one in kstore.recover(root, topics=topics, dry_run=True)] == [U0, U1]


def test_topic_that_is_not_there_is_refused_before_anything_is_read(root: Path) -> None:
    for function in (kstore.verify, kstore.recover):
        with pytest.raises(ValueError, match="topics not found: no, none"):
            function(root, topics=["none", "t", "no"])


def test_path_without_a_log_is_refused(tmp_path: Path) -> None:
    for function in (kstore.verify, kstore.recover):
        with pytest.raises(LogNotFoundError):
            function(tmp_path / "nowhere")


def test_partition_that_is_deleted_before_it_is_verified_is_left_out(root: Path) -> None:
    class DeletingEnv(LocalEnv):
        """Deletes a partition when the one before it is listed, which happens after both were found."""

        def listdir(self, path: str) -> list[str]:
            if path.endswith("t-0"):
                shutil.rmtree(root / "u-0", ignore_errors=True)
            return super().listdir(path)

    assert [one.topic_partition for one in kstore.verify(root, env=DeletingEnv()).partitions] == [T0, U1]


def test_partition_that_cannot_be_read_is_an_error_of_verify(root: Path) -> None:
    class BrokenEnv(LocalEnv):
        def open_read(self, path: str) -> LocalFile:
            if "u-0" in path:
                raise StorageError("cannot open", path=path, errno=5)
            return super().open_read(path)

    with pytest.raises(StorageError, match="cannot open"):
        kstore.verify(root, env=BrokenEnv())


def test_strict_recovery_returns_a_report_or_the_refusal_of_each(root: Path) -> None:
    in_log = damage(root, "t-0", position=70)
    refused, *recovered = kstore.recover(root)
    assert refused.topic_partition == T0
    assert refused.report is None
    assert isinstance(refused.refusal, CorruptLogError)
    assert in_log in str(refused.refusal)
    assert [(one.topic_partition, one.refusal) for one in recovered] == [(U0, None), (U1, None)]
    assert all(one.report is not None and one.report.is_unharmed for one in recovered)
    assert not (root / CLEAN).exists()


def test_recovered_root_verifies_and_is_marked_as_closed(root: Path) -> None:
    damage(root, "u-1", position=70)
    reports = {one.topic_partition: one.report for one in kstore.recover(root, "salvage")}
    assert reports.keys() == {T0, U0, U1}
    salvaged = reports[U1]
    assert salvaged is not None
    assert (len(salvaged.damage), len(salvaged.quarantined)) == (1, 1)
    assert (root / CLEAN).exists()
    assert kstore.verify(root).is_unharmed
    with open_store(root, "a") as store:
        assert store.recovery_reports == {}


def test_dry_run_reports_the_same_and_changes_nothing(root: Path) -> None:
    damage(root, "u-1", position=70)
    before = tree(root)
    seen = kstore.recover(root, "point_in_time", dry_run=True)
    assert tree(root) == before
    done = kstore.recover(root, "point_in_time", keeps_copies=False)
    assert [one.report.truncated_bytes for one in seen if one.report] == [
        one.report.truncated_bytes for one in done if one.report
    ]
    assert not list(root.rglob("kstore-quarantine"))


def test_krafts_own_log_is_left_alone(root: Path) -> None:
    shutil.copytree(root / "u-0", root / "__cluster_metadata-0")
    damage(root, "__cluster_metadata-0", position=70)
    assert [one.topic_partition for one in kstore.recover(root)] == [T0, U0, U1]
    assert kstore.recover(root / "__cluster_metadata-0", "salvage") == ()
    assert [one.topic_partition.topic for one in kstore.verify(root).partitions if one.damage] == ["__cluster_metadata"]


def test_root_that_another_writer_holds_is_not_recovered(root: Path) -> None:
    with open_store(root, "a"), pytest.raises(LogLockedError):
        kstore.recover(root)


def test_wrong_modes_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="recovery must be one of strict, point_in_time, salvage, got 'salvag'"):
        kstore.recover(root, "salvag")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="salvage reads every segment"):
        kstore.recover(root, "salvage", trusts_recovery_point=True)
