"""Goal: `--watch` shows a command's table again and again until an interrupt; `--sort` orders what is listed.
Method: the sleep between two rounds replaced by one that changes the root or interrupts; a stream
that is a terminal."""

from __future__ import annotations

import pytest

from kstore import Consumer, Record, open_store
from kstore.cli.output import Column, Output
from kstore.cli.printing.watching import Order, watched
from kstore.env.process import SystemClock
from tests.cli.runner import Terminal, runner
from tests.making.batches import batch, batches, write_root


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "logs", {"a-0": [[batch(0)]], "b-0": [batches(0, 5)], "b-1": [[batch(0)], [batch(1)]]})


def sleeping(monkeypatch, *steps):
    """Let the sleeps take these steps, one after another, and then a Ctrl-C; return how long each was asked to take."""
    left, asked = list(steps), []

    def sleep_ms(_, duration_ms):
        asked.append(duration_ms)
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(SystemClock, "sleep_ms", sleep_ms)
    return asked


def test_watch_shows_what_came_meanwhile_until_an_interrupt(kstore, monkeypatch, root):
    def append():
        with open_store(root, "a") as store:
            store.log("a", 0).append(records=[Record(value=b"v")])

    asked = sleeping(monkeypatch, append)
    run = kstore("ls", root, "--topic", "a", "--watch", "2.5")
    assert (run.status, run.err) == (130, "")
    assert asked == [2500, 2500]
    first, second = run.out.split("\n\n")
    assert first.splitlines()[0] == second.splitlines()[0]
    assert [part.splitlines()[1].split()[3] for part in (first, second)] == ["1", "2"]


def test_watch_in_json_is_a_line_each_time(kstore, monkeypatch, root):
    sleeping(monkeypatch, lambda: None, lambda: None)
    run = kstore("ls", root, "--topic", "a", "--watch", "1", "--json")
    assert run.status == 130
    assert [shown["topic"] for shown in run.objects()] == ["a"] * 3


@pytest.mark.parametrize("arguments", [["stat", "--shallow"], ["groups"]], ids=["stat", "groups"])
def test_other_commands_watch_too(kstore, monkeypatch, tmp_path, arguments):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 1)
        store.create_topic("__consumer_offsets", 1)
        with Consumer(store, group="g") as consumer:
            consumer.commit({("t", 0): 0})
    sleeping(monkeypatch, lambda: None)
    name, *options = arguments
    run = kstore(name, tmp_path / "root", *options, "--watch", "1")
    first, second = run.out.removesuffix("\n").split("\n\n")
    assert run.status == 130
    assert first.removesuffix("\n") == second


def test_watch_replaces_the_table_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    out = Output(stdout=stream)
    sleeping(monkeypatch, lambda: None)

    def show():
        out.table([Column("n")], [["1"], ["2"]])
        return 0

    with pytest.raises(KeyboardInterrupt):
        watched(show, out, interval_s=1, is_json=False)
    first, *others = stream.bytes.getvalue().decode().split("\x1b[H")
    assert [part.count("1\n2\n") for part in (first, *others)] == [1, 1]
    assert others[0].startswith("\x1b[2J") or first.endswith("\x1b[2J")


def test_watch_goes_with_no_change(kstore, root):
    run = kstore("groups", root, "--group", "g", "--delete", "--watch", "1")
    assert run.status == 2
    assert "--watch" in run.err


def test_stat_is_sorted(kstore, root):
    def order(*options):
        return [
            f"{shown['topic']}-{shown['partition']}" for shown in kstore("stat", root, "--json", *options).objects()
        ]

    assert order("--sort", "batches", "-r") == ["b-0", "b-1", "a-0"]
    assert order("--sort", "size") == ["a-0", "b-1", "b-0"]
    assert order("-r") == ["b-1", "b-0", "a-0"]
    rows = kstore("stat", root, "--sort", "records", "-r", "--top", "0").out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["b", "b", "a"]


def test_topics_are_sorted(kstore, root):
    def order(*options):
        return [shown["topic"] for shown in kstore("topics", root, "--json", *options).objects()]

    assert order("--sort", "partitions", "--reverse") == ["b", "a"]
    assert order("--sort", "name") == ["a", "b"]
    assert order("--sort", "name", "-r") == ["b", "a"]


def test_groups_are_sorted_by_lag(kstore, tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 1)
        store.create_topic("__consumer_offsets", 1)
        store.log("t", 0).append(records=[Record(value=b"v")] * 5)
        for group, offset in (("a", 4), ("b", 0), ("c", 2)):
            with Consumer(store, group=group) as consumer:
                consumer.commit({("t", 0): offset})

    def order(*options):
        return [shown["group"] for shown in kstore("groups", tmp_path / "root", "--json", *options).objects()]

    assert order("--sort", "lag") == ["a", "c", "b"]
    assert order("--sort", "lag", "-r") == ["b", "c", "a"]
    assert order("--sort", "name") == ["a", "b", "c"]
    rows = kstore("groups", tmp_path / "root", "--list", "--sort", "lag").out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["a", "c", "b"]


def test_order_keeps_equal_ones_and_puts_the_unknown_first():
    keys = {"number": lambda pair: pair[1]}
    rows = [("a", 2), ("b", None), ("c", 1), ("d", 2), ("e", None)]
    sort = Order("number").apply(rows, keys)
    assert [name for name, _ in sort] == ["b", "e", "c", "a", "d"]
    assert Order("number", is_reversed=True).apply(rows, keys) == sort[::-1]
    assert Order().apply(rows, keys) == rows
