"""Goal: bytes of an object are handed over only after a look that began after they arrived.
Method: a file system in memory whose object is replaced, and whose other requests are answered, at chosen moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from kstore.env import ObjectIdentity
from kstore.env.filesystems import OpenObject, RemoteFileSystem
from kstore.env.remote import BLOCK_BYTES, RemoteFile
from kstore.errors import LogReplacedError

SIZE = 3 * BLOCK_BYTES


class ReplacedObject:
    """An object whose bytes are its version; `on_look` is called inside of the next look, after its answer was made."""

    def __init__(self) -> None:
        self.version = 1
        self.looks = 0
        self.on_look: Callable[[], object] | None = None

    def open(self, key: str, *, path: str) -> OpenObject:
        assert path.endswith(key)
        answer = OpenObject(None, ObjectIdentity(SIZE, 0, f"version {self.version}"))
        self.looks += 1
        call, self.on_look = self.on_look, None
        if call is not None:
            call()
        return answer

    def read(self, opened: OpenObject, size: int, *, position: int, path: str) -> bytearray:
        assert opened.identity.size_in_bytes >= position + size, path
        return bytearray([self.version]) * size


@pytest.fixture
def store() -> ReplacedObject:
    return ReplacedObject()


@pytest.fixture
def file(store: ReplacedObject) -> RemoteFile:
    return RemoteFile(cast("RemoteFileSystem", store), "key", path="s3://bucket/key")


def test_a_block_that_arrives_during_a_look_is_not_confirmed_by_it(store: ReplacedObject, file: RemoteFile) -> None:
    late_blocks = []

    def replace_and_answer_another_request() -> None:
        store.version = 2
        late_blocks.append(file._fetch(0, size=BLOCK_BYTES))

    store.on_look = replace_and_answer_another_request
    assert file.pread(1, position=SIZE - 1) == b"\x01"
    (late,) = late_blocks
    assert late.data[:1] == b"\x02"
    assert late.number > file._confirmed
    with pytest.raises(LogReplacedError, match=r"expected .*version 1.*found .*version 2"):
        file.pread(1, position=0)


def test_a_later_look_confirms_all_that_arrived_before_it(store: ReplacedObject, file: RemoteFile) -> None:
    for position in (SIZE - 1, 0):
        file.pread(1, position=position)
    looks = store.looks
    assert file.pread(1, position=SIZE - 2) == file.pread(1, position=1) == b"\x01"
    assert store.looks == looks
