"""Goal: checkpoint files are read and written exactly, and anything that breaks their form is refused with its line.
Method: small texts, right and wrong; replaced files for what is kept."""

from __future__ import annotations

from pathlib import Path
from weakref import ref

import pytest

from kstore.env import DEFAULT_ENV, LocalEnv
from kstore.errors import CorruptCheckpointError, StorageError
from kstore.log.files import checkpoints
from kstore.log.files.checkpoints import (
    EpochEntry,
    OffsetCheckpoints,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
)
from kstore.types import TopicPartition


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replication-offset-checkpoint"


RIGHT_OFFSETS = [
    pytest.param("", {}, id="empty-file"),
    pytest.param("0\n", {}, id="version-alone"),
    pytest.param("0\n0\n", {}, id="no-entries"),
    pytest.param("0\n1\nt 0 5\n", {("t", 0): 5}, id="one"),
    pytest.param("0\n1\nt 0 5", {("t", 0): 5}, id="no-newline-at-the-end"),
    pytest.param("0\r\n2\r\nt 0 5\r\nt 1 0\r\n", {("t", 0): 5, ("t", 1): 0}, id="windows-newlines"),
    pytest.param("0\n1\na-b 2147483647 9223372036854775807\n", {("a-b", 2**31 - 1): 2**63 - 1}, id="largest"),
    pytest.param("0\n1\nt\t0  5\n", {("t", 0): 5}, id="any-blanks"),
]


@pytest.mark.parametrize(("text", "expected"), RIGHT_OFFSETS)
def test_offset_checkpoint_is_read(path: Path, text: str, expected: dict[tuple[str, int], int]) -> None:
    path.write_text(text, newline="")
    assert read_offset_checkpoint(str(path)) == expected


