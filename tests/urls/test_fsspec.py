"""Goal: schemes that pyarrow does not know are read through fsspec.
Method: the flights in fsspec's memory, and in a file system there that remembers listings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import kstore
from kstore import open_log
from kstore.env import locate
from kstore.errors import LogNotFoundError
from kstore.record import Record
from kstore.store.store import open_store
from tests.urls.conftest import FLIGHTS


class RememberingFileSystem(MemoryFileSystem):
    """Answers from its first listing of a directory until it is told to forget it, as those of many servers do."""

    protocol = "remembering"
    cachable = True

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True)
        return self.dircache[path] if detail else sorted(one["name"] for one in self.dircache[path])

    def find(self, path: str, **options: Any) -> Any:
        return fsspec.AbstractFileSystem.find(self, path, **options)

    def info(self, path: str, **_options: Any) -> Any:
        path = self._strip_protocol(path)
        for one in self.ls(self._parent(path)):
            if one["name"] == path:
                return one
        raise FileNotFoundError(path)

    def invalidate_cache(self, path: str | None = None) -> None:
        del path
        self.dircache.clear()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        found: str = MemoryFileSystem._strip_protocol(path.replace("remembering://", "memory://"))
        return found


fsspec.register_implementation("remembering", RememberingFileSystem, clobber=True)


@pytest.fixture
def in_memory() -> Iterator[str]:
    memory = fsspec.filesystem("memory")
    for path in sorted(FLIGHTS.rglob("*")):
        if path.is_file():
            memory.pipe(f"/flights/{path.relative_to(FLIGHTS).as_posix()}", path.read_bytes())
    yield "memory://flights"
    memory.rm("/flights", recursive=True)


def test_files_of_fsspec_read_as_local_ones(in_memory: str) -> None:
    assert kstore.scan(in_memory).to_table() == kstore.scan(FLIGHTS).to_table()
    with open_log(f"{in_memory}/flights-lz4-1") as log, open_log(FLIGHTS / "flights-lz4-1") as local:
        assert log.log_end_offset == local.log_end_offset
        assert [one.value for one in log.read()] == [one.value for one in local.read()]
    assert kstore.verify(in_memory).is_unharmed


def test_missing_directory_of_fsspec_is_no_log() -> None:
    with pytest.raises(LogNotFoundError):
        open_log("memory://nowhere/t-0")


@pytest.fixture
def emptied() -> Iterator[None]:
    yield
    memory = fsspec.filesystem("memory")
    memory.rm("/root", recursive=True)


def grow(root: Path) -> None:
    with open_store(root, "a") as store:
        if "t" not in store.topics:
            store.create_topic("t", 1)
        store.log("t", 0).append([Record(offset=0, value=b"%d" % at) for at in range(50)])


def copy(root: Path, directory: str) -> None:
    memory = fsspec.filesystem("memory")
    for path in sorted(root.rglob("*")):
        if path.is_file():
            memory.pipe(f"{directory}/{path.relative_to(root).as_posix()}", path.read_bytes())


@pytest.mark.usefixtures("emptied")
@pytest.mark.parametrize("below", ["plain", "a%20b/c", "a b"])
def test_checkpoints_above_a_partition_count_whatever_the_names_are(tmp_path: Path, below: str) -> None:
    grow(tmp_path / "root")
    with open_store(tmp_path / "root", "a") as store:
        store.log("t", 0).delete_records(40)
    copy(tmp_path / "root", f"/root/{below}")
    for place in ("", "/t-0"):
        assert kstore.scan(f"memory://root/{below}{place}").to_table().num_rows == 10


@pytest.mark.usefixtures("emptied")
@pytest.mark.parametrize("url", ["memory:///root", "memory:/root"])
def test_url_without_a_host_is_read_from_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memory:").mkdir()
    grow(tmp_path / "memory:" / "local")
    grow(tmp_path / "root")
    copy(tmp_path / "root", "/root")
    assert kstore.scan(url).to_table().num_rows == 50
    env, path = locate(f"{url}/t-0")
    assert path == "memory:///root/t-0"
    assert locate(env.url_of(path)).path == path
    with pytest.raises(LogNotFoundError):
        kstore.scan("memory:///local")


@pytest.mark.usefixtures("emptied")
def test_file_system_that_remembers_listings_is_asked_again(tmp_path: Path) -> None:
    grow(tmp_path / "root")
    copy(tmp_path / "root", "/root")
    with open_log("remembering://root/t-0") as log:
        assert log.log_end_offset == 50
        grow(tmp_path / "root")
        copy(tmp_path / "root", "/root")
        assert log.refresh()
        assert [record.offset for record in log.read()] == list(range(100))
    grow(tmp_path / "root")
    copy(tmp_path / "root", "/root")
    assert kstore.scan("remembering://root").to_table().num_rows == 150
