"""Goal: what was staged is in the log once per version, all of it or nothing, whatever fails on the way.
Method: stores in temporary folders; files that are damaged or gone, a disk that is full for some files, writers."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

import kstore
from kstore.config import LogConfig
from kstore.coordinator.transaction import coordinator as coordinator_module
from kstore.coordinator.transaction.coordinator import coordinator_of
from kstore.env import LocalEnv, ReadFile, StrPath
from kstore.errors import (
    CorruptRecordError,
    KStoreError,
    LogLockedError,
    LogNotFoundError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from kstore.log.files.names import STAGING_DIRECTORY
from kstore.record import Record
from kstore.staging import AppVersion, StagedFile, StagingArea, commit_staged, job_name, prepare_root
from kstore.staging import commit as commit_module
from kstore.staging import committed as committed_module
from kstore.staging.area import CONTROL_PARTITION
from kstore.staging.committed import CommittedVersions
from kstore.store.checks import verify
from kstore.store.store import open_store
from kstore.types import INTERNAL_TOPICS, SINK_TOPIC, TRANSACTION_STATE_TOPIC
from tests.fakes.full_disk import FullEnv
from tests.making.collecting import over
from tests.making.staging import PARTITIONS, TOPIC, commit, committed_values, make_root, stage, transactional_id

Q = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
RECORDS = [(at % PARTITIONS, b"%d" % at) for at in range(20)]
EXPECTED = [[value for partition, value in RECORDS if partition == number] for number in range(PARTITIONS)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "root")


def end_offsets(root: Path) -> list[int]:
    with open_store(root) as store:
        return [store.log(*one).log_end_offset for one in store.partitions if one.topic == TOPIC]


def check_settled(root: Path) -> None:
    """Check that no transaction is open, and that every byte of the root is as it should be."""
    with open_store(root) as store:
        for one in store.partitions:
            log = store.log(*one)
            assert log.transactions().last_stable_offset == log.log_end_offset, one
    assert [one.damage for one in verify(root).partitions if one.damage] == []


def staged_names(root: Path) -> list[str]:
    return sorted(path.name for path in Path(StagingArea(root).path).rglob("*") if path.is_file())


def test_version_is_committed_with_its_records_in_order(root: Path) -> None:
    app = AppVersion(Q, 0)
    files = stage(root, app, RECORDS[:9]) + stage(root, app, RECORDS[9:], compression_type="lz4")
    assert sum(one.record_count for one in files) == len(RECORDS)
    assert commit(root, app, files)
    assert committed_values(root) == EXPECTED
    check_settled(root)
    assert staged_names(root) == []


def test_records_belong_to_a_transaction_of_the_query(root: Path) -> None:
    commit(root, AppVersion(Q, 0), stage(root, AppVersion(Q, 0), RECORDS, batch_size=64))
    with open_store(root, "a") as store:
        state = coordinator_of(store).state(transactional_id(Q))
        assert state is not None
        batches = [batch for batch in store.log(TOPIC, 1).batches() if not batch.header.is_control]
        assert {one.header.is_transactional for one in batches} == {True}
        assert {(one.header.producer_id, one.header.producer_epoch) for one in batches} == {tuple(state.producer)}
        assert len(batches) > 1
        following = 0
        for one in batches:
            assert one.header.base_sequence == following
            following += one.header.record_count or 0


def test_version_that_is_repeated_changes_nothing(root: Path) -> None:
    app = AppVersion(Q, 3)
    assert commit(root, app, stage(root, app, RECORDS))
    before = end_offsets(root)
    for version in (3, 2, 0):
        again = AppVersion(Q, version)
        assert not commit(root, again, stage(root, again, [*RECORDS, (0, b"other")]))
    assert end_offsets(root) == before
    assert committed_values(root) == EXPECTED
    assert staged_names(root) == []
    check_settled(root)


def test_version_before_the_last_one_is_warned_of(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kstore.staging")
    for version in (5, 5, 4):
        app = AppVersion(Q, version)
        commit(root, app, stage(root, app, RECORDS))
    assert [record.levelname for record in caplog.records if "not written again" in record.message] == [
        "INFO",
        "WARNING",
    ]


def test_write_without_an_application_is_committed_each_time(root: Path) -> None:
    for _ in range(2):
        assert commit_staged(root, stage(root, AppVersion("j", 0), RECORDS), transactional_id="kstore-spark-batch")
    assert committed_values(root) == [values + values for values in EXPECTED]


def test_empty_write_opens_nothing(root: Path) -> None:
    with open_store(root, "a"):
        assert not commit(root, AppVersion(Q, 0), [])


def test_applications_have_versions_of_their_own(root: Path) -> None:
    for app in (AppVersion("a", 7), AppVersion("b", 0), AppVersion("a", 8), AppVersion("b", 1)):
        assert commit(root, app, stage(root, app, [(0, b"%s%d" % (app.app_id.encode(), app.version))]))
    assert committed_values(root)[0] == [b"a7", b"b0", b"a8", b"b1"]
    with open_store(root) as store:
        found = CommittedVersions.read(store.log(*CONTROL_PARTITION))
    assert [found.version_of(app_id) for app_id in ("a", "b", "c")] == [8, 1, None]


def test_files_of_attempts_that_failed_go_with_the_next_version(root: Path) -> None:
    dead, other = stage(root, AppVersion(Q, 0), RECORDS), stage(root, AppVersion("other", 0), RECORDS)
    commit(root, AppVersion(Q, 0), stage(root, AppVersion(Q, 0), RECORDS))
    assert staged_names(root) == sorted(one.name for one in dead + other)
    commit(root, AppVersion(Q, 1), stage(root, AppVersion(Q, 1), RECORDS))
    assert staged_names(root) == sorted(one.name for one in other)
    assert commit(root, AppVersion("other", 0), other)
    assert committed_values(root) == [3 * values for values in EXPECTED]


class LaterEnv(LocalEnv):
    """The operating system, days later."""

    def __init__(self, days: float) -> None:
        self._later_ms = int(days * 24 * 60 * 60 * 1000)

    def wall_clock_ms(self) -> int:
        return super().wall_clock_ms() + self._later_ms


def test_jobs_that_nobody_touched_for_a_week_are_collected(root: Path) -> None:
    stage(root, AppVersion("dead", 0), RECORDS)
    assert StagingArea(root, LaterEnv(6.9)).collect() == 0
    assert len(staged_names(root)) == PARTITIONS
    commit(root, AppVersion(Q, 0), stage(root, AppVersion(Q, 0), RECORDS), env=LaterEnv(7.1))
    assert staged_names(root) == []
    assert list(Path(StagingArea(root).path).iterdir()) == []


def test_what_no_job_makes_is_left_and_keeps_no_dead_job(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    area = Path(StagingArea(root).path)
    stage(root, AppVersion("a", 0), RECORDS)
    stage(root, AppVersion("z", 0), RECORDS)
    (area / ".DS_Store").write_bytes(b"x")
    (area / "a.0" / "mine").mkdir()
    (area / "a.0" / "link").symlink_to(root / "elsewhere")
    (area / "a.9").symlink_to(root / f"{TOPIC}-0")
    assert StagingArea(root, LaterEnv(7.1)).collect() == 1
    assert sorted(path.relative_to(area).as_posix() for path in area.rglob("*")) == [
        ".DS_Store", "a.0", "a.0/link", "a.0/mine", "a.9"
    ]  # fmt: skip
    assert [record.getMessage() for record in caplog.records] == [
        f"the staged files of {area}/a.0 were not all removed: it has directories or links, which no job makes"
    ]
    StagingArea(root).remove_versions_below("a", 99)
    assert (root / f"{TOPIC}-0" / "00000000000000000000.log").exists()


class StuckEnv(LaterEnv):
    """A week later, one job's files can't be removed."""

    def unlink(self, path: str) -> bool:
        if "/a.0/" in path:
            raise StorageError(f"cannot remove {path}", path=path, errno=13)
        return super().unlink(path)


def test_a_job_that_can_not_be_removed_keeps_no_other_and_is_logged(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for app_id in ("a", "z"):
        stage(root, AppVersion(app_id, 0), RECORDS)
    assert commit(root, AppVersion(Q, 0), stage(root, AppVersion(Q, 0), RECORDS), env=StuckEnv(7.1))
    assert [path.name for path in Path(StagingArea(root).path).iterdir()] == ["a.0"]
    assert ["a.0 were not all removed: cannot remove" in record.getMessage() for record in caplog.records] == [True]


def damage(root: Path, staged: StagedFile, at: int) -> None:
    path = Path(StagingArea(root).path_of(staged))
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_damaged_staged_file_is_refused_and_nothing_is_visible(root: Path) -> None:
    app = AppVersion(Q, 0)
    files = stage(root, app, RECORDS, batch_size=64)
    damage(root, files[-1], files[-1].size_in_bytes - 1)
    with pytest.raises(CorruptRecordError) as found:
        commit(root, app, files)
    assert found.value.path == StagingArea(root).path_of(files[-1])
    assert found.value.position not in (0, None)
    assert committed_values(root) == [[], [], []]
    check_settled(root)
    StagingArea(root).remove(files)
    assert commit(root, app, stage(root, app, RECORDS))
    assert committed_values(root) == EXPECTED


def test_staged_file_that_is_cut_or_gone_is_refused(root: Path) -> None:
    app = AppVersion(Q, 0)
    area = StagingArea(root)
    for change, kind, reason in (
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), CorruptRecordError, "bytes that were staged, found"),
        (lambda path: path.write_bytes(path.read_bytes() + b"0"), CorruptRecordError, "bytes that were staged, found"),
        (lambda path: path.unlink(), StorageError, "is gone: expected the file that a task staged"),
    ):
        files = stage(root, app, RECORDS)
        change(Path(area.path_of(files[1])))
        with pytest.raises(kind, match=reason):
            commit(root, app, files)
        area.remove(files)
    short = [one._replace(size_in_bytes=one.size_in_bytes - 1) for one in stage(root, app, RECORDS)]
    for one in short:
        path = Path(area.path_of(one))
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptRecordError, match="ends inside a batch"):
        commit(root, app, short)
    assert committed_values(root) == [[], [], []]
    check_settled(root)


def test_commit_that_raised_and_was_aborted_can_be_repeated(root: Path) -> None:
    app = AppVersion(Q, 0)
    files = stage(root, app, RECORDS)
    with open_store(root, "a"), pytest.raises(LogLockedError, match="waited 30 ms"):
        commit(root, app, files, max_block_ms=30)
    StagingArea(root).remove_job(job_name(*app))
    assert staged_names(root) == []
    assert commit(root, app, stage(root, app, RECORDS))
    assert committed_values(root) == EXPECTED


def test_commit_waits_for_a_writer_to_close_the_root(root: Path) -> None:
    app = AppVersion(Q, 0)
    files = stage(root, app, RECORDS)
    store = open_store(root, "a")
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(commit(root, app, files, max_block_ms=60_000)))
    thread.start()
    store.close()
    thread.join()
    assert results == [True]
    assert committed_values(root) == EXPECTED


def test_topic_that_is_missing_is_refused_or_created(root: Path) -> None:
    app = AppVersion(Q, 0)
    files = stage(root, app, RECORDS, topic="new", new_topic_partitions=4)
    with pytest.raises(UnknownTopicOrPartitionError, match="'new' is no longer in"):
        commit(root, app, files)
    assert commit(root, app, files, new_topic_partitions=4)
    assert committed_values(root, topic="new") == [*EXPECTED, []]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"'other' is not in .* which has: new, t"):
        stage(root, app, RECORDS, topic="other")
    with pytest.raises(ValueError, match="internal"):
        stage(root, app, RECORDS, topic=SINK_TOPIC, new_topic_partitions=1)
    with pytest.raises(ValueError, match="topic name"):
        stage(root, app, RECORDS, topic="a b", new_topic_partitions=1)


def test_partition_that_is_gone_is_refused(root: Path) -> None:
    app = AppVersion(Q, 0)
    files = [one._replace(partition=7) for one in stage(root, app, RECORDS[:1])]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"t-7 in .*: records were staged for it"):
        commit(root, app, files)
    check_settled(root)


LOG = "00000000000000000000.log"
# Where the space ends, and whether the version is committed nevertheless.
FULL = {
    "the first partition": f"{TOPIC}-0/{LOG}",
    "the last partition": f"{TOPIC}-2/{LOG}",
    "the versions": f"{SINK_TOPIC}-0/{LOG}",
    "the state of transactions": f"{TRANSACTION_STATE_TOPIC}-0/{LOG}",
    "the state of transactions, other half": f"{TRANSACTION_STATE_TOPIC}-1/{LOG}",
}


def committed_or_full(root: Path, app: AppVersion, env: LocalEnv) -> bool:
    """Stage and commit the records; return whether that was possible, or the disk was full."""
    files = stage(root, app, RECORDS)
    try:
        return commit(root, app, files, env=env)
    except StorageError as error:
        if not error.is_out_of_space:
            raise
        return False


@over("name", list(FULL), by=lambda _: "places")
def test_commit_on_a_full_disk_is_whole_once_there_is_space(name: str, tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    env = FullEnv()
    env.calls = ("write",)
    commit(root, AppVersion(Q, 0), stage(root, AppVersion(Q, 0), RECORDS))
    app = AppVersion(Q, 1)
    env.full = (FULL[name],)
    done = committed_or_full(root, app, env)
    seen = committed_values(root)
    assert seen == ([values + values for values in EXPECTED] if done else EXPECTED)
    env.full = ()
    assert commit(root, app, stage(root, app, RECORDS), env=env) is not done
    assert committed_values(root) == [values + values for values in EXPECTED]
    check_settled(root)


class FullAfter(FullEnv):
    """Full for the logs of the topic from the n-th write on, which may be that of a marker."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.calls = ("write",)
        self._writes = writes

    def check(self, call: str, path: str) -> None:
        if call == "write" and path.endswith(LOG):
            self._writes -= 1
            if self._writes < 0:
                self.full = (LOG,)
        super().check(call, path)


