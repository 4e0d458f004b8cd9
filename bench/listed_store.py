"""A store of any number of segments without data: it lists them, and answers what a plan asks for.

Each partition has segments of the same size. Where a segment ends is a batch, and its index points there, so that the
end of a log is found as in a real store; everything before it is not there and reads as zeros.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs

from kstore import Record
from kstore.env.filesystems import RemoteFileSystem
from kstore.env.remote import RemoteEnv
from kstore.log.files.names import base_offset_file_name
from kstore.record.builder import with_records

ROOT = "bucket/kafka-logs"
URL = f"listed://{ROOT}"
SUFFIXES = (".log", ".index", ".timeindex")
OFFSETS_OF_A_SEGMENT = 100_000
_WRITTEN_NS = 1_700_000_000 * 10**9
_INDEX_BYTES = 8


class _Object(io.RawIOBase):
    """Zeros, and some bytes at the end."""

    def __init__(self, size: int, end: bytes) -> None:
        self._size, self._end, self._position = size, end, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        size = self._size - self._position if size < 0 else min(size, self._size - self._position)
        start = self._size - len(self._end)
        zeros = max(min(start - self._position, size), 0)
        at = max(self._position - start, 0)
        self._position += size
        return bytes(zeros) + self._end[at : at + size - zeros]


class ListedStore:
    """In place of a file system of pyarrow: partitions topic-0, topic-1 ..., each with the same number of segments.

    Attributes: calls (how often it was asked, by kind), listed (for each listing whether it was recursive).
    """

    def __init__(self, segments: int, *, per_partition: int, segment_bytes: int = 100_000_001) -> None:
        self.partitions = -(-segments // per_partition)
        self._segments, self._per_partition = segments, per_partition
        self._segment_bytes = segment_bytes
        self.calls = {"list": 0, "stat": 0, "open": 0}
        self.listed: list[bool] = []

    def env(self) -> RemoteEnv:
        """Return an Env over this store, as locate() returns it for a URL."""
        return RemoteEnv(RemoteFileSystem(self), url=URL, root=URL, key=ROOT)

    def get_file_info(self, asked: fs.FileSelector | str) -> Any:
        """Return the status of a path, or a list of what is below a directory."""
        if isinstance(asked, str):
            self.calls["stat"] += 1
            return self._info(asked)
        self.calls["list"] += 1
        self.listed.append(asked.recursive)
        if asked.base_dir != ROOT:
            return list(self._objects(int(asked.base_dir.rpartition("-")[2])))
        if not asked.recursive:
            return [fs.FileInfo(f"{ROOT}/topic-{one}", type=fs.FileType.Directory) for one in range(self.partitions)]
        return [info for partition in range(self.partitions) for info in self._objects(partition)]

    def open_input_file(self, path: str) -> pa.NativeFile:
        self.calls["open"] += 1
        return pa.PythonFile(_Object(self._info(path).size, self._end_of(path)), mode="r")

    def _objects(self, partition: int) -> Iterator[fs.FileInfo]:
        first = partition * self._per_partition
        for segment in range(min(self._per_partition, self._segments - first)):
            stem = f"{ROOT}/topic-{partition}/" + base_offset_file_name(segment * OFFSETS_OF_A_SEGMENT, suffix="")
            for suffix in SUFFIXES:
                yield self._info(stem + suffix)

    def _info(self, path: str) -> fs.FileInfo:
        size = self._segment_bytes if path.endswith(".log") else _INDEX_BYTES
        if not path.endswith(SUFFIXES):
            return fs.FileInfo(path, type=fs.FileType.NotFound)
        return fs.FileInfo(path, type=fs.FileType.File, size=size, mtime_ns=_WRITTEN_NS)

    def _end_of(self, path: str) -> bytes:
        base_offset = int(path.rpartition("/")[2].partition(".")[0])
        last = _batch(base_offset + OFFSETS_OF_A_SEGMENT - 1)
        if path.endswith(".index"):
            entry = OFFSETS_OF_A_SEGMENT - 1, self._segment_bytes - len(last)
            return b"".join(number.to_bytes(4, "big") for number in entry)
        return last if path.endswith(".log") else b""


def _batch(offset: int) -> bytes:
    return bytes(with_records([Record(value=b"last", timestamp_ms=0)], base_offset=offset).buffer)
