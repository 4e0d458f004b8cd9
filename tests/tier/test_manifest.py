"""Goal: a manifest is read field by field, and one that lies is refused before anything is made of it.
Method: a manifest of the test's own writer, with one field changed at a time."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kstore import CorruptManifestError
from kstore.log.files.checkpoints import EpochEntry
from kstore.tier.manifest import Slice, parse_manifest
from tests.making.batches import batches
from tests.making.tiers import Tier, encoded_sizes, key

Fields = dict[str, Any]


def manifest_of(tmp_path: Path, **options: Any) -> Fields:
    made = Tier(path=tmp_path, **options).upload(batches(5, 3, value_bytes=100), ((2, 0), (4, 6)), aborted=b"t" * 34)
    fields: Fields = json.loads(made.path(".rsm-manifest").read_text())
    return fields


def parsed(fields: Fields) -> Any:
    return parse_manifest(json.dumps(fields).encode(), path="the manifest")


def test_fields_of_a_manifest_are_read(tmp_path: Path) -> None:
    manifest = parsed(manifest_of(tmp_path, is_compressed=True, key=key()))
    assert (manifest.is_compressed, manifest.is_plain, manifest.key.key_id) == (True, False, "key1")
    assert manifest.segment.start_offset == 5
    assert manifest.segment.end_offset == 7
    assert manifest.segment.epochs == (EpochEntry(2, 5), EpochEntry(4, 6))
    assert manifest.indexes[".index"] == Slice(0, 0)
    assert ".txnindex" in manifest.indexes
    assert manifest.chunks.file_bytes == sum(map(len, batches(5, 3, value_bytes=100)))


def test_an_index_that_is_null_is_absent_and_fields_that_are_not_known_do_no_harm(tmp_path: Path) -> None:
    fields = manifest_of(tmp_path)
    fields["segmentIndexes"]["transaction"] = None
    fields["remoteLogSegmentMetadata"]["txnIdxEmpty"] = True
    fields["other"] = {}
    manifest = parsed(fields)
    assert ".txnindex" not in manifest.indexes
    assert manifest.is_plain


def test_manifests_of_before_october_2023_have_no_slices(tmp_path: Path) -> None:
    fields = manifest_of(tmp_path, layout="aiven-2023")
    assert parsed(fields).indexes is None
    del fields["remoteLogSegmentMetadata"]
    assert parsed(fields).segment is None


def test_a_key_without_an_id_is_one_of_before_july_2023(tmp_path: Path) -> None:
    fields = manifest_of(tmp_path, key=key())
    fields["encryption"]["dataKey"] = fields["encryption"]["dataKey"].partition(":")[2]
    assert parsed(fields).key.key_id is None


def variable(sizes: bytes) -> Callable[[Fields], None]:
    text = base64.b64encode(zstandard.compress(sizes)).decode()

    def change(fields: Fields) -> None:
        fields["chunkIndex"] = {
            "type": "variable",
            "originalChunkSize": 200,
            "originalFileSize": 500,
            "transformedChunks": text,
        }

    return change


def put(*path: str, value: Any) -> Callable[[Fields], None]:
    def change(fields: Fields) -> None:
        *above, name = path
        for step in above:
            fields = fields[step]
        fields[name] = value

    return change


LIES = [
    pytest.param(put("version", value="2"), "version", id="version"),
    pytest.param(put("version", value=1), "version", id="version is a number"),
    pytest.param(put("chunkIndex", value=None), "chunkIndex", id="no chunks"),
    pytest.param(put("chunkIndex", "type", value="other"), "chunkIndex.type", id="type"),
    pytest.param(put("chunkIndex", "originalChunkSize", value=0), "originalChunkSize", id="chunk of 0"),
    pytest.param(put("chunkIndex", "originalChunkSize", value=2**40), "originalChunkSize", id="chunk above int32"),
    pytest.param(put("chunkIndex", "originalFileSize", value=-1), "originalFileSize", id="file below 0"),
    pytest.param(put("chunkIndex", "originalFileSize", value=2**31 - 1), "chunks", id="more chunks than are read"),
    pytest.param(put("chunkIndex", "transformedChunkSize", value=-1), "transformedChunkSize", id="stored below 0"),
    pytest.param(put("chunkIndex", "finalTransformedChunkSize", value=True), "a number", id="a flag as a number"),
    pytest.param(put("segmentIndexes", "offset", "position", value=-1), "offset.position", id="position"),
    pytest.param(put("segmentIndexes", "offset", "size", value=2**31), "offset.size", id="size"),
    pytest.param(put("segmentIndexes", "timestamp", value=[]), "timestamp", id="a list as a slice"),
    pytest.param(put("compression", value="yes"), "compression", id="compression"),
    pytest.param(put("encryption", value={"dataKey": "key1:?", "aad": ""}), "base64", id="no base64"),
    pytest.param(put("encryption", value={"dataKey": "key1:"}), "aad", id="no aad"),
    pytest.param(put("remoteLogSegmentMetadata", "startOffset", value=-1), "startOffset", id="start"),
    pytest.param(put("remoteLogSegmentMetadata", "startOffset", value=2**63 - 1), "startOffset", id="start above all"),
    pytest.param(put("remoteLogSegmentMetadata", "segmentLeaderEpochs", value={"x": 1}), "Epochs", id="epoch"),
    pytest.param(put("remoteLogSegmentMetadata", "segmentLeaderEpochs", value={"1": -1}), "Epochs", id="epoch start"),
    pytest.param(variable(encoded_sizes([200, 200])), "3 chunks", id="a size too few"),
    pytest.param(variable(encoded_sizes([1] * 9)), "at most 3 chunks", id="sizes too many"),
    pytest.param(variable(b"\0" * 10_000_000), "zstd", id="sizes above the limit"),
]


@pytest.mark.parametrize(("change", "field"), LIES)
def test_a_manifest_that_lies_is_refused(change: Callable[[Fields], None], field: str, tmp_path: Path) -> None:
    fields = manifest_of(tmp_path)
    change(fields)
    with pytest.raises(CorruptManifestError, match=field) as caught:
        parsed(fields)
    assert caught.value.path == "the manifest"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"version":"1","version":"1"}', b"[" * 100_000, b"1" * 10_000],
    ids=["nothing", "half", "list", "no text", "twice", "deep", "number"],
)
def test_what_is_no_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptManifestError, match="malformed the manifest"):
        parse_manifest(content, path="the manifest")
