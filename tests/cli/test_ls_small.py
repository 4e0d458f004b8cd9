"""Goal: what `kstore ls` reads at once of a small partition is what it finds by opening the log.
Method: roots in which one thing is amiss, or none; each is listed by both ways, and with and without the short answer
that nothing is lost; whole outputs compared."""

from __future__ import annotations

import os

import pytest

from kstore.cli import ls
from kstore.env import LocalEnv
from kstore.log.files.durable_point import DurablePoint, DurablePointFile
from kstore.log.recovery import evidence
from tests.cli.runner import runner
from tests.making.batches import (
    Layout,
    batch,
    batches,
    flip_bit,
    grow,
    patch_header,
    record,
    set_byte,
    write_offset_checkpoint,
    write_partition,
    write_root,
    write_segment,
)
from tests.reference.codec import write_batch, write_empty_batch, write_end_transaction_marker

SEGMENT_0 = "00000000000000000000.log"


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def marker(offset):
    return write_end_transaction_marker(offset, timestamp_ms=5, producer_id=1, producer_epoch=0, commit=True)


# The segments of one partition.
LOGS = {
    "batches": [[batch(0, 3), batch(3, 2)]],
    "none": [[]],
    "from 7": [[batch(7, 3)]],
    "compressed": [[batch(0, 3, codec=3), batch(3, 2, codec=4)]],
    "an undefined codec": [[batch(0), patch_header(batch(1), attributes=7)]],
    "an undefined codec first": [[patch_header(batch(0), attributes=7), batch(1)]],
    "log append time": [[batch(0, 2, log_append_time_ms=77)]],
    "marker first": [[marker(0), batch(1, 2)]],
    "marker last": [[batch(0, 2), marker(2)]],
    "markers": [[marker(0)]],
    "emptied first": [[write_empty_batch(0, last_offset=9, max_timestamp_ms=1), batch(10)]],
    "cleaned first": [[write_batch([record(3, timestamp_ms=900)], base_offset=0), batch(4)]],
    "offsets that go back": [[batch(0, 3), batch(1, 2)]],
    "two segments": [[batch(0, 3)], [batch(3, 2)]],
    "a gap": [[batch(0, 3)], [batch(5, 2)]],
    "large": [[batch(0, value_bytes=40_000), batch(1, value_bytes=40_000)]],
    "as large as one read": [batches(0, 4, value_bytes=(1 << 14) - 80)],
}
# A name, what is done to a root of one partition of two batches with records 0 to 4; whether it is read at once.
CHANGES = {
    "log start in the first batch": (lambda root: starts(root, 1), False),
    "log start at the second batch": (lambda root: starts(root, 3), False),
    "log start at the end": (lambda root: starts(root, 5), True),
    "log start above the end": (lambda root: starts(root, 6), False),
    "malformed log start": (lambda root: (root / "log-start-offset-checkpoint").write_text("x"), False),
    "torn": (lambda root: log(root).write_bytes(log(root).read_bytes()[:-5]), False),
    "preallocated": (lambda root: grow(log(root), bytes(3000)), False),
    "bytes after the end": (lambda root: grow(log(root), b"x" * 100), False),
    "first CRC": (lambda root: flip_bit(log(root), len(batch(0, 3)) - 3, bit=0), False),
    "last CRC": (lambda root: flip_bit(log(root), len(batch(0, 3) + batch(3, 2)) - 3, bit=0), True),
    "header": (lambda root: set_byte(log(root), len(batch(0, 3)) + 8, value=0xFF), False),
    "orphaned index": (lambda root: side(root, "00000000000000000009.index"), False),
    "producer snapshot of the end": (lambda root: side(root, "00000000000000000005.snapshot"), True),
    "producer snapshot above the end": (lambda root: side(root, "00000000000000000006.snapshot"), False),
    "epoch at the end": (lambda root: epochs(root, "0\n2\n0 0\n1 5\n"), True),
    "epoch above the end": (lambda root: epochs(root, "0\n2\n0 0\n1 6\n"), False),
    "malformed epochs": (lambda root: epochs(root, "0\n3\n0 0\n1 6\n"), True),
    "no epochs": (lambda root: (root / "t-0/leader-epoch-checkpoint").unlink(), True),
    "high watermark above the end": (lambda root: marks(root, "replication-offset-checkpoint", 6), False),
    "recovery point above the end": (lambda root: marks(root, "recovery-point-offset-checkpoint", 6), False),
    "recovery point in a batch": (lambda root: marks(root, "recovery-point-offset-checkpoint", 4), False),
    "recovery point 0": (lambda root: marks(root, "recovery-point-offset-checkpoint", 0), True),
    "crash": (lambda root: (root / ".kafka_cleanshutdown").unlink(), True),
    "deleted": (lambda root: side(root, SEGMENT_0 + ".deleted"), False),
    "swapped": (lambda root: side(root, "00000000000000000003.log.swap"), False),
    "cleaned": (lambda root: side(root, "00000000000000000003.log.cleaned"), False),
    "other file": (lambda root: side(root, "notes.txt"), True),
    "link": (lambda root: (log(root).rename(root / "x"), log(root).symlink_to(root / "x")), False),
    "directory": (lambda root: (log(root).unlink(), log(root).mkdir()), False),
    "no log": (lambda root: log(root).unlink(), False),
    "gone": (lambda root: (root / "t-0").rename(root / "other"), False),
}  # fmt: skip


