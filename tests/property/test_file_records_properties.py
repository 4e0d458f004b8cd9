"""Goal: whatever is done to a file of records, it holds what a list of batches holds.
Method: a Hypothesis machine appends, cuts, reopens, slices and searches, with a write that fails now and then."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kstore.config import LogConfig
from kstore.env import files as env_module
from kstore.errors import StorageError
from kstore.log.segment.file_records import FileRecords
from kstore.record import MemoryRecords
from kstore.types import OffsetPosition
from tests.making.batches import batch
from tests.making.strategies import examples


class FileRecordsMachine(RuleBasedStateMachine):
    """The model is the list of whole batches, by their bytes and last offsets."""

    @initialize(preallocate_bytes=st.sampled_from([0, 5000, 100_000]))
    def open_new(self, preallocate_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "0.log"
        self.batches: list[bytes] = []
        self.last_offsets: list[int] = []
        self.next_offset = 0
        self.records = FileRecords.open(self.path, preallocate_bytes=preallocate_bytes, config=self.config)

    config = LogConfig(read_chunk_bytes=4096)

    def teardown(self) -> None:
        self.records.close_handlers()
        shutil.rmtree(self.folder)

    def position(self, number: int) -> int:
        return sum(map(len, self.batches[:number]))

    @rule(count=st.integers(1, 3), value_bytes=st.sampled_from([0, 10, 900, 6000]))
    def append(self, count: int, value_bytes: int) -> None:
        data = batch(self.next_offset, count, value_bytes=value_bytes)
        self.records.append(MemoryRecords(data))
        self.next_offset += count
        self.batches.append(data)
        self.last_offsets.append(self.next_offset - 1)

    @rule(written=st.integers(0, 2000))
    def append_on_a_full_disk(self, written: int) -> None:
        pwrite, left = os.pwrite, written

        def write(fd: int, data: memoryview, position: int) -> int:
            nonlocal left
            if not left:
                raise OSError(errno.ENOSPC, "full")
            left -= (count := pwrite(fd, data[:left], position))
            return count

        with patch.object(env_module.os, "pwrite", write), pytest.raises(StorageError):
            self.records.append(MemoryRecords(batch(self.next_offset, 3, value_bytes=900)))

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.batches)))
        removed = self.records.truncate_to(self.position(kept))
        assert removed == sum(map(len, self.batches[kept:]))
        del self.batches[kept:], self.last_offsets[kept:]

    @rule()
    def reopen(self) -> None:
        self.records.close()
        assert self.path.read_bytes() == b"".join(self.batches)
        self.records = FileRecords.open(self.path, preallocate_bytes=100_000, config=self.config)

    @rule(data=st.data())
    def slice_of_a_slice(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.batches)))
        second = data.draw(st.integers(first, len(self.batches)))
        size = data.draw(st.sampled_from([0, 61, 5000, 2**31 - 1, 2**63 - 1]))
        start, end = self.position(first), self.position(second)
        part = self.records.slice(position=start, size=end - start)
        inner = part.slice(position=(end - start) // 2, size=size)
        expected = b"".join(self.batches)[start:end][(end - start) // 2 :][:size]
        assert bytes(inner.read()) == expected
        assert [bytes(found) for found in part.batches()] == self.batches[first:second]

    @rule(target_offset=st.integers(-1, 60))
    def search(self, target_offset: int) -> None:
        numbers = [number for number, last_offset in enumerate(self.last_offsets) if last_offset >= target_offset]
        expected = OffsetPosition(self.last_offsets[numbers[0]], self.position(numbers[0])) if numbers else None
        assert self.records.search_for(target_offset) == expected

    @invariant()
    def holds_the_batches(self) -> None:
        assert bytes(self.records.read()) == b"".join(self.batches)
        assert [entry.last_offset for entry in self.records.entries()] == self.last_offsets


FileRecordsMachine.TestCase.settings = examples(40, stateful_step_count=25)
TestFileRecords = FileRecordsMachine.TestCase