WRONG_OFFSETS = [
    pytest.param("1\n0\n", "expected version 0, found 1", id="version"),
    pytest.param("x\n0\n", "line 1", id="version-no-number"),
    pytest.param("0\nmany\n", "line 2", id="count-no-number"),
    pytest.param("0\n-1\n", "line 2", id="negative-count"),
    pytest.param("0\n2\nt 0 5\n", "expected 2 entries, found 1", id="too-few"),
    pytest.param("0\n1\nt 0 5\nt 1 5\n", "expected 1 entries, found 2", id="too-many"),
    pytest.param("0\n1\nt 0\n", "line 3: expected 3 fields, found 2", id="field-missing"),
    pytest.param("0\n1\nt 0 5 6\n", "line 3: expected 3 fields, found 4", id="field-too-many"),
    pytest.param("0\n2\nt 0 5\n\n", "line 4: expected 3 fields, found 0", id="blank-line"),
    pytest.param("0\n1\nt x 5\n", "line 3", id="partition"),
    pytest.param("0\n1\nt 0 -5\n", "line 3", id="negative-offset"),
    pytest.param("0\n1\nt 0 9223372036854775808\n", "line 3", id="offset-too-large"),
    pytest.param("0\n1\nt 0 " + "9" * 5000, "line 3", id="endless-number"),
    pytest.param("0\n1\nt 2147483648 5\n", "line 3", id="partition-too-large"),
    pytest.param("0\n1\n../t 0 5\n", "line 3: expected a topic name", id="topic"),
    pytest.param("0\n1\nt \N{ARABIC-INDIC DIGIT THREE} 5\n", "line 3", id="other-digits"),
    pytest.param("\x00" * 64, "line 1", id="zeros"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG_OFFSETS)
def test_malformed_offset_checkpoint_is_refused_with_the_line(path: Path, text: str, reason: str) -> None:
    path.write_text(text, newline="")
    with pytest.raises(CorruptCheckpointError, match=reason) as caught:
        read_offset_checkpoint(str(path))
    assert caught.value.path == str(path)
    assert len(str(caught.value)) < 400


def test_checkpoint_that_is_not_utf8_is_refused(path: Path) -> None:
    path.write_bytes(b"0\n1\nt\xff 0 5\n")
    with pytest.raises(CorruptCheckpointError, match="not UTF-8"):
        read_offset_checkpoint(str(path))


def test_an_env_whose_checkpoints_are_kept_is_let_go_with_them(path: Path) -> None:
    path.write_text("0\n1\nt 0 5\n")
    env = LocalEnv()
    assert checkpoints.checkpoints_of(env).offsets(str(path)) == {("t", 0): 5}
    held = ref(env)
    del env
    assert held() is None


def test_missing_checkpoint_is_none(path: Path) -> None:
    assert read_offset_checkpoint(str(path)) is None
    assert read_leader_epoch_checkpoint(str(path)) is None


def test_checkpoint_beyond_the_size_limit_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MAX_CHECKPOINT_BYTES", 10)
    path.write_text("0\n1\nt 0 55\n")
    with pytest.raises(CorruptCheckpointError, match="larger than the limit of 10 bytes"):
        read_offset_checkpoint(str(path))


def test_link_in_place_of_a_checkpoint_is_a_storage_error(path: Path) -> None:
    path.symlink_to("/etc/hostname")
    with pytest.raises(StorageError):
        read_offset_checkpoint(str(path))


def test_leader_epoch_checkpoint_is_read(path: Path) -> None:
    path.write_text("0\n2\n0 0\n4 156\n")
    assert read_leader_epoch_checkpoint(str(path)) == [(0, 0), (4, 156)]


@pytest.mark.parametrize("text", ["0\n1\n0\n", "0\n1\n0 0 0\n", "0\n1\n2147483648 0\n", "0\n1\n-1 0\n", "0\n2\n0 0\n"])
def test_malformed_leader_epoch_checkpoint_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_leader_epoch_checkpoint(str(path))


WRITTEN_OFFSETS = [
    pytest.param({}, b"0\n0\n", id="none"),
    pytest.param({("t", 0): 5}, b"0\n1\nt 0 5\n", id="one"),
    pytest.param({("z", 1): 0, ("a-b", 2): 7}, b"0\n2\nz 1 0\na-b 2 7\n", id="in-the-order-given"),
    pytest.param({("t", 2**31 - 1): 2**63 - 1}, b"0\n1\nt 2147483647 9223372036854775807\n", id="largest"),
]


@pytest.mark.parametrize(("offsets", "expected"), WRITTEN_OFFSETS)
def test_offset_checkpoint_is_written_as_kafka_does(
    path: Path, offsets: dict[tuple[str, int], int], expected: bytes
) -> None:
    named = {TopicPartition(*name): offset for name, offset in offsets.items()}
    write_offset_checkpoint(str(path), named)
    assert path.read_bytes() == expected
    assert read_offset_checkpoint(str(path)) == offsets
    write_offset_checkpoint(str(path), {})
    assert path.read_bytes() == b"0\n0\n"


UNWRITABLE_OFFSETS = [
    pytest.param(("t", 0), -1, id="negative-offset"),
    pytest.param(("t", 0), 2**63, id="offset-too-large"),
    pytest.param(("t", -1), 0, id="negative-partition"),
    pytest.param(("t", 2**31), 0, id="partition-too-large"),
    pytest.param(("t 1", 0), 0, id="topic-with-a-blank"),
    pytest.param(("t\n", 0), 0, id="topic-with-a-newline"),
    pytest.param(("", 0), 0, id="no-topic"),
]


@pytest.mark.parametrize(("name", "offset"), UNWRITABLE_OFFSETS)
def test_entry_that_could_not_be_read_back_is_not_written(path: Path, name: tuple[str, int], offset: int) -> None:
    path.write_text("0\n0\n")
    with pytest.raises(ValueError, match="expected"):
        write_offset_checkpoint(str(path), {TopicPartition(*name): offset})
    assert path.read_text() == "0\n0\n"


def test_leader_epoch_checkpoint_is_written_as_kafka_does(path: Path) -> None:
    entries = [EpochEntry(0, 0), EpochEntry(2**31 - 1, 2**63 - 1)]
    write_leader_epoch_checkpoint(str(path), entries)
    assert path.read_bytes() == b"0\n2\n0 0\n2147483647 9223372036854775807\n"
    assert read_leader_epoch_checkpoint(str(path)) == entries


@pytest.mark.parametrize("entry", [(-1, 0), (2**31, 0), (0, -1), (0, 2**63)])
def test_epoch_that_could_not_be_read_back_is_not_written(path: Path, entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected a number"):
        write_leader_epoch_checkpoint(str(path), [EpochEntry(*entry)])
    assert not path.exists()


def test_kept_checkpoint_is_parsed_once_and_read_again_when_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    def counted(path: str, env: object) -> object:
        reads.append(path)
        return read_offset_checkpoint(path)

    monkeypatch.setattr(checkpoints, "read_offset_checkpoint", counted)
    kept = OffsetCheckpoints(DEFAULT_ENV)
    assert kept.offsets(str(path)) is None
    path.write_text("0\n1\nt 0 5\n")
    assert kept.offsets(str(path)) == kept.offsets(str(path)) == {TopicPartition("t", 0): 5}
    assert len(reads) == 1
    replacement = path.with_suffix(".tmp")
    replacement.write_text("0\n1\nt 0 6\n")
    replacement.rename(path)
    assert kept.offsets(str(path)) == {TopicPartition("t", 0): 6}
    path.unlink()
    assert kept.offsets(str(path)) is None


def test_few_checkpoints_are_kept(tmp_path: Path) -> None:
    kept = OffsetCheckpoints(DEFAULT_ENV)
    for number in range(3 * checkpoints.MAX_CHECKPOINTS_KEPT):
        path = tmp_path / str(number)
        path.write_text(f"0\n1\nt 0 {number}\n")
        assert kept.offsets(str(path)) == {("t", 0): number}
    assert len(kept._kept) <= checkpoints.MAX_CHECKPOINTS_KEPT
