"""Goal: partitions are found by any sensible path, and any other path gets one error that says what is there.
Method: folders laid out in a temporary directory, right, retired, nested and misleading."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.env import FileStatus, LocalEnv
from kstore.errors import LogNotFoundError, StorageError
from kstore.log.files.names import find_partition, find_partitions, partitions_of_root
from kstore.types import TopicPartition

SEGMENT = "00000000000000000000.log"
UUID = "0123456789abcdef0123456789abcdef"


def make_partition(root: Path, name: str, *, segment: str | None = SEGMENT) -> Path:
    directory = root / name
    directory.mkdir(parents=True)
    if segment is not None:
        (directory / segment).touch()
    (directory / "partition.metadata").touch()
    return directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for name in ("b-1", "a-10", "a-2", "a-b-0"):
        make_partition(root, name)
    make_partition(root, f"gone-0.{UUID}-delete")
    make_partition(root, f"lost-0.{UUID}-stray")
    make_partition(root, f"moving-0.{UUID}-future")
    (root / "meta.properties").touch()
    (root / "replication-offset-checkpoint").touch()
    (root / "file-0").touch()
    (root / "lost+found").mkdir()
    return root


def names(found: list[object]) -> list[str]:
    return [str(directory.topic_partition) for directory in found]


def test_root_gives_its_partitions_by_topic_and_number(root: Path) -> None:
    found = find_partitions(root)
    assert names(found) == ["a-2", "a-10", "a-b-0", "b-1"]
    assert found[0].topic_partition == TopicPartition("a", 2)
    assert (found[0].path, found[0].root) == (str(root / "a-2"), str(root))


def test_partition_directory_gives_itself(root: Path) -> None:
    assert find_partitions(root / "a-2") == [find_partition(root / "a-2")]
    assert find_partition(root / "a-2")[:3] == (("a", 2), str(root / "a-2"), str(root))


def test_paths_may_be_relative_or_end_in_a_slash(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    expected = find_partition(root / "a-2")
    assert find_partition("a-2") == find_partition("a-2/") == find_partition("./a-2/.") == expected
    assert find_partitions(".") == find_partitions(f"{root}/") == find_partitions(root)
    monkeypatch.chdir(root / "a-2")
    assert find_partition(".") == expected


def test_list_mixes_roots_and_partitions(root: Path, tmp_path: Path) -> None:
    other = make_partition(tmp_path / "elsewhere", "c-0")
    assert names(find_partitions([other, root])) == ["a-2", "a-10", "a-b-0", "b-1", "c-0"]
    assert names(find_partitions((str(root / "b-1"), root / "a-2"))) == ["a-2", "b-1"]


def test_same_directory_reached_twice_counts_once(root: Path) -> None:
    assert find_partitions([root, root / "a-2", f"{root}/a-2/"]) == find_partitions(root)


def test_same_partition_in_two_places_is_refused_naming_both(root: Path, tmp_path: Path) -> None:
    other = make_partition(tmp_path / "copy", "a-2")
    with pytest.raises(StorageError) as caught:
        find_partitions([root, tmp_path / "copy"])
    assert all(part in str(caught.value) for part in ("a-2 found twice", str(root / "a-2"), str(other)))


def test_no_paths_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one directory"):
        find_partitions([])


def test_empty_directory_named_like_a_partition_is_an_empty_partition(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, "t-0", segment=None)
    assert find_partition(directory).topic_partition == ("t", 0)


class DeletingEnv(LocalEnv):
    """Removes a directory just before the second stat of it, or before it is listed."""

    def __init__(self, directory: Path, moment: str) -> None:
        self._directory = directory
        self._moment = moment
        self._stats = 0

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        if path == str(self._directory):
            self._stats += 1
            if self._moment == "stat" and self._stats == 2:
                shutil.rmtree(path)
        return super().stat(path, follow_symlinks=follow_symlinks)

    def listdir(self, path: str) -> list[str]:
        if path == str(self._directory):
            shutil.rmtree(path)
        return super().listdir(path)


@pytest.mark.parametrize("moment", ["stat", "listdir"])
def test_partition_that_is_deleted_while_its_root_is_listed_is_left_out(root: Path, moment: str) -> None:
    for directory, find in ((root / "a-2", find_partitions), (root / "a-10", partitions_of_root)):
        kept = [name for name in names(find_partitions(root)) if name != directory.name]
        assert names(find(str(root), DeletingEnv(directory, moment))) == kept


def test_root_whose_only_partition_is_deleted_while_it_is_listed_has_none(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, "t-0")
    with pytest.raises(LogNotFoundError, match=r"neither a partition directory nor a log\.dirs root"):
        find_partitions(tmp_path, DeletingEnv(directory, "stat"))
    directory = make_partition(tmp_path, "t-0")
    assert partitions_of_root(str(tmp_path), DeletingEnv(directory, "stat")) == []


@pytest.mark.parametrize("find", [find_partition, find_partitions, partitions_of_root])
def test_directory_that_is_deleted_before_it_is_listed_is_not_found(
    tmp_path: Path, find: Callable[..., object]
) -> None:
    directory = make_partition(tmp_path, "t-0")
    with pytest.raises(LogNotFoundError, match="no such directory") as caught:
        find(str(directory), DeletingEnv(directory, "listdir"))
    assert (caught.value.path, caught.value.errno) == (str(directory), errno.ENOENT)


def test_root_named_like_a_partition_is_a_root(tmp_path: Path) -> None:
    root = tmp_path / "kafka-logs-1"
    make_partition(root, "t-0")
    assert names(find_partitions(root)) == ["t-0"]
    with pytest.raises(LogNotFoundError, match=r"is a log\.dirs root.*t-0"):
        find_partition(root)


def test_folder_of_roots_is_refused_naming_them(tmp_path: Path) -> None:
    make_partition(tmp_path / "kafka-logs-1", "t-0")
    make_partition(tmp_path / "kafka-logs-2", "t-1")
    with pytest.raises(LogNotFoundError, match=r"pass them instead.*kafka-logs-1, kafka-logs-2"):
        find_partitions(tmp_path)


def test_segments_in_a_directory_of_another_name_are_explained(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, "backup")
    with pytest.raises(LogNotFoundError, match=r"name is not that of a partition.*<topic>-<partition>"):
        find_partitions(directory)


@pytest.mark.parametrize("state", ["delete", "stray", "future"])
def test_retired_directory_is_explained(tmp_path: Path, state: str) -> None:
    directory = make_partition(tmp_path, f"t-0.{UUID}-{state}")
    with pytest.raises(LogNotFoundError, match=f"a broker marked it -{state}"):
        find_partition(directory)


def make_nothing(path: Path) -> None:
    pass


WRONG_PLACES = [
    pytest.param(make_nothing, "no such directory", errno.ENOENT, id="missing"),
    pytest.param(Path.touch, "not a directory", errno.ENOTDIR, id="file"),
    pytest.param(Path.mkdir, "neither a partition directory nor", errno.EINVAL, id="empty-directory"),
]


@pytest.mark.parametrize(("make", "message", "number"), WRONG_PLACES)
def test_path_without_a_log_is_one_clear_error(tmp_path: Path, make: object, message: str, number: int) -> None:
    path = tmp_path / "place"
    make(path)
    for find in (find_partition, find_partitions):
        with pytest.raises(LogNotFoundError, match=message) as caught:
            find(path)
        assert (caught.value.path, caught.value.errno) == (str(path), number)
        assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("segment", [f"{SEGMENT}.deleted", f"{SEGMENT}.swap", "0.log", "00000000000000000000.index"])
def test_files_that_are_no_live_segment_make_no_partition(tmp_path: Path, segment: str) -> None:
    directory = make_partition(tmp_path, "backup", segment=segment)
    with pytest.raises(LogNotFoundError, match="neither"):
        find_partitions(directory)


def test_linked_partition_directories_are_followed(root: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "a-2").symlink_to(root / "a-2")
    assert [directory.path for directory in find_partitions(linked)] == [str(linked / "a-2")]


def test_many_names_are_shortened_in_the_message(tmp_path: Path) -> None:
    for number in range(20):
        make_partition(tmp_path, f"t-{number}")
    with pytest.raises(LogNotFoundError, match=r"t-0, t-1, t-10, \.\.\. 20 in all"):
        find_partition(tmp_path)


def test_partitions_of_a_root_are_those_of_it_alone(tmp_path: Path) -> None:
    assert partitions_of_root(str(tmp_path)) == []
    for name in ("b-1", "b-0", "a-0", "a-0.0123456789abcdef0123456789abcdef-delete", "kafka-logs-1/x-0"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "c-0").touch()
    found = partitions_of_root(str(tmp_path))
    assert [(str(one.topic_partition), one.path, one.root) for one in found] == [
        (name, str(tmp_path / name), str(tmp_path)) for name in ("a-0", "b-0", "b-1")
    ]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        pytest.param(["00000000000000000000.log"], "holds segments", id="partition"),
        pytest.param(["kafka-logs-1/x-0"], "pass one of them", id="root-of-roots"),
    ],
)
def test_directory_that_is_no_root_has_no_partitions(tmp_path: Path, names: list[str], reason: str) -> None:
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(LogNotFoundError, match=reason):
        partitions_of_root(str(tmp_path))
    with pytest.raises(LogNotFoundError, match="no such directory"):
        partitions_of_root(str(tmp_path / "missing"))
