"""Goal: `kstore adopt` says what it did, what is lost, and what the broker needs; what cannot be adopted is wrong use.
Method: the command over small roots, as text and as JSON."""

from __future__ import annotations

import pytest

from kstore.store.store import open_store
from tests.cli.runner import runner


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("orders", 2, config={"segment_bytes": 4096})
    return tmp_path / "root"


def test_topics_and_the_lines_of_server_properties_are_shown(kstore, root):
    run = kstore("adopt", root, "--node-id", 5)
    assert run.status == 0
    lines = run.out.splitlines()
    assert lines[0].split() == ["topic", "id", "partitions", "epoch", "settings", "said", "by"]
    assert lines[1].split()[0] == "orders"
    at = lines.index("server.properties needs:")
    assert "node.id=5" in lines[at:]
    assert f"log.dirs={root}" in lines[at:]
    assert "topic orders: segment.bytes=4096 is left out" in run.err


def test_a_second_run_says_that_nothing_changed(kstore, root):
    kstore("adopt", root)
    run = kstore("adopt", root)
    assert (run.status, "adopted before; nothing was changed" in run.err) == (0, True)


def test_the_json_has_all_that_is_shown(kstore, root):
    (root / f"gone-0.{'0' * 32}-stray").mkdir()
    run = kstore("adopt", root, "--json", "--dry-run", "--release", "4.1")
    (report,) = run.objects()
    assert list(report) == [
        "roots",
        "node_id",
        "cluster_id",
        "features",
        "topics",
        "next_producer_id",
        "snapshot",
        "changed",
        "set_aside",
        "lost",
        "left_alone",
        "notices",
        "server_properties",
        "dry_run",
    ]
    assert (report["changed"], report["dry_run"], report["features"]["metadata.version"]) == (True, True, 27)
    assert report["left_alone"] == [str(root / f"gone-0.{'0' * 32}-stray")]
    (topic,) = report["topics"]
    assert (topic["topic"], topic["partitions"], topic["settings_from"]) == ("orders", 2, "kstore-topic-settings")
    assert "dry run: nothing was changed" in run.err
    assert not (root / "__cluster_metadata-0").exists()


def test_what_cannot_be_adopted_is_wrong_use(kstore, root, tmp_path):
    (root / "kstore-topic-settings").unlink()
    run = kstore("adopt", root)
    assert (run.status, "--keep-forever" in run.err) == (2, True)
    given = tmp_path / "given.json"
    given.write_text('{"orders": {"retention.ms": "soon"}}')
    run = kstore("adopt", root, "--config", given)
    assert (run.status, "retention.ms=soon" in run.err) == (2, True)
    run = kstore("adopt", root, "--keep-forever", "--node-id", 9)
    assert (run.status, "--replace" in run.err) == (2, True)
    assert kstore("adopt", root, "--keep-forever", "--node-id", 9, "--replace").status == 0


def test_what_is_set_aside_and_not_carried_over_is_said(kstore, root):
    (root / "bootstrap.checkpoint").write_bytes(b"old")
    run = kstore("adopt", root)
    assert f"the files of the earlier cluster: {root}.set-aside-1" in run.err
