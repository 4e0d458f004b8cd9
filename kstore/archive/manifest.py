"""Manifest: what an export holds, file by file; its JSON, which is written last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from kstore.errors import CorruptManifestError, StorageError
from kstore.log.env import DEFAULT_ENV, ENOENT, Env, StrPath, join_path, locate
from kstore.types import TopicPartition

FORMAT_VERSION = 1
MANIFEST_FILE = "_kstore_manifest.json"
_MOST_MANIFEST_BYTES = 4 << 30


class ExportedFile(NamedTuple):
    """One finished file of an export.

    path: below the target, with slashes. first_offset, last_offset: of its records; last_offset is first_offset - 1 if
    it has none. min_timestamp_ms: of its records, None without timestamps, and of a segment; max_timestamp_ms the same,
    of a segment that of its batch headers. crc32c: of all of its bytes. source_base_offset: of a segment, that of the
    segment it was copied from.
    """

    path: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    record_count: int
    size_in_bytes: int
    crc32c: int
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    source_base_offset: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ExportedPartition(NamedTuple):
    """The offsets of one partition that an export covers: [start_offset, end_offset).

    missing: [first, end) offsets in between that the source had lost before they were exported. damage: what was left
    out with on_error="skip", as JSON objects. topic_id: that of the source, None if it has none. last_batch: the header
    of the batch with the last exported offset, None if it is not known.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    record_count: int = 0
    missing: tuple[tuple[int, int], ...] = ()
    damage: tuple[dict[str, Any], ...] = ()
    topic_id: str | None = None
    last_batch: dict[str, int] | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Manifest(NamedTuple):
    """What an export holds. options: as kstore.export took them; run_id: of the run that wrote it."""

    format: str
    source: str
    options: dict[str, Any]
    run_id: str
    partitions: tuple[ExportedPartition, ...] = ()
    files: tuple[ExportedFile, ...] = ()

    @property
    def record_count(self) -> int:
        return sum(file.record_count for file in self.files)

    @property
    def size_in_bytes(self) -> int:
        return sum(file.size_in_bytes for file in self.files)

    def partition(self, topic_partition: TopicPartition) -> ExportedPartition | None:
        """Return one partition, None if the export does not cover it."""
        return next((one for one in self.partitions if one.topic_partition == topic_partition), None)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as a JSON object."""
        found = self._asdict()
        found["partitions"] = [one._asdict() for one in self.partitions]
        found["files"] = [_without_none(one._asdict()) for one in self.files]
        return {"format_version": FORMAT_VERSION, **found}

    def encoded(self) -> bytes:
        """Return the content of the manifest's file: one line for each file."""
        fields = self.to_json()
        files = fields.pop("files")
        head = json.dumps(fields, indent=1)[:-2]
        return f"{head},\n {_list_of('files', files)}\n}}\n".encode()

    @classmethod
    def decoded(cls, content: bytes, *, path: str) -> Manifest:
        """Return the manifest with this content.

        Raises: CorruptManifestError, also for another format_version.
        """
        fields = json_object(content, path=path)
        if fields.get("format_version") != FORMAT_VERSION:
            reason = f"format_version: expected {FORMAT_VERSION}, found {fields.get('format_version')!r}"
            raise CorruptManifestError(f"{path}: {reason}", path=path, reason=reason)
        return cls.of_json(fields, path=path)

    @classmethod
    def of_json(cls, fields: dict[str, Any], *, path: str) -> Manifest:
        """Return the manifest of a JSON object.  Raises: CorruptManifestError."""
        try:
            return cls(
                format=str(fields["format"]),
                source=str(fields["source"]),
                options=dict(fields["options"]),
                run_id=str(fields["run_id"]),
                partitions=tuple(map(partition_of, fields["partitions"])),
                files=tuple(ExportedFile(**one) for one in fields["files"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise malformed(path, error) from error


def read_manifest(target: StrPath, *, env: Env = DEFAULT_ENV) -> Manifest | None:
    """Return the manifest of an export, None if there is none: no run has ended yet.

    Only the files that it lists are finished.
    Raises: CorruptManifestError, StorageError.
    """
    path = join_path(locate(target).path, MANIFEST_FILE)
    content = content_of(path, env)
    return None if content is None else Manifest.decoded(content, path=path)


def content_of(path: str, env: Env) -> bytes | None:
    """Return the content of a manifest, or of a file of an unfinished run; None if there is none."""
    try:
        return env.read_file(path, max_bytes=_MOST_MANIFEST_BYTES)
    except StorageError as error:
        if error.errno != ENOENT:
            raise
        return None


def partition_of(fields: dict[str, Any]) -> ExportedPartition:
    """Return a partition of a manifest's JSON object."""
    found = ExportedPartition(**fields)
    return found._replace(missing=tuple((first, end) for first, end in found.missing), damage=tuple(found.damage))


def json_object(content: bytes, *, path: str) -> dict[str, Any]:
    """Return the JSON object in a file.  Raises: CorruptManifestError."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise malformed(path, error) from error
    if not isinstance(fields, dict):
        raise malformed(path, TypeError("expected a JSON object"))
    return fields


def malformed(path: str, error: Exception) -> CorruptManifestError:
    """Return the error for a file that is not what it should be."""
    reason = f"missing field {error}" if isinstance(error, KeyError) else str(error)
    return CorruptManifestError(f"malformed {path}: {reason}", path=path, reason=reason)


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _list_of(name: str, items: Iterable[object]) -> str:
    lines = ",\n  ".join(map(json.dumps, items))
    return f'"{name}": [\n  {lines}\n ]' if lines else f'"{name}": []'
