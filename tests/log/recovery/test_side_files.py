"""Goal: what recovery says yes to, verify says yes to, and what it cannot mend it refuses, in every mode.
Method: golden and built roots with one side file damaged each; random damages of a root that a broker wrote."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

import kstore
from kstore.errors import CorruptCheckpointError
from kstore.log.files.root_files import read_partition_metadata, write_partition_metadata
from kstore.log.files.snapshots import write_snapshot
from kstore.log.recovery.modes import RecoveryMode
from tests.crash.recovered_side_files import MODES, broker_root, recovered_root, try_damages
from tests.golden.recovery_cases import NEW_SETS, BrokerTimeEnv, cases, copied
from tests.making.batches import batches, flip_bit, write_root
from tests.making.cluster import REMOVE, metadata, topic, write_metadata
from tests.making.cluster import write_snapshot as write_snapshot_of_metadata

CLEAN = ".kafka_cleanshutdown"
EPOCHS = "leader-epoch-checkpoint"
METADATA = "partition.metadata"
TOPIC_ID = uuid.UUID("01234567-89ab-4def-8123-456789abcdef")
every_mode = pytest.mark.parametrize("mode", MODES)


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """t-0 and t-1 with an id, u-0 without one; epochs 0, 2 and 5 begin at 0, 12 and 20 in t-0. Not closed cleanly."""
    parts = [batches(start, 8, partition_leader_epoch=epoch) for start, epoch in ((0, 0), (12, 2), (20, 5))]
    write_root(tmp_path / "root", {"t-0": parts, "t-1": [batches(0, 2)], "u-0": [batches(0, 2)]})
    for name in ("t-0", "t-1"):
        write_partition_metadata(str(tmp_path / "root" / name), TOPIC_ID)
    (tmp_path / "root" / "u-0" / METADATA).unlink()
    (tmp_path / "root" / "t-0" / EPOCHS).write_text("0\n3\n0 0\n2 12\n5 20\n")
    (tmp_path / "root" / CLEAN).unlink()
    return tmp_path / "root"


@pytest.mark.parametrize("set_name", NEW_SETS)
@pytest.mark.parametrize("mode", ["point_in_time", "salvage"])
def test_index_of_aborted_transactions_of_an_emptied_segment_goes_to_the_quarantine(
    mode: RecoveryMode, set_name: str, tmp_path: Path
) -> None:
    (case,) = (one for one in cases(set_name) if one.name == "empty-mid")
    directory = Path(copied(case, tmp_path).path)
    emptied = [path for path in sorted(directory.glob("*.log"))[:-1] if not path.stat().st_size]
    stale = [path for one in emptied if (path := one.with_suffix(".txnindex")).exists() and path.stat().st_size]
    (recovered,) = kstore.recover(tmp_path, mode, env=BrokerTimeEnv(set_name))
    assert recovered.report is not None
    assert kstore.verify(tmp_path).is_unharmed
    assert len(stale) == (set_name != "recovery-3.9.2")
    for path in stale:
        assert not path.exists()
        assert path.name in {Path(kept).name for kept in recovered.report.quarantined}


@every_mode
@pytest.mark.parametrize(
    "text",
    [
        "0\n3\n0 0\n2 12\n5 10\n",
        "0\n3\n0 0\n5 12\n2 20\n",
        "0\n3\n0 0\n2 12\n5 12\n",
        "0\n2\n0 0\n3 12\n",
        "0\n1\n9 0\n",
        "0\n4\n0 0\n1 7\n2 12\n5 20\n",
        # Each batch has the epoch that these say of its offset.
        "0\n4\n0 0\n1 12\n2 12\n5 20\n",
        "0\n4\n0 0\n0 4\n2 12\n5 20\n",
    ],
    ids=[
        "starts fall",
        "epochs fall",
        "starts equal",
        "another epoch",
        "one for all",
        "one too many",
        "starts equal, no batch contradicts",
        "epochs equal, no batch contradicts",
    ],
)
def test_leader_epochs_that_cannot_be_are_rebuilt_from_the_batches(root: Path, mode: RecoveryMode, text: str) -> None:
    (root / "t-0" / EPOCHS).write_text(text)
    before = tree(root)
    dry = kstore.recover(root, mode, dry_run=True)
    assert tree(root) == before
    recovered = kstore.recover(root, mode)
    assert [one.report.rebuilt for one in recovered if one.report] == [one.report.rebuilt for one in dry if one.report]
    assert recovered[0].report is not None
    assert EPOCHS in recovered[0].report.rebuilt, "strict says so too"
    assert (root / "t-0" / EPOCHS).read_text() == "0\n3\n0 0\n2 12\n5 20\n"
    assert kstore.verify(root).is_unharmed


def test_leader_epochs_that_no_batch_contradicts_stay(root: Path) -> None:
    text = "0\n4\n0 0\n1 8\n2 11\n5 20\n"
    (root / "t-0" / EPOCHS).write_text(text)
    (recovered, *_) = kstore.recover(root)
    assert recovered.report is not None
    assert EPOCHS not in recovered.report.rebuilt
    assert (root / "t-0" / EPOCHS).read_text() == text, "an epoch may have had no batches, or a cleaner removed them"


@every_mode
@pytest.mark.parametrize(
    "content", [b"", bytes(40), b"version: 0\ntopic_id: short", b"version: 0\ntopic_id: " + b"A" * 22]
)
def test_topic_id_is_written_again_from_another_partition(root: Path, mode: RecoveryMode, content: bytes) -> None:
    (root / "t-1" / METADATA).write_bytes(content)
    recovered = kstore.recover(root, mode)
    assert [METADATA in one.report.rebuilt for one in recovered if one.report] == [False, True, False]
    assert read_partition_metadata(str(root / "t-1")) == TOPIC_ID
    assert (root / CLEAN).exists()


def test_topic_id_that_is_missing_is_written_if_it_is_known(root: Path) -> None:
    (root / "t-0" / METADATA).unlink()
    kstore.recover(root)
    assert read_partition_metadata(str(root / "t-0")) == TOPIC_ID
    assert read_partition_metadata(str(root / "u-0")) is None, "before Kafka 2.8 there are none"


def test_topic_id_that_other_partitions_do_not_agree_on_is_refused(root: Path) -> None:
    for number, topic_id in enumerate((TOPIC_ID, uuid.UUID(int=77)), start=2):
        shutil.copytree(root / "t-1", root / f"t-{number}")
        write_partition_metadata(str(root / f"t-{number}"), topic_id)
    (root / "t-1" / METADATA).write_bytes(b"")
    refused = [str(one.topic_partition) for one in kstore.recover(root) if one.report is None]
    assert refused == ["t-1"]


@every_mode
@pytest.mark.parametrize("content", [b"", None], ids=["empty", "missing"])
@pytest.mark.parametrize("place", ["log", "snapshot"])
def test_topic_id_is_written_again_from_the_metadata_of_the_cluster(
    root: Path, mode: RecoveryMode, place: str, content: bytes | None
) -> None:
    wanted = uuid.UUID(int=0x77)
    other, topic_of_u = topic("t", TOPIC_ID), topic("u", wanted)
    if place == "log":
        write_metadata(root, [other, topic_of_u])
    else:
        write_snapshot_of_metadata(write_metadata(root, [other], base_offset=2), [topic_of_u, other], end_offset=2)
    if content is not None:
        (root / "u-0" / METADATA).write_bytes(content)
    yes, problems = recovered_root(root, mode)
    assert (yes, problems) == ({"t-0", "t-1", "u-0"}, [])
    assert read_partition_metadata(str(root / "u-0")) == wanted
    assert (root / CLEAN).exists()


def test_topic_id_of_the_cluster_counts_before_that_of_another_partition(root: Path) -> None:
    wanted = uuid.UUID(int=0x77)
    write_metadata(root, [topic("t", wanted)])
    (root / "t-1" / METADATA).write_bytes(b"")
    kstore.recover(root)
    assert read_partition_metadata(str(root / "t-1")) == wanted, "a broker moves away a partition with another id"


def test_topic_id_of_a_topic_that_the_cluster_removed_is_not_written(root: Path) -> None:
    removed = uuid.UUID(int=0x77)
    write_metadata(root, [topic("u", removed), metadata(REMOVE, topicId=removed)])
    (root / "u-0" / METADATA).write_bytes(b"")
    assert [str(one.topic_partition) for one in kstore.recover(root) if one.report is None] == ["u-0"]
    assert (root / "u-0" / METADATA).read_bytes() == b""


def test_damaged_metadata_of_the_cluster_tells_no_topic_id(root: Path) -> None:
    directory = write_metadata(root, [topic("u", uuid.UUID(int=0x77))])
    flip_bit(directory / "00000000000000000000.log", 70, bit=0)
    (root / "t-1" / METADATA).write_bytes(b"")
    (root / "u-0" / METADATA).write_bytes(b"")
    assert [str(one.topic_partition) for one in kstore.recover(root) if one.report is None] == ["u-0"]
    assert read_partition_metadata(str(root / "t-1")) == TOPIC_ID, "another partition tells it"
    assert not (root / CLEAN).exists()


@every_mode
@pytest.mark.parametrize("field", ["last offset", "last stable offset"])
def test_index_of_aborted_transactions_that_is_above_the_log_is_written_again(
    mode: RecoveryMode, field: str, tmp_path: Path
) -> None:
    root = broker_root(tmp_path / "root", most=12)
    (root / CLEAN).unlink()
    rolled = [path for one in sorted(root.iterdir()) if one.is_dir() for path in sorted(one.glob("*.txnindex"))[:-1]]
    path = next(one for one in rolled if one.stat().st_size)
    before = content = path.read_bytes()
    position = {"last offset": 18, "last stable offset": 26}[field]
    content = content[:position] + (1 << 24).to_bytes(8, "big") + content[position + 8 :]
    path.write_bytes(content)
    yes, problems = recovered_root(root, mode)
    assert (path.parent.name in yes, problems) == (True, [])
    assert path.read_bytes()[:26] == before[:26]


@every_mode
def test_index_of_aborted_transactions_loses_an_entry_of_a_marker_after_its_segment(
    mode: RecoveryMode, tmp_path: Path
) -> None:
    root = broker_root(tmp_path / "root", most=12)
    (root / CLEAN).unlink()
    rolled = [path for one in sorted(root.iterdir()) if one.is_dir() for path in sorted(one.glob("*.txnindex"))[:-1]]
    path = next(one for one in rolled if one.stat().st_size)
    before = path.read_bytes()
    after_it = min(base for one in path.parent.glob("*.log") if (base := int(one.stem)) > int(path.stem))
    path.write_bytes(before + before[-34:-24] + after_it.to_bytes(8, "big") * 3)
    yes, problems = recovered_root(root, mode)
    assert (path.parent.name in yes, problems) == (True, [])
    assert path.read_bytes() == before


@every_mode
def test_topic_id_that_nobody_knows_is_refused_and_the_root_not_marked(root: Path, mode: RecoveryMode) -> None:
    for name in ("t-0", "t-1"):
        (root / name / METADATA).write_bytes(b"")
    before = tree(root / "t-0")
    first, second, third = kstore.recover(root, mode)
    assert isinstance(first.refusal, CorruptCheckpointError)
    assert str(root / "t-0" / METADATA) == first.refusal.path
    assert (first.report, second.report, third.report is None) == (None, None, False)
    assert tree(root / "t-0") == before
    assert not (root / CLEAN).exists()


def test_store_recovers_with_the_id_of_another_partition_or_not_at_all(root: Path) -> None:
    (root / "t-1" / METADATA).write_bytes(b"")
    (root / "u-0" / METADATA).write_bytes(b"")
    with kstore.open_store(root, "a") as store:
        assert store.topic_id("t") == TOPIC_ID
        with pytest.raises(CorruptCheckpointError, match="u-0"):
            store.log("u")
        store.log("t", 1).append([kstore.Record(offset=0, timestamp_ms=1, value=b"x")])
    assert read_partition_metadata(str(root / "t-1")) == TOPIC_ID
    assert not (root / CLEAN).exists(), "a broker would not start"


@every_mode
def test_malformed_meta_properties_are_refused_and_nothing_is_changed(root: Path, mode: RecoveryMode) -> None:
    (root / "meta.properties").write_bytes(bytes(60))
    before = tree(root)
    for dry_run in (True, False):
        with pytest.raises(CorruptCheckpointError, match=r"meta\.properties"):
            kstore.recover(root, mode, dry_run=dry_run)
    assert tree(root) == {**before, str(root / ".lock"): b""}


@pytest.mark.parametrize("command", ["recover", "store"])
@pytest.mark.parametrize("name", ["cleaner", "log-start", "recovery-point", "replication"])
def test_malformed_checkpoint_of_a_root_is_replaced(root: Path, name: str, command: str) -> None:
    name = f"{name}-offset-checkpoint".replace("point-offset", "point-offset")
    (root / name).write_bytes(b"0\n1\nt 0 x\n")
    if command == "recover":
        kstore.recover(root)
    else:
        kstore.open_store(root, "a").close()
    assert kstore.verify(root).is_unharmed
    assert (root / CLEAN).exists()


@pytest.mark.parametrize("command", ["recover", "store"])
def test_root_with_a_partition_that_a_broker_was_moving_is_not_marked(root: Path, command: str) -> None:
    shutil.copytree(root / "t-1", root / "t-1.0123456789abcdef0123456789abcdef-future")
    if command == "recover":
        assert all(one.report is not None for one in kstore.recover(root))
    else:
        kstore.open_store(root, "a").close()
    assert not (root / CLEAN).exists(), "the broker has to recover the copy"


@every_mode
def test_snapshot_that_cannot_be_read_goes_below_the_recovery_point_too(mode: RecoveryMode, tmp_path: Path) -> None:
    root = write_root(tmp_path / "root", {"t-0": [batches(start, 4) for start in (0, 4, 8, 12)]})
    (root / CLEAN).unlink()
    path, newest = (root / "t-0" / f"{offset:020d}.snapshot" for offset in (4, 12))
    for one in (path, newest):
        write_snapshot(str(one), [])
    path.write_bytes(path.read_bytes()[:-1])
    (recovered,) = kstore.recover(root, mode)
    assert recovered.report is not None
    assert kstore.verify(root).is_unharmed


@every_mode
def test_verify_says_yes_where_recovery_of_random_damages_does(mode: RecoveryMode, tmp_path: Path) -> None:
    base = broker_root(tmp_path / "base", most=24)
    assert try_damages(base, tmp_path / "root", seed="1", mode=mode) > 0


def test_recovered_root_is_recovered_again_without_a_change(root: Path) -> None:
    (root / "t-0" / EPOCHS).write_text("0\n3\n0 0\n2 12\n5 10\n")
    assert recovered_root(root, "strict") == ({"t-0", "t-1", "u-0"}, [])
    before = tree(root)
    again = kstore.recover(root)
    assert [one.report.rebuilt for one in again if one.report] == [(), (), ()]
    assert tree(root) == before


@every_mode
def test_leader_epochs_of_a_log_whose_first_segment_is_gone_start_where_it_starts(
    root: Path, mode: RecoveryMode
) -> None:
    for path in (root / "t-0").glob("00000000000000000000.*"):
        path.unlink()
    kstore.recover(root, mode)
    assert (root / "t-0" / EPOCHS).read_text() == "0\n2\n2 12\n5 20\n"
    before = tree(root)
    kstore.recover(root)
    assert tree(root) == before
