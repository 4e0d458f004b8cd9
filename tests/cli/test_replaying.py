"""Goal: `kstore replay` shows what it sent and committed, says why it refuses, and is interrupted without a loss.
Method: the command in this process and in one of its own, against kstore's own server."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore as library
from kstore.testing import KafkaServer
from tests.cli.runner import Runner, Terminal, runner, start
from tests.fakes.waiting import wait_until
from tests.making.batches import batch, batches, flip_bit, write_root
from tests.making.replaying import contents, read

pytest.importorskip("confluent_kafka")


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """orders-a-0 and orders-b-0 with 40 records each, other-0 with 5."""
    parts = {name: [batches(0, 4, records_per_batch=10, value_bytes=100)] for name in ("orders-a-0", "orders-b-0")}
    return write_root(tmp_path / "source", {**parts, "other-0": [[batch(0, 5)]]})


@pytest.fixture
def cluster() -> Iterator[KafkaServer]:
    with KafkaServer(topics={"orders-a": 1, "orders-b": 1, "other": 1}) as server:
        yield server


def test_each_partition_and_each_offset_is_an_object(kstore: Runner, source: Path, cluster: KafkaServer) -> None:
    with library.open_store(source, "a") as store:
        library.reset_offsets(store, "g", {library.TopicPartition("orders-a", 0): 11})
    run = kstore(
        "replay", source, "--bootstrap", cluster.bootstrap_servers, "--topic", "orders-*", "--offsets", "--json"
    )
    assert (run.status, run.err) == (0, "")
    first, second, offset = run.objects()
    assert first == {
        "topic": "orders-a",
        "partition": 0,
        "source_topic": "orders-a",
        "start_offset": 0,
        "end_offset": 40,
        "target_end_offset": 40,
        "record_count": 40,
        "size_in_bytes": 40 * 100 + 10 * 2 + 30 * 3,
        "found_count": 0,
        "is_dry_run": False,
    }
    assert second["topic"] == "orders-b"
    assert offset == {
        "group": "g",
        "source_topic": "orders-a",
        "partition": 0,
        "source_offset": 11,
        "topic": "orders-a",
        "offset": 11,
        "committed": None,
        "note": None,
        "is_dry_run": False,
    }
    assert cluster.records("other") == []


def test_tables_show_partitions_and_offsets(kstore: Runner, source: Path, cluster: KafkaServer) -> None:
    with library.open_store(source, "a") as store:
        library.reset_offsets(store, "g", {library.TopicPartition("other", 0): 3})
    options = ["--topic", "other", "--rename", "other=new", "--create-topics", "--group", "g", "--dry-run"]
    run = kstore("replay", source, "--bootstrap", cluster.bootstrap_servers, *options)
    assert run.err == "kstore: to be created: new\n"
    lines = [line.split() for line in run.out.splitlines()]
    assert lines[0] == ["topic", "partition", "source", "start", "end", "target", "end", "records", "bytes", "found"]
    assert lines[1][:7] == ["new", "0", "other", "0", "5", "5", "5"]
    assert lines[3:] == [
        ["group", "topic", "partition", "source", "offset", "offset", "before", "note"],
        ["g", "new", "0", "3", "3", "-"],
    ]
    assert "new" not in cluster.store.topics


def test_options_reach_the_replay(kstore: Runner, source: Path, cluster: KafkaServer, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("# of librdkafka\nlinger.ms=1\nclient.id = me\n")
    options = ["--from", "10", "--to", "30", "--since", "1600000000015ms", "--until", "1600000000025ms"]
    options += ["--rename", "old.{topic}", "--rate", "100000", "--byte-rate", "1e9", "--timeout", "20"]
    options += ["--create-topics", "--producer-config", str(config), "--producer-config", "compression.type=lz4"]
    run = kstore("replay", source / "orders-a-0", "--bootstrap", cluster.bootstrap_servers, *options)
    assert (run.status, run.err) == (0, "kstore: created: old.orders-a\n")
    assert contents(cluster.records("old.orders-a")) == read(source / "orders-a-0", 15, 25)
    codecs = {stored.compression for stored in cluster.store.log("old.orders-a", 0).batches()}
    assert library.CompressionType.LZ4 in codecs


def test_damage_is_reported_and_the_rest_is_sent(kstore: Runner, source: Path, cluster: KafkaServer) -> None:
    flip_bit(source / "orders-a-0" / f"{0:020}.log", len(batch(0, 10, value_bytes=100)) + 80, bit=3)
    options = ["--bootstrap", cluster.bootstrap_servers, "--topic", "orders-a"]
    run = kstore("replay", source, *options, "--skip-damaged")
    assert run.status == 1
    assert "skipped offsets 10 to 19 of orders-a-0" in run.err
    assert len(cluster.records("orders-a")) == 30
    run = kstore("replay", source, *options, "--json")
    assert run.status == 1
    assert "CRC mismatch" in run.err
    assert [each["end_offset"] for each in run.objects()] == [10]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topic", "none"], "found no partition of topic none"),
        (["--rename", "orders-a"], "--rename must be OLD=NEW, or a rule as old.{topic}"),
        (["--rename", "a=b", "--rename", "a=c"], "--rename gives a two names: b and c"),
        (["--rename", "x.{topic}", "--rename", "a=c"], "--rename is one rule, or names one by one"),
        (["--producer-config", "acks=1"], "a replay sets acks itself"),
        (["--producer-config", "no-such-file"], "there is no file no-such-file"),
        (["--from", "9", "--to", "3"], "end_offset must not be below start_offset 9"),
        (["--rename", "other=missing", "--topic", "other"], "has no topic missing; nothing was sent"),
        (["--state", "/proc/none/state"], "/proc/none/state"),
    ],
)
def test_wrong_use_is_one_line_and_nothing_is_sent(
    kstore: Runner, source: Path, cluster: KafkaServer, options: list[str], said: str
) -> None:
    run = kstore("replay", source, "--bootstrap", cluster.bootstrap_servers, *options)
    assert run.status == 2
    assert said in run.err
    assert run.err.count("\n") == 1
    assert [len(cluster.records(topic)) for topic in ("orders-a", "orders-b", "other")] == [0, 0, 0]


def test_what_ended_early_says_how_far_it_came_and_how_to_go_on(
    kstore: Runner, source: Path, cluster: KafkaServer, tmp_path: Path
) -> None:
    cluster.fail_next("Produce", "INVALID_RECORD")
    options = ["--bootstrap", cluster.bootstrap_servers, "--topic", "other", "--state", tmp_path / "state", "--json"]
    run = kstore("replay", source, *options)
    assert run.status == 1
    assert [each["end_offset"] for each in run.objects()] == [0]
    assert run.err.splitlines() == [
        "kstore: the same command goes on where each partition ends",
        "kstore: the record of other-0 at offset 0 was not written: Broker: Broker failed to validate record",
    ]
    assert kstore("replay", source, *options).status == 0
    assert contents(cluster.records("other")) == read(source / "other-0")


def test_an_interrupt_ends_the_command_with_130_and_the_next_one_goes_on(
    source: Path, cluster: KafkaServer, tmp_path: Path
) -> None:
    options = ["--bootstrap", cluster.bootstrap_servers, "--topic", "orders-a", "--state", tmp_path / "state"]
    process = start("replay", source, *options, "--rate", "50", stderr=subprocess.PIPE)
    try:
        wait_until(lambda: process.poll() is not None or len(cluster.records("orders-a")) >= 5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, b"")
    known = json.loads((tmp_path / "state").read_text())["partitions"][0]["record_count"]
    assert known == len(cluster.records("orders-a"))
    assert 0 < known < 40
    with start("replay", source, *options, stdout=subprocess.PIPE) as done:
        assert done.wait(60) == 0
    assert contents(cluster.records("orders-a")) == read(source / "orders-a-0")


def test_a_terminal_has_a_bar(source: Path, cluster: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from kstore.cli.exporting import replaying
    from kstore.cli.output import Output

    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    typed = replaying.TypedOptions(
        directory=str(source),
        bootstrap=cluster.bootstrap_servers,
        topic=["other"],
        partition=None,
        start="earliest",
        end="latest",
        since=None,
        until=None,
        isolation="read_committed",
        rename=None,
        rate=None,
        byte_rate=None,
        create_topics=False,
        offsets=False,
        group=None,
        state=None,
        producer_config=None,
    )
    how = replaying.Handling(20, False, False, False)
    assert replaying.run(typed, how, Output(stdout=Terminal(), stderr=screen)) == 0
    size = (source / "other-0" / f"{0:020}.log").stat().st_size
    assert f"{size}/{size} bytes".encode() in screen.bytes.getvalue()
