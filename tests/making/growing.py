"""GrowingRoot: a log.dirs root whose partitions grow and shrink, one call at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

from kstore.log.write.writable_log import WritableLog
from kstore.record import Record
from kstore.store.opening import open_log
from tests.making.batches import write_offset_checkpoint


class GrowingRoot:
    """Each record has a value that no other record has had: b"<topic>-<partition> <number>"."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self.numbers = 0

    def open(self, name: str) -> WritableLog:
        return open_log(self.path / name, "a")

    def append(self, name: str, count: int, *, timestamp_ms: int | None = None, flushes: bool = True) -> None:
        """Append records one to a batch, in a partition that is created if it does not exist."""
        with self.open(name) as log:
            for _ in range(count):
                record = Record(value=b"%s %d" % (name.encode(), self.numbers), timestamp_ms=timestamp_ms or 0)
                log.append([record], ack="flushed" if flushes else "written")
                self.numbers += 1

    def roll(self, name: str) -> None:
        with self.open(name) as log:
            log.roll()

    def delete_records(self, name: str, before_offset: int) -> None:
        with self.open(name) as log:
            log.delete_records(before_offset)

    def truncate(self, name: str, offset: int) -> None:
        with self.open(name) as log:
            log.truncate_to(offset)

    def remove(self, name: str) -> None:
        """Delete a partition, as the deletion of its topic ends."""
        shutil.rmtree(self.path / name)
        self.forget_offsets()

    def forget_offsets(self) -> None:
        """Forget the log start offsets of all partitions."""
        write_offset_checkpoint(self.path / "log-start-offset-checkpoint", {})

    def content(self, name: str) -> dict[int, bytes | None]:
        """The values by offset that a partition holds now."""
        with open_log(self.path / name) as log:
            return {record.offset: record.value for record in log.read()}
