"""Manifest: what an export holds, file by file; its JSON, which is written last."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from kstore.config import MAX_INT64
from kstore.env import ENOENT, Env, StrPath, join_path, locate
from kstore.errors import CorruptManifestError, StorageError
from kstore.log.files.json_state import (
    CHECKSUM,
    FieldError,
    check_checksum,
    check_number,
    check_relative_path,
    json_object,
    value_as,
    with_checksum,
)
from kstore.log.files.names import LOG_SUFFIX
from kstore.log.files.records import KEPT_BY_CLEANERS
from kstore.log.files.root_files import parse_id
from kstore.types import MAX_OFFSET, MAX_PARTITION, TopicPartition, is_topic_name

FORMAT_VERSION = 1
# The format that copies batches unchanged.
VERBATIM: Final = "kstore"
FORMATS = ("parquet", "arrow", VERBATIM)
# Fields that identify the last exported batch even after a cleaner removed some of its records.
BATCH_IDENTITY = ("last_offset", "magic", *KEPT_BY_CLEANERS)
MAX_UINT32 = 2**32 - 1
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


class OpenTransaction(NamedTuple):
    """A transaction with data below the end of what was exported, and its marker above it.

    marker_offset: -1 if the source had no marker yet.
    """

    producer_id: int
    first_offset: int
    marker_offset: int = -1


class ExportedPartition(NamedTuple):
    """The offsets of one partition that an export covers: [start_offset, end_offset).

    missing: [first, end) offsets in between that the source had lost before they were exported. damage: what was left
    out with on_error="skip", as JSON objects. topic_id: that of the source, None if it has none. last_batch: the header
    of the batch with the last exported offset, None if it is not known. open_transactions: of format "kstore", those
    that end above end_offset.
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
    open_transactions: tuple[OpenTransaction, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Manifest(NamedTuple):
    """What an export holds.

    options: as kstore.export took them; run_id: of the run that wrote it; types: of keys and values that have a format,
    by topic, as a schema of Arrow in base64; None if none has one.
    """

    format: str
    source: str
    options: dict[str, Any]
    run_id: str
    partitions: tuple[ExportedPartition, ...] = ()
    files: tuple[ExportedFile, ...] = ()
    types: dict[str, str] | None = None

    @property
    def record_count(self) -> int:
        return sum(file.record_count for file in self.files)

    @property
    def size_in_bytes(self) -> int:
        return sum(file.size_in_bytes for file in self.files)

    def partition(self, topic_partition: TopicPartition) -> ExportedPartition | None:
        """Return one partition, None if the export does not cover it."""
        return next((partition for partition in self.partitions if partition.topic_partition == topic_partition), None)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as a JSON object."""
        fields = self._asdict()
        fields["partitions"] = [partition._asdict() for partition in self.partitions]
        fields["files"] = [_without_none(file._asdict()) for file in self.files]
        if self.types is None:
            del fields["types"]
        return {"format_version": FORMAT_VERSION, **fields}

    def encoded(self) -> bytes:
        """Return the content of the manifest's file: one line for each file, and a checksum."""
        fields = with_checksum(self.to_json())
        files = fields.pop("files")
        head = json.dumps(fields, indent=1)[:-2]
        return f"{head},\n {_list_of('files', files)}\n}}\n".encode()

    @classmethod
    def decoded(cls, content: bytes, *, path: str) -> Manifest:
        """Return the manifest with this content.

        The checksum, if there is one (versions of kstore before 0.1 wrote none), the types and the ranges of all
        fields are checked, and that partitions and files fit together.
        Raises: CorruptManifestError, also for another format_version.
        """
        return sealed_manifest(content, path=path).manifest

    @classmethod
    def of_json(cls, fields: dict[str, Any], *, field: str = "") -> Manifest:
        """Return the manifest of a JSON object.  Raises: FieldError."""
        prefix = f"{field}." if field else ""
        if fields.get("format_version") != FORMAT_VERSION:
            raise FieldError(f"{prefix}format_version", FORMAT_VERSION, fields.get("format_version"))
        rest = {name: value for name, value in fields.items() if name != "format_version"}
        manifest: Manifest = value_as(cls, rest, field=field)
        if manifest.format not in FORMATS:
            raise FieldError(f"{prefix}format", f"one of {', '.join(FORMATS)}", manifest.format)
        manifest.check(field=prefix)
        return manifest

    def check(self, *, field: str = "") -> None:
        """Raise FieldError for ranges, paths or numbers that do not fit together."""
        _check(self, field)


class SealedManifest(NamedTuple):
    """A manifest, and whether its file has a checksum."""

    manifest: Manifest
    is_sealed: bool


def sealed_manifest(content: bytes, *, path: str) -> SealedManifest:
    """Return the manifest with this content; see Manifest.decoded.  Raises: CorruptManifestError."""
    with corruption_of(path):
        fields = json_object(content)
        is_sealed = check_checksum(fields)
        rest = {name: value for name, value in fields.items() if name != CHECKSUM}
        return SealedManifest(Manifest.of_json(rest), is_sealed)


def read_manifest(
    target: StrPath, *, storage_options: Mapping[str, str] | None = None, env: Env | None = None
) -> Manifest | None:
    """Return the manifest of an export, None if there is none: no run has ended yet.

    Only the files that it lists are finished.
    Args: storage_options: of a target that is a URL, as of kstore.export; env: of the target, None to choose it by the
        path.
    Raises: CorruptManifestError, StorageError.
    """
    if storage_options:
        from kstore.env.objects import ObjectEnv

        env = ObjectEnv(str(target), storage_options)
    located = locate(target, env)
    path = join_path(located.path, MANIFEST_FILE)
    content = content_of(path, located.env)
    return None if content is None else Manifest.decoded(content, path=path)


def content_of(path: str, env: Env) -> bytes | None:
    """Return the content of a manifest, or of a file of an unfinished run; None if there is none."""
    try:
        return env.read_file(path, max_bytes=_MOST_MANIFEST_BYTES)
    except StorageError as error:
        if error.errno != ENOENT:
            raise
        return None


@contextmanager
def corruption_of(path: str) -> Iterator[None]:
    """Context manager: errors about the fields of a state file become a CorruptManifestError that names the file."""
    try:
        yield
    except ValueError as error:
        expected, found = (error.expected, error.found) if isinstance(error, FieldError) else (None, None)
        raise CorruptManifestError(
            f"malformed {path}: {error}", path=path, reason=str(error), expected=expected, found=found
        ) from error


def check_partition(field: str, topic: str, partition: int) -> None:
    """Raise FieldError unless a topic and a number make the name of a partition."""
    if not is_topic_name(topic):
        raise FieldError(f"{field}.topic", "the name of a topic", topic)
    check_number(f"{field}.partition", partition, least=0, most=MAX_PARTITION)


def check_file(field: str, file: ExportedFile) -> None:
    """Raise FieldError for a file whose fields do not fit together, or whose path leads out of the target."""
    check_partition(field, file.topic, file.partition)
    check_relative_path(f"{field}.path", file.path, most_components=3)
    check_number(f"{field}.first_offset", file.first_offset, least=0, most=MAX_OFFSET)
    check_number(f"{field}.last_offset", file.last_offset, least=file.first_offset - 1, most=MAX_OFFSET)
    check_number(f"{field}.record_count", file.record_count, least=0, most=file.last_offset - file.first_offset + 1)
    check_number(f"{field}.size_in_bytes", file.size_in_bytes, least=0, most=MAX_INT64)
    check_number(f"{field}.crc32c", file.crc32c, least=0, most=MAX_UINT32)


def check_exported(field: str, exported: ExportedPartition) -> None:
    """Raise FieldError for a partition whose fields do not fit together."""
    check_partition(field, exported.topic, exported.partition)
    check_number(f"{field}.start_offset", exported.start_offset, least=0, most=MAX_OFFSET)
    check_number(f"{field}.end_offset", exported.end_offset, least=exported.start_offset, most=MAX_OFFSET)
    check_number(f"{field}.record_count", exported.record_count, least=0, most=MAX_INT64)
    for at, (first, end) in enumerate(exported.missing):
        check_number(f"{field}.missing[{at}][0]", first, least=0, most=MAX_OFFSET)
        check_number(f"{field}.missing[{at}][1]", end, least=first, most=MAX_OFFSET)
    check_topic_id(f"{field}.topic_id", exported.topic_id)
    if exported.last_batch is None:
        return
    names = {*BATCH_IDENTITY, "record_count", "crc"}
    if exported.last_batch.keys() != names:
        raise FieldError(f"{field}.last_batch", f"the fields {', '.join(sorted(names))}", sorted(exported.last_batch))
    last = exported.end_offset - 1
    check_number(f"{field}.last_batch.base_offset", exported.last_batch["base_offset"], least=0, most=last)
    check_number(f"{field}.last_batch.last_offset", exported.last_batch["last_offset"], least=last, most=MAX_OFFSET)


def check_topic_id(field: str, topic_id: str | None) -> None:
    """Raise FieldError for what is neither an id nor None."""
    if topic_id is None:
        return
    try:
        parse_id(topic_id)
    except ValueError as error:
        raise FieldError(field, "an id of 22 characters of base64url", topic_id) from error


def _check(manifest: Manifest, prefix: str) -> None:
    known = {}
    for at, partition in enumerate(manifest.partitions):
        check_exported(f"{prefix}partitions[{at}]", partition)
        if partition.topic_partition in known:
            raise FieldError(f"{prefix}partitions[{at}]", "each partition once", str(partition.topic_partition))
        known[partition.topic_partition] = at
    counts: Counter[TopicPartition] = Counter()
    paths = set()
    before: ExportedFile | None = None
    for at, file in enumerate(manifest.files):
        field = f"{prefix}files[{at}]"
        check_file(field, file)
        if file.topic_partition not in known:
            raise FieldError(field, "a file of a partition that is listed", str(file.topic_partition))
        end = manifest.partitions[known[file.topic_partition]].end_offset
        if manifest.format != VERBATIM:
            check_number(f"{field}.last_offset", file.last_offset, least=file.first_offset - 1, most=end - 1)
            shape = rf"topic=[^/]+/date=[^/]+/[^/]+\.{manifest.format}"
            if re.fullmatch(shape, file.path) is None:
                raise FieldError(f"{field}.path", f"topic=.../date=.../....{manifest.format}", file.path)
        elif re.fullmatch(rf"{re.escape(str(file.topic_partition))}/[0-9]{{20}}\{LOG_SUFFIX}", file.path) is None:
            raise FieldError(f"{field}.path", f"a segment in {file.topic_partition}", file.path)
        if file.path in paths:
            raise FieldError(f"{field}.path", "each file once", file.path)
        paths.add(file.path)
        counts[file.topic_partition] += file.record_count
        if manifest.format == VERBATIM and before is not None and before.topic_partition == file.topic_partition:
            least = before.last_offset + 1
            check_number(f"{field}.first_offset", file.first_offset, least=least, most=MAX_OFFSET)
        before = file
    for at, partition in enumerate(manifest.partitions):
        if partition.record_count != counts[partition.topic_partition]:
            field = f"{prefix}partitions[{at}].record_count"
            raise FieldError(
                field, f"the sum of its files, {counts[partition.topic_partition]}", partition.record_count
            )


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _list_of(name: str, items: Iterable[object]) -> str:
    lines = ",\n  ".join(map(json.dumps, items))
    return f'"{name}": [\n  {lines}\n ]' if lines else f'"{name}": []'
