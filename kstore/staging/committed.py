"""CommittedVersions: the last version that each application committed, stored as a record of `__kstore_sink`.

Each record is a snapshot of all applications, so that only the last committed one counts.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from kstore.config import KIB, MIB, LogConfig
from kstore.errors import InvalidRecordError
from kstore.log.files.json_state import check_number, json_object, value_as
from kstore.log.write.writable_log import WritableLog
from kstore.record.builder import MemoryRecordsBuilder

# Of the topic `__kstore_sink`, which has small records and drops old segments.
SINK_TOPIC_CONFIG = LogConfig(cleanup_policy="compact", compression_type="uncompressed", segment_bytes=MIB)
# One key, so that compaction keeps the last snapshot.
_KEY = b"committed"
_FORMAT = 1
_MOST_SNAPSHOT_BYTES = 256 * KIB
# Old snapshots are deleted once a reader would have to read this many offsets or bytes.
_MOST_OFFSETS = 256
_MOST_BYTES = MIB


class _Snapshot(NamedTuple):
    """The value of the record; committed: the version of each application."""

    version: int
    committed: dict[str, int]


class CommittedVersions:
    """The last committed version by application, those that committed longest ago first. Immutable.

    offset: that of the record, -1 if there is none.
    """

    def __init__(self, versions: Mapping[str, int], *, offset: int = -1) -> None:
        self._versions = dict(versions)
        self._offset = offset

    @classmethod
    def read(cls, log: WritableLog) -> CommittedVersions:
        """Return the versions of the last committed record, none for an empty log.

        Raises: InvalidRecordError for a record that is not a snapshot of this format; as Log.read.
        """
        records = deque(log.read(isolation="read_committed"), maxlen=1)
        if not records:
            return cls({})
        last = records[0]
        return cls(_versions_of(bytes(last.value or b""), path=log.path, offset=last.offset), offset=last.offset)

    def version_of(self, app_id: str) -> int | None:
        """Return the last version of an application, None if it is unknown."""
        return self._versions.get(app_id)

    def with_version(self, app_id: str, version: int) -> CommittedVersions:
        """Return the snapshot after a commit; above 256 KiB it drops the applications that committed longest ago."""
        versions = {known: number for known, number in self._versions.items() if known != app_id}
        versions[app_id] = version
        made = CommittedVersions(versions, offset=self._offset)
        while len(made.value) > _MOST_SNAPSHOT_BYTES and len(versions) > 1:
            for known in list(versions)[: len(versions) // 10 + 1]:
                del versions[known]
            made = CommittedVersions(versions, offset=self._offset)
        return made

    @property
    def value(self) -> bytes:
        """The value of the record."""
        return json.dumps({"version": _FORMAT, "committed": self._versions}).encode()

    def to_batch(self, *, timestamp_ms: int) -> bytearray:
        """Return a batch with the record, as a producer without an id encodes it."""
        builder = MemoryRecordsBuilder()
        builder.append(timestamp_ms=timestamp_ms, key=_KEY, value=self.value)
        return bytearray(builder.build().buffer)

    def delete_older(self, log: WritableLog) -> None:
        """Delete the records before this snapshot if there are many of them.

        Raises: StorageError, as WritableLog.delete_records.
        """
        offsets = self._offset - log.log_start_offset
        if offsets > _MOST_OFFSETS or offsets * len(self.value) > _MOST_BYTES:
            log.delete_records(self._offset)


def _versions_of(value: bytes, *, path: str, offset: int) -> dict[str, int]:
    try:
        snapshot: _Snapshot = value_as(_Snapshot, json_object(value), field="")
        check_number("version", snapshot.version, least=_FORMAT, most=_FORMAT)
    except ValueError as error:
        raise InvalidRecordError(
            f"record {offset} of {path}: expected the committed versions, in format {_FORMAT}, found {value[:80]!r}: "
            f"{error}",
            path=path,
            base_offset=offset,
        ) from error
    return snapshot.committed