def log(root):
    return root / "t-0" / SEGMENT_0


def side(root, name):
    (root / "t-0" / name).write_bytes(b"")


def epochs(root, text):
    (root / "t-0/leader-epoch-checkpoint").write_text(text)


def marks(root, name, offset):
    write_offset_checkpoint(root / name, {"t-0": offset})


def starts(root, offset):
    marks(root, "log-start-offset-checkpoint", offset)


def check(kstore, monkeypatch, root):
    """Whether each partition of a root was read at once, after its listings of all ways were found to be equal."""
    at_once = []
    list_small = ls.list_small
    monkeypatch.setattr(ls, "list_small", lambda *found: at_once.append(list_small(*found)) or at_once[-1])
    for options in ((), ("--json",), ("--json", "--exact")):
        short = kstore("ls", root, *options)
        with monkeypatch.context() as patch:
            patch.setattr(ls, "list_small", lambda *_: None)
            assert kstore("ls", root, *options) == short
            patch.setattr(evidence, "is_all_there", lambda *_, **__: False)
            assert kstore("ls", root, *options) == short
    return [listing is not None for listing in at_once[: len(at_once) // 3]]


@pytest.mark.parametrize("name", LOGS)
def test_small_log_is_listed_as_a_log_that_is_opened(kstore, monkeypatch, tmp_path, name):
    root = write_root(tmp_path / "logs", {"t-0": LOGS[name]})
    slowly = {"marker first", "marker last", "markers", "emptied first", "two segments", "a gap", "large"}
    slowly |= {"offsets that go back", "an undefined codec first"}
    assert check(kstore, monkeypatch, root) == [name not in slowly]


@pytest.mark.parametrize("name", CHANGES)
def test_small_log_with_something_beside_it_is_listed_as_one_that_is_opened(kstore, monkeypatch, tmp_path, name):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 3), batch(3, 2)]]})
    write_partition(root, [[batch(0)]], topic="u")
    change, is_at_once = CHANGES[name]
    change(root)
    is_other_at_once = name != "malformed log start"
    expected = [True] if name == "gone" else [is_at_once, is_other_at_once]
    assert check(kstore, monkeypatch, root) == expected


def test_log_larger_than_one_read_is_opened(kstore, monkeypatch, tmp_path):
    parts = batches(0, 40, value_bytes=2000)
    directory = write_partition(tmp_path, [parts], layout=Layout(is_closed=False))
    assert check(kstore, monkeypatch, directory) == [False]


@pytest.mark.parametrize(("offset", "is_at_once"), [(3, True), (4, False)])
def test_durable_point_above_the_end_is_a_loss_after_a_crash(kstore, monkeypatch, tmp_path, offset, is_at_once):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 3)]]})
    (root / ".kafka_cleanshutdown").unlink()
    with DurablePointFile(str(root / "t-0")) as file:
        file.advance(DurablePoint(offset, 0, len(batch(0, 3))))
    assert check(kstore, monkeypatch, root) == [is_at_once]
    assert ("was flushed up to offset 4" in kstore("ls", root).err) == (not is_at_once)


def test_segment_that_appears_during_the_look_is_listed(kstore, monkeypatch, tmp_path):
    directory = write_partition(tmp_path, [[batch(0, 3)]])
    os.utime(directory, (1, 1))
    listdir = LocalEnv.listdir
    rolls = iter([None, batch(3, 2)])

    def rolled(env, path):
        names = listdir(env, path)
        rolled = next(rolls, None)
        if rolled:
            write_segment(directory, [rolled])
        return names

    monkeypatch.setattr(LocalEnv, "listdir", rolled)
    (shown,) = kstore("ls", "--json", directory).objects()
    assert (shown["segments"], shown["log_end_offset"]) == (2, 5)


def test_log_that_is_being_written_is_said_nothing_of(kstore, monkeypatch, tmp_path):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 3)]]}, high_watermarks={"t-0": 9})
    assert check(kstore, monkeypatch, root) == [False]
    assert "high watermark" in kstore("ls", root).err
    monkeypatch.setattr("kstore.env.LocalEnv.is_locked", lambda *_: True)
    assert check(kstore, monkeypatch, root) == [False]
    assert kstore("ls", root).err == ""
