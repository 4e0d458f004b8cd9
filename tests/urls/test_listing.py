"""Goal: a root of many objects is planned from one recursive listing, in bounded memory.
Method: a file system that lists without data and counts its calls; the listing beside sets and dicts."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from bench.listed_store import URL, ListedStore
from kstore.env.filesystems import ListedObject, Listing, RemoteFileSystem
from kstore.env.remote import RemoteEnv
from kstore.log.files.names import find_partitions, name_partitions
from kstore.store.opening import look_into, open_found

NAMES = st.text("abc.-0", min_size=1, max_size=3)


class ListedOnly(fs.FileSystemHandler):
    """Partitions of 20 objects each, of which nothing can be read."""

    def __init__(self, partitions: int) -> None:
        self.calls: list[str] = []
        self._infos = [
            fs.FileInfo(
                f"bucket/root/topic-{partition}/{segment:020d}{suffix}",
                type=fs.FileType.File,
                size=1_000_001,
                mtime_ns=10**18,
            )
            for partition in range(partitions)
            for segment in range(0, 70, 10)
            for suffix in (".log", ".index", ".timeindex")[: 3 if segment < 60 else 2]
        ]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        self.calls.append(f"list {selector.base_dir} {selector.recursive}")
        return self._infos

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        self.calls += [f"stat {path}" for path in paths]
        return [fs.FileInfo(path, type=fs.FileType.NotFound) for path in paths]

    def get_type_name(self) -> str:
        return "listed-only"

    def _refused(self, *_: Any) -> Any:
        raise NotImplementedError

    def normalize_path(self, path: str) -> str:
        return path

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refused
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _refused


def env_over(handler: ListedOnly) -> RemoteEnv:
    filesystem = RemoteFileSystem(fs.PyFileSystem(handler))
    return RemoteEnv(filesystem, url="x://bucket/root", root="x://bucket/root", key="bucket/root")


def planned(handler: ListedOnly) -> int:
    """Plan every partition as a whole scan does, and return how many bytes the ranges have."""
    directories = name_partitions(["x://bucket/root"], env_over(handler))
    found = 0
    for ranges in look_into(directories, lambda one: list(open_found(one)._scan_ranges())):
        found += sum(one.size_in_bytes for one in ranges)
    return found


def test_whole_scan_of_a_root_is_planned_from_one_listing() -> None:
    handler = ListedOnly(20)
    assert planned(handler) == 20 * 7 * 1_000_001
    assert handler.calls == ["list bucket/root True"]


def test_partitions_are_found_from_one_listing() -> None:
    handler = ListedOnly(20)
    assert len(find_partitions("x://bucket/root", env_over(handler))) == 20
    assert handler.calls == ["list bucket/root True"]


@pytest.mark.long
def test_200_000_objects_in_10_000_partitions_are_planned_from_one_listing_in_bounded_memory() -> None:
    handler = ListedOnly(10_000)
    tracemalloc.start()
    try:
        assert planned(handler) == 10_000 * 7 * 1_000_001
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert handler.calls == ["list bucket/root True"]
    assert most < 200 * 1024 * 1024


@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=4).map("/".join), st.integers(0, 10**12), max_size=12))
def test_listing_gives_back_what_was_listed(sizes: dict[str, int]) -> None:
    listing = Listing.of((path, ListedObject(size, size + 1)) for path, size in sizes.items())
    directories = {"/".join(path.split("/")[:depth]) for path in sizes for depth in range(path.count("/") + 1)}
    for directory in directories | {"", "nothing"}:
        inner = {
            path[len(directory) + 1 if directory else 0 :]
            for path in sizes
            if not directory or path.startswith(f"{directory}/")
        }
        assert listing.names(directory) == sorted({name.partition("/")[0] for name in inner})
        assert listing.is_directory(directory) == bool(inner)
        assert listing.objects(directory) == {
            name: ListedObject(size, size + 1)
            for path, size in sizes.items()
            for parent, _, name in (path.rpartition("/"),)
            if parent == directory
        }


@given(st.dictionaries(NAMES, st.integers(0, 10**12), max_size=12), NAMES)
def test_object_is_found_by_its_name(sizes: dict[str, int], other: str) -> None:
    listing = Listing.of((name, ListedObject(size, 1)) for name, size in sizes.items())
    for name in (*sizes, other):
        assert listing.object("", name) == (ListedObject(sizes[name], 1) if name in sizes else None)


def test_names_of_a_root_are_listed_without_what_is_below_them() -> None:
    store = ListedStore(60, per_partition=20)
    found = name_partitions([URL], store.env(), lists_partitions=False)
    assert [one.path for one in found] == [f"{URL}/topic-{number}" for number in range(3)]
    assert store.calls == {"list": 1, "stat": 0, "open": 0}
    assert found[0].env.url_of(f"{URL}/topic-1") == f"{URL}/topic-1"
    assert store.listed == [False]


@given(st.sets(NAMES, min_size=1, max_size=5), st.data())
def test_digest_tells_of_each_change_in_a_directory(names: set[str], data: st.DataObject) -> None:
    found = {name: ListedObject(1, 1) for name in names}
    before = Listing.of(found.items())
    changed = data.draw(st.sampled_from(sorted(names)))
    for listed in (ListedObject(2, 1), ListedObject(1, 2)):
        assert Listing.of({**found, changed: listed}.items()).digest("") != before.digest("")
    assert Listing.of({**found, "new": ListedObject(1, 1)}.items()).digest("") != before.digest("")
    assert Listing.of({**found, "new/er": ListedObject(1, 1)}.items()).digest("") != before.digest("")
    assert Listing.of(reversed(found.items())).digest("") == before.digest("")
