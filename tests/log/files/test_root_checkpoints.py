"""Goal: the checkpoints of a root are changed for some logs without losing what they say of others, or a log's start.
Method: small roots; threads that save at once; files read back with the checkpoints' own reader."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kstore.env import DEFAULT_ENV, FileStatus, LocalEnv
from kstore.log.files.checkpoints import (
    PartitionMarks,
    checkpoints_of,
    read_checkpoint,
    read_offset_checkpoint,
    save_marks,
    save_offset,
    write_offset_checkpoint,
)
from kstore.types import TopicPartition

T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
RECOVERY, START, WATERMARK = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)


def offsets(root: Path, name: str) -> dict[TopicPartition, int] | None:
    return read_offset_checkpoint(str(root / name))


def marks(*, start: int = 0, end: int = 100) -> PartitionMarks:
    return PartitionMarks(recovery_point=90, log_start_offset=start, high_watermark=95, log_end_offset=end)


def save(root: Path, saved: dict[TopicPartition, PartitionMarks], *, kept: set[TopicPartition] | None = None) -> None:
    save_marks(str(root), lambda: saved, DEFAULT_ENV, kept={T0, T1} if kept is None else kept)


def test_marks_go_to_the_three_files_and_a_start_of_zero_to_none(tmp_path: Path) -> None:
    save(tmp_path, {T0: marks(start=7), T1: marks()})
    assert offsets(tmp_path, RECOVERY) == {T0: 90, T1: 90}
    assert offsets(tmp_path, WATERMARK) == {T0: 95, T1: 95}
    assert offsets(tmp_path, START) == {T0: 7}


@pytest.mark.parametrize("name", [RECOVERY, START, WATERMARK])
def test_other_logs_stay_and_those_that_are_gone_do_not(tmp_path: Path, name: str) -> None:
    write_offset_checkpoint(str(tmp_path / name), {GONE: 5, T1: 6})
    save(tmp_path, {T0: marks(start=7)})
    found = offsets(tmp_path, name)
    assert found is not None
    assert (found.get(GONE), found.get(T1)) == (None, 6)
    assert T0 in found


SAVED_STARTS = [
    pytest.param(None, 10, 10, id="none-saved"),
    pytest.param(10, 10, 10, id="the-same"),
    pytest.param(20, 10, 20, id="moved-on-since"),
    pytest.param(100, 10, 100, id="moved-to-the-end-since"),
    pytest.param(101, 10, 10, id="of-a-log-that-was-cut"),
    pytest.param(5, 10, 5, id="below-the-first-segment-as-of-a-tiered-log"),
    pytest.param(0, 10, 0, id="zero-of-a-tiered-log"),
    pytest.param(5, 0, 5, id="first-saved-since"),
]


@pytest.mark.parametrize(("saved", "known", "expected"), SAVED_STARTS)
def test_start_that_was_saved_since_the_marks_were_taken_stays(
    tmp_path: Path, saved: int | None, known: int, expected: int
) -> None:
    if saved is not None:
        save_offset(str(tmp_path), START, T0, saved, DEFAULT_ENV)
    save(tmp_path, {T0: marks(start=known)})
    assert offsets(tmp_path, START) == {T0: expected}


def test_unchanged_checkpoints_are_not_written_again(tmp_path: Path) -> None:
    save(tmp_path, {T0: marks(start=7)})
    before = [(tmp_path / name).stat().st_ino for name in (RECOVERY, START, WATERMARK)]
    save(tmp_path, {T0: marks(start=7)})
    save_offset(str(tmp_path), START, T0, 7, DEFAULT_ENV)
    assert [(tmp_path / name).stat().st_ino for name in (RECOVERY, START, WATERMARK)] == before


def test_malformed_checkpoint_tells_nothing_and_is_written_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / START).write_bytes(bytes(30))
    assert read_checkpoint(str(tmp_path), START, DEFAULT_ENV) == {}
    assert START in caplog.text
    save_offset(str(tmp_path), START, T0, 3, DEFAULT_ENV)
    assert offsets(tmp_path, START) == {T0: 3}


def test_threads_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    def save_some(first: int) -> None:
        for number in range(first, 40, 8):
            save_offset(str(tmp_path), START, TopicPartition("t", number), number + 1, DEFAULT_ENV)

    threads = [threading.Thread(target=save_some, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert offsets(tmp_path, START) == {TopicPartition("t", number): number + 1 for number in range(40)}


class CoarseEnv(LocalEnv):
    """A file system on which every file looks the same as the one before it."""

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        found = super().stat(path, follow_symlinks=follow_symlinks)
        return None if found is None else FileStatus(found.kind, 0, (0, 0, 0))


def test_checkpoint_that_was_written_is_read_again_however_coarse_the_times_of_files_are(tmp_path: Path) -> None:
    env = CoarseEnv()
    for offset in (3, 4):
        save_offset(str(tmp_path), START, T0, offset, env)
        assert read_checkpoint(str(tmp_path), START, env) == {T0: offset}


class LookingEnv(LocalEnv):
    """Counts the looks at paths."""

    looks = 0

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        self.looks += 1
        return super().stat(path, follow_symlinks=follow_symlinks)


@pytest.mark.parametrize("is_there", [False, True])
def test_checkpoint_of_a_root_that_is_held_is_looked_at_once(tmp_path: Path, is_there: bool) -> None:
    env, root, expected = LookingEnv(), str(tmp_path), {T0: 3} if is_there else {}
    if is_there:
        save_offset(root, START, T0, 3, env)
    env.looks = 0
    with checkpoints_of(env).held(root):
        assert [read_checkpoint(root, START, env) for _ in range(3)] == [expected] * 3
        assert env.looks == 1
        read_checkpoint(str(tmp_path / "another"), START, env)
        read_checkpoint(str(tmp_path / "another"), START, env)
        assert env.looks == 3
    read_checkpoint(root, START, env)
    assert env.looks == 4


@pytest.mark.parametrize("is_there", [False, True])
def test_checkpoint_that_is_written_while_its_root_is_held_is_read_again(tmp_path: Path, is_there: bool) -> None:
    env, root = LocalEnv(), str(tmp_path)
    if is_there:
        save_offset(root, START, T0, 3, env)
    with checkpoints_of(env).held(root):
        read_checkpoint(root, START, env)
        save_offset(root, START, T0, 4, env)
        assert read_checkpoint(root, START, env) == {T0: 4}
        save_offset(root, START, T1, 5, env)
        assert read_checkpoint(root, START, env) == {T0: 4, T1: 5}
