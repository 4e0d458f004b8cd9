"""Goal: the durable point is never beyond the truth: not after any cut of its writes, nor after damage to its file.
Method: real files; each prefix of the writes, each flipped bit; an Env that notes writes and syncs and fails."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.env import LocalEnv, WriteFile
from kstore.errors import StorageError
from kstore.log.files.durable_point import (
    SLOT_BYTES,
    DurablePoint,
    DurablePointFile,
    decode_slot,
    encode_slot,
    remove_durable_point,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

NAME = "kstore-durable-point"
EARLY, MIDDLE, LATE = DurablePoint(10, 0, 700), DurablePoint(25, 0, 1800), DurablePoint(25, 25, 0)
NOTHING = DurablePoint(0, 0, 0)


def reread(directory: Path) -> DurablePoint | None:
    return DurablePointFile(str(directory)).read()


def test_no_file_is_no_point_and_none_is_made(tmp_path: Path) -> None:
    DurablePointFile(str(tmp_path)).close()
    assert reread(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_last_point_is_read_back(tmp_path: Path) -> None:
    file = DurablePointFile(str(tmp_path))
    for point in (EARLY, MIDDLE, LATE):
        file.advance(point)
        assert file.read() == reread(tmp_path) == point
    file.close()
    again = DurablePointFile(str(tmp_path))
    again.advance(DurablePoint(40, 25, 900))
    again.close()
    again.close()
    assert reread(tmp_path) == DurablePoint(40, 25, 900)
    assert (tmp_path / NAME).stat().st_size == 2 * SLOT_BYTES


@pytest.mark.parametrize("point", [EARLY, MIDDLE], ids=["earlier", "same"])
def test_advance_never_goes_back(tmp_path: Path, point: DurablePoint) -> None:
    file = DurablePointFile(str(tmp_path))
    file.advance(MIDDLE)
    file.advance(point)
    assert reread(tmp_path) == MIDDLE


@pytest.mark.parametrize("damaged", range(2 * SLOT_BYTES))
def test_damaged_slot_leaves_the_other_point(tmp_path: Path, damaged: int) -> None:
    file = DurablePointFile(str(tmp_path))
    file.advance(EARLY)
    file.advance(MIDDLE)
    file.close()
    content = bytearray((tmp_path / NAME).read_bytes())
    for bit in range(8):
        content[damaged] ^= 1 << bit
        (tmp_path / NAME).write_bytes(content)
        assert reread(tmp_path) == (EARLY if damaged < SLOT_BYTES else MIDDLE)
        content[damaged] ^= 1 << bit


NO_POINTS = [
    pytest.param(b"", id="empty"),
    pytest.param(bytes(64), id="zeros"),
    pytest.param(b"\xff" * 64, id="ones"),
    pytest.param(encode_slot(EARLY, counter=1)[:-1], id="short"),
    pytest.param(encode_slot(EARLY, counter=0), id="no-counter"),
    pytest.param(encode_slot(EARLY, counter=-1), id="negative-counter"),
    pytest.param(encode_slot(DurablePoint(-1, 0, 0), counter=1), id="negative-offset"),
    pytest.param(encode_slot(DurablePoint(5, 6, 0), counter=1), id="segment-behind-the-offset"),
    pytest.param(encode_slot(DurablePoint(5, -1, 0), counter=1), id="negative-segment"),
    pytest.param(encode_slot(DurablePoint(5, 0, -1), counter=1), id="negative-position"),
]


@pytest.mark.parametrize("content", NO_POINTS)
def test_what_is_no_slot_tells_nothing_and_is_written_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    file = DurablePointFile(str(tmp_path))
    assert file.read() is None
    file.advance(EARLY)
    assert reread(tmp_path) == EARLY


@pytest.mark.parametrize(
    "point", [DurablePoint(-1, 0, 0), DurablePoint(5, 6, 0), DurablePoint(5, 0, -1), DurablePoint(2**63, 0, 0)]
)
def test_impossible_point_is_refused(tmp_path: Path, point: DurablePoint) -> None:
    file = DurablePointFile(str(tmp_path))
    for call in (file.advance, file.lower):
        with pytest.raises(ValueError, match="durable point"):
            call(point)


@given(
    st.integers(1, 2**63 - 1),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)),
    st.integers(0, 2**31 - 1),
)
def test_slot_holds_every_possible_point(counter: int, offsets: tuple[int, int], position: int) -> None:
    point = DurablePoint(max(offsets), min(offsets), position)
    slot = encode_slot(point, counter=counter)
    assert len(slot) == SLOT_BYTES
    assert decode_slot(slot) == (counter, point)


class StepsEnv(LocalEnv):
    """Notes writes and syncs, and fails from a number of them on."""

    def __init__(self, steps_left: int = 1000) -> None:
        self.steps: list[str] = []
        self.steps_left = steps_left

    def step(self, name: str) -> None:
        if self.steps_left == 0:
            raise StorageError(f"{name} failed", errno=errno.EIO)
        self.steps_left -= 1
        self.steps.append(name)

    def open_write(self, path: str) -> WriteFile:
        return StepsFile(super().open_write(path), self)

    def sync_directory(self, path: str) -> None:
        self.step("sync directory")
        super().sync_directory(path)


class StepsFile(WriteFile):
    def __init__(self, file: WriteFile, env: StepsEnv) -> None:
        super().__init__(file.fileno(), path=file.path, is_new=file.is_new)
        self._env = env

    def pwrite(self, data: Buffer, *, position: int) -> None:
        self._env.step(f"write {position}")
        super().pwrite(data, position=position)

    def sync(self) -> None:
        self._env.step("sync")
        super().sync()


def test_lowering_writes_both_slots_before_its_sync(tmp_path: Path) -> None:
    env = StepsEnv()
    file = DurablePointFile(str(tmp_path), env)
    file.advance(EARLY)
    file.advance(LATE)
    env.steps.clear()
    file.lower(DurablePoint(20, 0, 1500))
    assert sorted(env.steps[:2]) == ["write 0", "write 32"]
    assert env.steps[2:] == ["sync"]
    slots = (tmp_path / NAME).read_bytes()
    assert {decode_slot(slots[:32])[1], decode_slot(slots[32:])[1]} == {(20, 0, 1500)}
    file.advance(MIDDLE)
    assert reread(tmp_path) == MIDDLE


@pytest.mark.parametrize("point", [MIDDLE, LATE], ids=["same", "beyond"])
def test_lowering_to_what_is_not_below_writes_nothing(tmp_path: Path, point: DurablePoint) -> None:
    env = StepsEnv()
    file = DurablePointFile(str(tmp_path), env)
    file.lower(point)
    assert env.steps == []
    file.advance(MIDDLE)
    file.lower(point)
    assert env.steps == ["write 32"]
    assert file.read() == MIDDLE


@pytest.mark.parametrize("steps", range(3))
def test_failed_lowering_raises_and_leaves_the_old_point_or_the_new(tmp_path: Path, steps: int) -> None:
    with_points = DurablePointFile(str(tmp_path))
    with_points.advance(EARLY)
    with_points.advance(LATE)
    file = DurablePointFile(str(tmp_path), StepsEnv(steps))
    with pytest.raises(StorageError, match="failed"):
        file.lower(NOTHING)
    assert reread(tmp_path) == (LATE if steps == 0 else NOTHING)


def test_failed_advance_is_logged_and_leaves_the_older_point(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    env = StepsEnv(1)
    file = DurablePointFile(str(tmp_path), env)
    file.advance(EARLY)
    file.advance(LATE)
    assert "older durable point: write 0 failed" in caplog.text
    assert file.read() == reread(tmp_path) == EARLY
    env.steps_left = 1
    file.advance(LATE)
    assert file.read() == reread(tmp_path) == LATE


def test_removed_file_leaves_no_point(tmp_path: Path) -> None:
    env = StepsEnv()
    with DurablePointFile(str(tmp_path), env) as file:
        file.advance(LATE)
    remove_durable_point(str(tmp_path), env)
    assert env.steps[-1] == "sync directory"
    assert (reread(tmp_path), list(tmp_path.iterdir())) == (None, [])
    steps = len(env.steps)
    remove_durable_point(str(tmp_path), env)
    assert len(env.steps) == steps


def test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to("/etc/hostname")
    with pytest.raises(StorageError, match="cannot open"):
        DurablePointFile(str(tmp_path))