@over("writes", list(range(16)), by=lambda _: "writes")
def test_disk_that_fills_up_during_a_commit_leaves_a_whole_version_or_none(writes: int, tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    app, other = AppVersion(Q, 0), AppVersion("other", 0)
    done = committed_or_full(root, app, FullAfter(writes))
    commit(root, other, stage(root, other, [(0, b"other")]))
    commit(root, app, stage(root, app, RECORDS))
    found = committed_values(root)
    assert sorted(found[0]) == sorted([*EXPECTED[0], b"other"])
    assert found[1:] == EXPECTED[1:]
    assert not done or found[0][-1] == b"other"
    check_settled(root)


def test_commit_whose_store_cannot_be_closed_counts(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    commit(root, AppVersion(Q, 0), stage(root, AppVersion(Q, 0), RECORDS))
    env = FullEnv()
    env.full = ("-checkpoint.tmp", ".kafka_cleanshutdown.tmp")
    app = AppVersion(Q, 1)
    assert commit(root, app, stage(root, app, RECORDS), env=env)
    assert [record.message for record in caplog.records if "closing" in record.message]
    assert committed_values(root) == [values + values for values in EXPECTED]
    assert not commit(root, app, stage(root, app, RECORDS))
    check_settled(root)


def test_full_disk_fails_the_task_that_stages(root: Path) -> None:
    env = FullEnv()
    env.full = ("-0",)
    with pytest.raises(KStoreError, match="no space"):
        stage(root, AppVersion(Q, 0), RECORDS, env=env)


def test_batches_larger_than_what_is_read_at_once_are_committed(root: Path) -> None:
    app = AppVersion(Q, 0)
    sizes = [6_000_000, 10, 5_000_000, 300_000, 9_000_000, 1]
    values = [b"%d" % size + b"x" * size for size in sizes]
    files = stage(root, app, [(1, value) for value in values], max_request_size=2**24, buffer_memory=2**26)
    assert commit(root, app, files)
    assert committed_values(root)[1] == values
    check_settled(root)


def test_batches_that_begin_in_one_read_and_end_in_the_next_are_committed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "_RUN_BYTES", 1000)
    app = AppVersion(Q, 0)
    values = [b"%d-" % number + b"x" * (number * 37 % 400) for number in range(200)]
    files = stage(root, app, [(1, value) for value in values], batch_size=300)
    assert commit(root, app, files)
    assert committed_values(root)[1] == values
    check_settled(root)


class CutEnv(LocalEnv):
    """The operating system, on which staged files lose their second half as soon as their size was asked for."""

    def open_read(self, path: StrPath) -> ReadFile:
        file = super().open_read(path)
        if STAGING_DIRECTORY in str(path):
            size = file.size()
            os.truncate(path, size // 2)
            file.size = lambda: size
        return file


def test_staged_file_that_is_cut_while_it_is_read_is_refused(root: Path) -> None:
    app = AppVersion(Q, 0)
    values = [(1, b"x" * 500_000)] * 8
    with pytest.raises(CorruptRecordError, match=r"ends at \d+, expected \d+ bytes"):
        commit(root, app, stage(root, app, values), env=CutEnv())
    assert committed_values(root) == [[], [], []]
    check_settled(root)


def test_commit_after_a_crash_reads_no_segment_before_the_last(root: Path) -> None:
    with open_store(root, "a", LogConfig(segment_bytes=4096)) as store:
        log = store.log(TOPIC, 0)
        for number in range(20):
            log.append(Record(timestamp_ms=1, value=b"%d" % number + b"x" * 1000))
        assert len(log.segments) > 3
    (root / ".kafka_cleanshutdown").unlink()
    path = root / f"{TOPIC}-0" / LOG
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    # A recovery that reads it refuses the log.
    assert commit(root, AppVersion(Q, 0), stage(root, AppVersion(Q, 0), RECORDS))
    with open_store(root) as store:
        found = [record.value for record in store.log(TOPIC, 0).read(20, isolation="read_committed")]
    assert found == EXPECTED[0]


def test_many_commits_leave_short_logs_of_versions_and_states(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_module, "_MOST_OFFSETS", 6)
    monkeypatch.setattr(coordinator_module, "_MOST_RECORDS", 12)
    for version in range(12):
        for app_id in ("a", "b"):
            app = AppVersion(app_id, version)
            assert commit(root, app, stage(root, app, [(0, b"x")]))
    with open_store(root) as store:
        lengths = {}
        for one in store.partitions:
            log = store.log(*one)
            lengths[one] = log.log_end_offset - log.log_start_offset
    assert lengths[CONTROL_PARTITION] <= 12
    assert all(length <= 24 for one, length in lengths.items() if one.topic == TRANSACTION_STATE_TOPIC)
    assert not commit(root, AppVersion("a", 11), stage(root, AppVersion("a", 11), RECORDS))
    assert not commit(root, AppVersion("b", 3), stage(root, AppVersion("b", 3), RECORDS))
    assert committed_values(root)[0] == [b"x"] * 24
    check_settled(root)


def test_readers_of_a_root_do_not_see_versions_and_staged_files(root: Path) -> None:
    app = AppVersion(Q, 0)
    commit(root, app, stage(root, app, RECORDS))
    stage(root, AppVersion(Q, 1), RECORDS)
    assert SINK_TOPIC in INTERNAL_TOPICS
    topics = [batch["topic"].to_pylist() for batch in kstore.scan(root, columns=["topic"])]
    assert {topic for part in topics for topic in part} == {TOPIC}
    with open_store(root) as store:
        assert set(store.topics) == {TOPIC, SINK_TOPIC, TRANSACTION_STATE_TOPIC}
        names = sorted(path.name for path in root.iterdir() if path.is_dir())
        assert names == sorted(str(one) for one in store.partitions)


@pytest.mark.parametrize("name", ["new-old", "new-", "new-0.5ee84b2cb4ae4b6fa6a4cf2f37a5a8c4-delete"])
def test_directory_that_is_no_partition_does_not_stand_for_a_topic(tmp_path: Path, name: str) -> None:
    root = make_root(tmp_path / "root")
    (root / name).mkdir()
    prepare_root(root, new_topics=[("new", 2)])
    with open_store(root) as store:
        assert [one.partition for one in store.partitions if one.topic == "new"] == [0, 1]


def test_root_is_prepared_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(LogNotFoundError, match="no such directory"):
        prepare_root(root)
    root.mkdir()
    area = prepare_root(root, new_topics=[("new", 2)])
    assert area.is_ready
    assert Path(area.path).parent.parent == root
    with open_store(root, "a") as store:
        assert store.topics == (SINK_TOPIC, TRANSACTION_STATE_TOPIC, "new")
        assert prepare_root(root, new_topics=[("new", 5)]).path == area.path
        with pytest.raises(LogLockedError):
            prepare_root(root, new_topics=[("other", 1)], max_block_ms=10)
    assert [(root / f"new-{number}").is_dir() for number in range(3)] == [True, True, False]
