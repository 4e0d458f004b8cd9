"""Manifest: what an `.rsm-manifest` of Aiven's plugin says of a segment's objects.

Fields and versions: docs/tiers.md.
"""

from __future__ import annotations

import base64
import binascii
from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

from kstore.compression import decompress_frame
from kstore.config import MAX_INT32
from kstore.errors import CorruptManifestError, KStoreError
from kstore.log.files.checkpoints import EpochEntry
from kstore.log.files.json_state import FieldError, check_number, json_object, value_as
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kstore.tier.chunks import ChunkIndex, chunk_count, decode_sizes
from kstore.tier.keys import DataKey
from kstore.types import MAX_OFFSET

MAX_MANIFEST_BYTES = 16 * 1024 * 1024
# A segment of 2 GiB in chunks of 1 KiB; the plugin's default has 4 MiB.
_MOST_CHUNKS = 1 << 21
_MOST_SIZES_BYTES = 16 + 4 * _MOST_CHUNKS
_VERSION = "1"
_FIXED, _VARIABLE = "fixed", "variable"
# The side files of a segment by their names in a manifest.
_INDEXES = {
    "offset": OFFSET_INDEX_SUFFIX,
    "timestamp": TIME_INDEX_SUFFIX,
    "producerSnapshot": PRODUCER_SNAPSHOT_SUFFIX,
    "leaderEpoch": LEADER_EPOCH_CHECKPOINT,
    "transaction": TRANSACTION_INDEX_SUFFIX,
}


class Slice(NamedTuple):
    """Bytes of an object: `size` of them from `position` on."""

    position: int
    size: int


class WrittenSegment(NamedTuple):
    """What a manifest repeats of a segment's metadata; end_offset is inclusive."""

    topic_id: str
    topic: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]


class Manifest(NamedTuple):
    """What a manifest says. indexes: the slice of each side file in `.indexes`, by suffix or name, with the sizes as
    stored; None if each has an object of its own (before October 2023). key: None without encryption; segment: None in
    manifests from before September 2023.
    """

    chunks: ChunkIndex
    indexes: Mapping[str, Slice] | None
    is_compressed: bool
    key: DataKey | None
    segment: WrittenSegment | None

    @property
    def weight(self) -> int:
        """What it weighs in the cache of a TieredEnv."""
        return 256 + len(self.chunks)

    @property
    def is_plain(self) -> bool:
        """Whether the object of the log is the segment itself."""
        return not self.is_compressed and self.key is None


def parse_manifest(content: bytes | bytearray, *, path: str) -> Manifest:
    """Return what a manifest says.

    Raises: CorruptManifestError for anything but a manifest of version 1, and for chunks that do not fit the segment.
    """
    try:
        fields = json_object(bytes(content))
        version = _field(fields, "version", str)
        if version != _VERSION:
            raise FieldError("version", repr(_VERSION), version)
        return Manifest(
            chunks=_chunks(_field(fields, "chunkIndex", dict[str, Any])),
            indexes=_indexes(_field(fields, "segmentIndexes", dict[str, Any] | None)),
            is_compressed=_field(fields, "compression", bool),
            key=_key(_field(fields, "encryption", dict[str, Any] | None)),
            segment=_segment(_field(fields, "remoteLogSegmentMetadata", dict[str, Any] | None)),
        )
    except (ValueError, KStoreError) as error:
        raise CorruptManifestError(f"malformed {path}: {error}", path=path, position=0, reason=str(error)) from error


def _field(fields: Mapping[str, Any], name: str, kind: Any, *, within: str = "") -> Any:
    return value_as(kind, fields.get(name), field=f"{within}{name}")


def _number(fields: Mapping[str, Any], name: str, *, within: str, least: int = 0, most: int = MAX_INT32) -> int:
    value: int = _field(fields, name, int, within=within)
    check_number(f"{within}{name}", value, least=least, most=most)
    return value


def _chunks(fields: Mapping[str, Any]) -> ChunkIndex:
    within = "chunkIndex."
    chunk_bytes = _number(fields, "originalChunkSize", within=within, least=1)
    file_bytes = _number(fields, "originalFileSize", within=within)
    count = chunk_count(file_bytes, chunk_bytes=chunk_bytes)
    if count > _MOST_CHUNKS:
        raise FieldError(f"{within}originalChunkSize", f"at most {_MOST_CHUNKS} chunks", count)
    kind = _field(fields, "type", str, within=within)
    if kind == _FIXED:
        stored = _number(fields, "transformedChunkSize", within=within)
        last = _number(fields, "finalTransformedChunkSize", within=within)
        sizes = array("q", [stored] * (count - 1) + [last] * min(count, 1))
    elif kind == _VARIABLE:
        frame = _bytes(fields, "transformedChunks", within=within)
        sizes = decode_sizes(decompress_frame(frame, _MOST_SIZES_BYTES), most=count)
    else:
        raise FieldError(f"{within}type", f"{_FIXED!r} or {_VARIABLE!r}", kind)
    return ChunkIndex(chunk_bytes=chunk_bytes, file_bytes=file_bytes, stored=sizes)


def _indexes(fields: Mapping[str, Any] | None) -> dict[str, Slice] | None:
    if fields is None:
        return None
    slices = {}
    for name, suffix in _INDEXES.items():
        within = f"segmentIndexes.{name}."
        place = _field(fields, name, dict[str, Any] | None, within="segmentIndexes.")
        if place is not None:
            slices[suffix] = Slice(_number(place, "position", within=within), _number(place, "size", within=within))
    return slices


def _key(fields: Mapping[str, Any] | None) -> DataKey | None:
    if fields is None:
        return None
    text = _field(fields, "dataKey", str, within="encryption.")
    key_id, separator, wrapped = text.rpartition(":")
    aad = _bytes(fields, "aad", within="encryption.")
    return DataKey(key_id if separator else None, _base64("encryption.dataKey", wrapped), aad)


def _segment(fields: Mapping[str, Any] | None) -> WrittenSegment | None:
    if fields is None:
        return None
    within = "remoteLogSegmentMetadata."
    segment_id = _field(fields, "remoteLogSegmentId", dict[str, Any], within=within)
    named = _field(segment_id, "topicIdPartition", dict[str, Any], within=within)
    place = _field(named, "topicPartition", dict[str, Any], within=within)
    epochs = _field(fields, "segmentLeaderEpochs", dict[str, int], within=within)
    if not all(epoch.isascii() and epoch.isdigit() and 0 <= start <= MAX_OFFSET for epoch, start in epochs.items()):
        raise FieldError(f"{within}segmentLeaderEpochs", "numbers that are not negative", epochs)
    return WrittenSegment(
        _field(named, "topicId", str, within=within),
        _field(place, "topic", str, within=within),
        _number(place, "partition", within=within),
        _field(segment_id, "id", str, within=within),
        _number(fields, "startOffset", within=within, most=MAX_OFFSET - 1),
        _number(fields, "endOffset", within=within, least=-1, most=MAX_OFFSET - 1),
        _field(fields, "maxTimestampMs", int, within=within),
        tuple(sorted(EpochEntry(int(epoch), start) for epoch, start in epochs.items())),
    )


def _bytes(fields: Mapping[str, Any], name: str, *, within: str) -> bytes:
    return _base64(f"{within}{name}", _field(fields, name, str, within=within))


def _base64(field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FieldError(field, "base64", text) from error
