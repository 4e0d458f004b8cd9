"""Goal: a file is replaced as a whole and durably, and a failure at any step leaves the old content or the new.
Method: real files; an Env that notes each call and fails at one of them."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.env import LocalEnv, WriteFile
from kstore.errors import StorageError
from kstore.log.files.checkpoints import replace_file

if TYPE_CHECKING:
    from typing_extensions import Buffer

STEPS = ["open", "write", "sync", "rename", "sync directory"]


class StepsEnv(LocalEnv):
    """Notes the steps of a replacement, and fails at one."""

    def __init__(self, failing: str | None = None) -> None:
        self.steps: list[str] = []
        self.failing = failing

    def step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.failing:
            raise StorageError(f"{name} failed", errno=errno.EIO)

    def open_write(self, path: str) -> WriteFile:
        self.step("open")
        return StepsFile(super().open_write(path), self)

    def rename(self, source: str, target: str) -> None:
        self.step("rename")
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        self.step("sync directory")
        super().sync_directory(path)


class StepsFile(WriteFile):
    def __init__(self, file: WriteFile, env: StepsEnv) -> None:
        super().__init__(file.fileno(), path=file.path, is_new=file.is_new)
        self._env = env

    def pwrite(self, data: Buffer, *, position: int) -> None:
        self._env.step("write")
        super().pwrite(data, position=position)

    def sync(self) -> None:
        self._env.step("sync")
        super().sync()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replication-offset-checkpoint"


def replace(path: Path, content: bytes, env: LocalEnv) -> None:
    replace_file(str(path), content, env)


@pytest.mark.parametrize("old", [None, b"", b"older and longer"])
def test_content_is_synced_before_it_gets_the_name_and_the_name_last(path: Path, old: bytes | None) -> None:
    if old is not None:
        path.write_bytes(old)
    env = StepsEnv()
    replace(path, b"new", env)
    assert env.steps == STEPS
    assert {name.name: name.read_bytes() for name in path.parent.iterdir()} == {path.name: b"new"}


@pytest.mark.parametrize("failing", STEPS)
def test_failure_leaves_the_old_content_or_the_new_and_nothing_beside_it(path: Path, failing: str) -> None:
    path.write_bytes(b"old")
    with pytest.raises(StorageError, match=failing):
        replace(path, b"new", StepsEnv(failing))
    expected = b"new" if failing == "sync directory" else b"old"
    assert {name.name: name.read_bytes() for name in path.parent.iterdir()} == {path.name: expected}


def test_rest_of_an_interrupted_replacement_is_overwritten(path: Path) -> None:
    path.with_name(path.name + ".tmp").write_bytes(b"a longer rest of the time before")
    replace(path, b"new", LocalEnv())
    assert path.read_bytes() == b"new"


def test_link_in_place_of_the_file_beside_it_is_not_followed(path: Path) -> None:
    victim = path.with_name("victim")
    victim.write_bytes(b"keep")
    path.with_name(path.name + ".tmp").symlink_to(victim)
    with pytest.raises(StorageError):
        replace(path, b"new", LocalEnv())
    assert victim.read_bytes() == b"keep"
