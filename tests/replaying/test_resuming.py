"""Goal: a replay that ended anywhere goes on where it was: no record is missing, none is there twice, in any order.
Method: runs that are interrupted, killed, or lose their cluster, each followed by another run with the same state file;
state files that are damaged or of something else."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files.json_state import with_checksum
from kstore.replaying import run
from kstore.replaying.flow import Flow
from kstore.serve.config import ServerConfig
from kstore.testing import KafkaServer
from tests.fakes.waiting import wait_until
from tests.making.batches import batches, write_root
from tests.making.replaying import contents, read, replayed

COUNT = 600


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """t-0 and t-1 with 600 records each, in batches of 10."""
    return write_root(
        tmp_path / "source", {name: [batches(0, COUNT // 10, records_per_batch=10)] for name in ("t-0", "t-1")}
    )


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


@pytest.fixture
def cluster(cluster: KafkaServer) -> KafkaServer:
    cluster.create_topic("t", 2)
    return cluster


def check_all_there(source: Path, cluster: KafkaServer) -> None:
    for partition in (0, 1):
        assert contents(cluster.records("t", partition)) == read(source / f"t-{partition}")


class Stopping:
    """A progress callback that does something after a number of calls."""

    def __init__(self, after: int, action: Any) -> None:
        self._left = after
        self._action = action

    def __call__(self, *_: int) -> None:
        self._left -= 1
        if self._left == 0:
            self._action()


def interrupt() -> None:
    raise KeyboardInterrupt


def partitions_of(state: Path) -> list[dict[str, Any]]:
    return json.loads(state.read_text())["partitions"]


def test_the_same_call_sends_only_what_is_new(source: Path, cluster: KafkaServer, state: Path) -> None:
    replayed(source, cluster, state=state)
    again = replayed(source, cluster, state=state)
    assert [each.record_count for each in again.partitions] == [0, 0]
    with kstore.open_store(source, "a") as store:
        store.log("t", 1).append(kstore.Record(value=b"new", timestamp_ms=7))
    summary = replayed(source, cluster, state=state)
    assert [(each.start_offset, each.end_offset, each.record_count) for each in summary.partitions] == [
        (COUNT, COUNT, 0),
        (COUNT, COUNT + 1, 1),
    ]
    check_all_there(source, cluster)


def test_without_a_state_file_each_call_begins_anew(source: Path, cluster: KafkaServer) -> None:
    for _ in range(2):
        replayed(source, cluster, partitions=0)
    assert contents(cluster.records("t", 0)) == read(source / "t-0") * 2


@pytest.mark.parametrize("after", [1, 2, 30, 61, 110])
def test_an_interrupted_run_goes_on_where_it_was(source: Path, cluster: KafkaServer, state: Path, after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        replayed(source, cluster, state=state, progress=Stopping(after, interrupt), client={"linger.ms": 0})
    before = [len(cluster.records("t", partition)) for partition in (0, 1)]
    summary = replayed(source, cluster, state=state)
    check_all_there(source, cluster)
    assert [each.record_count for each in summary.partitions] == [COUNT - count for count in before]


def test_an_interrupt_while_a_report_is_made_is_not_lost(
    source: Path, cluster: KafkaServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Flow.report

    def interrupted(flow: Flow, error: Any, message: Any) -> None:
        report(flow, error, message)
        monkeypatch.setattr(Flow, "report", report)
        raise KeyboardInterrupt

    monkeypatch.setattr(Flow, "report", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replayed(source, cluster, state=state)
    replayed(source, cluster, state=state)
    check_all_there(source, cluster)


KILLED = """
    import sys, kstore
    kstore.replay(sys.argv[1], sys.argv[2], state=sys.argv[3], records_per_s=400, client={"linger.ms": 0})
"""


def killed(source: Path, cluster: KafkaServer, state: Path, *, most: int) -> None:
    """Run a replay in a process of its own, and kill it once the cluster has so many records."""
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(source), cluster.bootstrap_servers, str(state)]
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: process.poll() is not None or len(cluster.records("t")) >= most)
        assert process.poll() is None, "it ended before it was killed"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("most", [1, 300])
def test_a_run_that_was_killed_goes_on_without_a_record_twice(
    source: Path, cluster: KafkaServer, state: Path, most: int
) -> None:
    killed(source, cluster, state, most=most)
    known = sum(each["record_count"] for each in partitions_of(state))
    assert known < len(cluster.records("t")), "the state file must lag, else nothing is found"
    killed(source, cluster, state, most=most + 200)
    summary = replayed(source, cluster, state=state)
    assert sum(each.found_count for each in summary.partitions) > 0
    check_all_there(source, cluster)


def test_records_of_others_are_not_taken_for_those_of_a_run_that_was_killed(
    source: Path, cluster: KafkaServer, state: Path
) -> None:
    """One of another writer comes in between, and one that is equal to a record that was not sent yet."""
    with pytest.raises(KeyboardInterrupt):
        replayed(source, cluster, partitions=0, state=state, progress=Stopping(30, interrupt))
    _forget_acknowledged(state)
    sent = cluster.records("t", 0)
    log = cluster.store.log("t", 0)
    with kstore.open_log(source / "t-0") as ours:
        later = ours[len(sent) + 5]
    log.append(kstore.Record(value=b"of another", timestamp_ms=1))
    log.append(kstore.Record(value=later.value, key=later.key, headers=later.headers, timestamp_ms=later.timestamp_ms))
    summary = replayed(source, cluster, partitions=0, state=state)
    assert summary.partitions[0].found_count == len(sent)
    there = contents(cluster.records("t", 0))
    assert there[: len(sent)] + there[len(sent) + 2 :] == read(source / "t-0")


def _forget_acknowledged(state: Path) -> None:
    """Make of a state file what it would be if the run had been killed before it wrote it again."""
    fields = json.loads(state.read_text())
    for each in fields["partitions"]:
        each.update(next_offset=0, target_offset=0, record_count=0, is_settled=False, syncs=[])
    state.write_text(_sealed(fields))


def test_a_batch_whose_answers_were_lost_is_written_once(source: Path, cluster: KafkaServer, state: Path) -> None:
    cluster.disconnect_next("Produce", is_done=True, times=2)
    cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    cluster.fail_next("Produce", "REQUEST_TIMED_OUT", is_done=True)
    replayed(source, cluster, state=state, client={"retry.backoff.ms": 1, "reconnect.backoff.ms": 1})
    check_all_there(source, cluster)


def test_a_cluster_that_starts_again_ends_no_run(source: Path, cluster: KafkaServer, state: Path) -> None:
    restart = Stopping(40, cluster.restart)
    replayed(source, cluster, state=state, progress=restart, client={"reconnect.backoff.ms": 1})
    check_all_there(source, cluster)


def test_a_cluster_that_is_gone_ends_the_run_and_the_next_one_goes_on(
    source: Path, tmp_path: Path, state: Path
) -> None:
    cluster = KafkaServer(tmp_path / "cluster", topics={"t": 2})
    port = int(cluster.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(kstore.ReplayError, match=r"acknowledged nothing for 5 s, and \d+ records wait") as caught:
        replayed(source, cluster, state=state, progress=Stopping(40, cluster.close), timeout=5)
    assert not caught.value.summary.is_complete
    with KafkaServer(tmp_path / "cluster", config=ServerConfig(port=port)) as cluster:
        replayed(source, cluster, state=state)
        check_all_there(source, cluster)


def test_no_more_records_are_sent_than_the_state_may_not_know_of(
    source: Path, cluster: KafkaServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_UNRECORDED", 100)
    monkeypatch.setattr(run, "_RECORD_INTERVAL_MS", 1 << 40)
    lags = []

    def look(*_: int) -> None:
        known = sum(each["record_count"] for each in partitions_of(state)) if state.exists() else 0
        lags.append(len(cluster.records("t")) - known)

    replayed(source, cluster, state=state, progress=look, client={"linger.ms": 0})
    check_all_there(source, cluster)
    assert 0 < max(lags) <= 100


def test_records_that_the_source_lost_meanwhile_are_an_error(source: Path, cluster: KafkaServer, state: Path) -> None:
    replayed(source, cluster, partitions=0, end_offset=100, state=state)
    with kstore.open_store(source, "a") as store:
        store.log("t", 0).delete_records(300)
    with pytest.raises(kstore.ReplayError, match="begins at offset 300, and offsets from 100 on were not replayed"):
        replayed(source, cluster, partitions=0, state=state)
    replayed(source, cluster, partitions=0, start_offset=300, state=state)
    assert contents(cluster.records("t", 0))[100:] == read(source / "t-0")


def test_a_source_that_ends_below_what_was_sent_is_refused(source: Path, cluster: KafkaServer, state: Path) -> None:
    replayed(source, cluster, partitions=0, state=state)
    with kstore.open_store(source, "a") as store:
        store.log("t", 0).truncate_to(50)
    with pytest.raises(kstore.ReplayStateError, match=r"up to 600, and .* ends at 50"):
        replayed(source, cluster, partitions=0, state=state)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[:-40], "what follows is no JSON"),
        (lambda text: text.replace('"next_offset": 600', '"next_offset": 500'), "crc32c: expected"),
        (lambda _: "[]", "expected a JSON object"),
        (lambda _: "", "no JSON at line 1"),
        (lambda _: '{"format_version": 1}', "crc32c: expected a checksum"),
        (lambda text: _changed(text, next_offset=-1), r"next_offset: expected a number from 0"),
        (lambda text: _changed(text, next_offset="5"), r"next_offset: expected a number, found '5'"),
        (lambda text: _changed(text, isolation="none"), "isolation: expected read_committed"),
        (lambda text: _changed(text, syncs=[[5, 5], [4, 4]]), "syncs: expected offsets that rise"),
        (lambda text: _changed(text, partition=1), "expected each partition once"),
        (lambda text: _changed(text, more=1), "more: expected no such field"),
        (
            lambda text: json.dumps(with_checksum(json.loads(text) | {"format_version": 2})),
            "format_version: expected 1",
        ),
    ],
)
def test_a_damaged_state_file_is_a_typed_error_and_nothing_is_sent(
    source: Path, cluster: KafkaServer, state: Path, damage: Any, said: str
) -> None:
    replayed(source, cluster, state=state)
    state.write_text(damage(state.read_text()))
    count = len(cluster.records("t"))
    with pytest.raises(kstore.ReplayStateError, match=said) as caught:
        replayed(source, cluster, state=state)
    assert caught.value.path == str(state)
    assert len(cluster.records("t")) == count


def _changed(text: str, **changes: Any) -> str:
    fields = json.loads(text)
    fields["partitions"][0].update(changes)
    return _sealed(fields)


def _sealed(fields: dict[str, Any]) -> str:
    return json.dumps(with_checksum(fields))


def test_a_state_file_of_other_clusters_topics_names_or_bounds_is_refused(
    source: Path, cluster: KafkaServer, state: Path, tmp_path: Path
) -> None:
    replayed(source, cluster, state=state)
    with KafkaServer(topics={"t": 2}) as other, pytest.raises(kstore.ReplayStateError, match="to the cluster"):
        replayed(source, other, state=state)
    cluster.create_topic("copy", 2)
    with pytest.raises(kstore.ReplayStateError, match="to topic t, and this one is to copy"):
        replayed(source, cluster, state=state, rename={"t": "copy"})
    with pytest.raises(kstore.ReplayStateError, match=r"isolation read_committed, and this one has .*, since 5 ms"):
        replayed(source, cluster, state=state, since=5)
    copy = write_root(tmp_path / "copy", {name: [batches(0, 9)] for name in ("t-0", "t-1")})
    for name in ("t-0", "t-1"):
        (copy / name / "partition.metadata").unlink()
    with pytest.raises(kstore.ReplayStateError, match="has no id that shows it is the same"):
        replayed(copy, cluster, state=state)
    cluster.delete_topic("t")
    cluster.create_topic("t", 2)
    with pytest.raises(kstore.ReplayStateError, match="an earlier topic t of the cluster, which was deleted since"):
        replayed(source, cluster, state=state)
    assert cluster.records("t") == []


def test_a_topic_of_the_source_that_was_created_again_is_refused(
    tmp_path: Path, cluster: KafkaServer, state: Path
) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 2)
    replayed(tmp_path / "root", cluster, state=state)
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.delete_topic("t")
        store.create_topic("t", 2)
    with pytest.raises(kstore.ReplayStateError, match="of another topic t: it has the id"):
        replayed(tmp_path / "root", cluster, state=state)


def test_a_state_file_is_used_by_one_replay_at_a_time(source: Path, cluster: KafkaServer, state: Path) -> None:
    refused = []

    def second() -> None:
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(source), cluster.bootstrap_servers, str(state)]
        refused.append(subprocess.run(command, capture_output=True, text=True, check=False).stderr)

    replayed(source, cluster, state=state, progress=Stopping(5, second))
    assert "in use by another replay" in refused[0]
    check_all_there(source, cluster)


def test_what_a_state_file_has_of_other_partitions_stays(source: Path, cluster: KafkaServer, state: Path) -> None:
    for partition in (0, 1):
        replayed(source, cluster, partitions=partition, state=state)
    assert [(each["partition"], each["next_offset"]) for each in partitions_of(state)] == [(0, COUNT), (1, COUNT)]


def test_a_dry_run_leaves_the_state_file(source: Path, cluster: KafkaServer, state: Path) -> None:
    replayed(source, cluster, state=state, dry_run=True)
    assert not state.exists()
    replayed(source, cluster, partitions=0, end_offset=100, state=state)
    before = state.read_bytes()
    summary = replayed(source, cluster, partitions=0, state=state, dry_run=True)
    assert summary.partitions[0].record_count == COUNT - 100
    assert state.read_bytes() == before
