"""Tiers as plugins write them, with what a broker notes of them; every byte is made here or by the reference codec."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import zstandard
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.making.batches import index_entries, record, write_partition
from tests.reference import codec as reference
from tests.reference.codec import Header

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAw"
STARTED, FINISHED, DELETING, DELETED = range(4)
# Of every segment that is encrypted.
DATA_KEY, AAD = bytes(range(32)), b"a" * 32
Epochs = Sequence[tuple[int, int]]
# Version 1, the CRC of what follows, no entry.
EMPTY_SNAPSHOT = struct.pack(">hI", 1, reference.crc32c(bytes(4))) + bytes(4)


def text_of(number: int) -> str:
    """An id of 16 bytes as Kafka writes it."""
    return base64.urlsafe_b64encode(number.to_bytes(16, "big")).rstrip(b"=").decode()


class Key(NamedTuple):
    """An RSA key pair and its id in a ring."""

    key_id: str
    private: rsa.RSAPrivateKey

    def write(self, directory: Path) -> Path:
        """Write the private key in PEM."""
        path = directory / f"{self.key_id}.pem"
        path.write_bytes(self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return path

    def wrap(self, data_key: bytes) -> bytes:
        """RSA-OAEP with SHA3-512 as hash and for MGF1 (RFC 8017, 7.1.1)."""
        size, digest = self.private.key_size // 8, hashlib.sha3_512
        length = digest().digest_size
        data = digest().digest() + bytes(size - len(data_key) - 2 * length - 2) + b"\x01" + data_key
        seed = bytes(range(length))
        masked = xor(data, mask(seed, len(data)))
        block = b"\x00" + xor(seed, mask(masked, length)) + masked
        numbers = self.private.public_key().public_numbers()
        return pow(int.from_bytes(block, "big"), numbers.e, numbers.n).to_bytes(size, "big")


def mask(seed: bytes, size: int) -> bytes:
    return b"".join(hashlib.sha3_512(seed + struct.pack(">I", at)).digest() for at in range(size // 64 + 1))[:size]


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(first ^ second for first, second in zip(one, other, strict=True))


@cache
def key(key_id: str = "key1") -> Key:
    """A key pair of 2048 bits; the same one for an id."""
    return Key(key_id, rsa.generate_private_key(public_exponent=65537, key_size=2048))


class Uploaded(NamedTuple):
    """A segment in a tier. stem: the path of its objects without a suffix."""

    segment_id: str
    topic_id: str
    start: int
    end: int
    size: int
    epochs: tuple[tuple[int, int], ...]
    max_timestamp_ms: int
    stem: str

    def path(self, suffix: str) -> Path:
        return Path(self.stem + suffix)


@dataclass(kw_only=True)
class Tier:
    """Uploads segments of one partition.

    layout: "aiven", "aiven-2023" (each index an object) or "local". chunk_bytes, is_compressed, key: of Aiven's.
    """

    path: Path
    layout: str = "aiven"
    topic: str = "t"
    topic_id: str = TOPIC_ID
    partition: int = 0
    prefix: str = ""
    chunk_bytes: int = 200
    is_compressed: bool = False
    key: Key | None = None
    count: int = field(default=0)

    def upload(
        self,
        segment: Sequence[bytes],
        lineage: Epochs = ((0, 0),),
        *,
        end: int | None = None,
        segment_id: str | None = None,
        is_finished: bool = True,
        aborted: bytes | None = None,
        snapshot: bytes | None = None,
    ) -> Uploaded:
        """Upload one segment, with the epochs of its log up to its end."""
        self.count += 1
        start = Header.unpack(segment[0]).base_offset
        last = Header.unpack(segment[-1]).last_offset if end is None else end
        data = b"".join(segment)
        segment_id = segment_id or text_of((self.count << 64) + int.from_bytes(os.urandom(7), "big"))
        own = [entry for entry in lineage if start < entry[1] <= last]
        before = [entry for entry in lineage if entry[1] <= start]
        epochs = tuple([(before[-1][0], start), *own] if before else own)
        timestamp = max(Header.unpack(one).max_timestamp_ms for one in segment)
        stem = self.directory / f"{start:020d}-{segment_id}"
        made = Uploaded(segment_id, self.topic_id, start, last, len(data), epochs, timestamp, str(stem))
        self.directory.mkdir(parents=True, exist_ok=True)
        sides = side_files(segment, lineage, end=last) | {"transaction": aborted}
        if snapshot is not None:
            sides["producerSnapshot"] = snapshot
        self.write(made, data, sides, is_finished=is_finished)
        return made

    def write(
        self, made: Uploaded, data: bytes, sides: Mapping[str, bytes | None], *, is_finished: bool = True
    ) -> None:
        """Write the objects of a segment with this log and these side files, whatever is in them."""
        write = self._write_plain if self.layout == "local" else self._write_aiven
        write(made, data, sides, is_finished=is_finished)

    @property
    def directory(self) -> Path:
        if self.layout == "local":
            return self.path / f"{self.topic}-{self.partition}-{self.topic_id}"
        return self.path / f"{self.prefix}{self.topic}-{self.topic_id}" / str(self.partition)

    def _write_plain(
        self, made: Uploaded, data: bytes, sides: Mapping[str, bytes | None], *, is_finished: bool
    ) -> None:
        made.path(".log").write_bytes(data if is_finished else data[: len(data) // 2])
        for name, content in sides.items():
            if content is not None and is_finished:
                made.path(LOCAL_SUFFIXES[name]).write_bytes(content)

    def _write_aiven(
        self, made: Uploaded, data: bytes, sides: Mapping[str, bytes | None], *, is_finished: bool
    ) -> None:
        data_key, aad = DATA_KEY, AAD
        sizes, stored = [], b""
        for at in range(0, len(data), self.chunk_bytes):
            chunk = data[at : at + self.chunk_bytes]
            chunk = zstandard.ZstdCompressor(write_content_size=True).compress(chunk) if self.is_compressed else chunk
            chunk = self._sealed(chunk, data_key, aad)
            sizes.append(len(chunk))
            stored += chunk
        made.path(".log").write_bytes(stored if is_finished else stored[: len(stored) // 2])
        if not is_finished:
            return
        slices: dict[str, dict[str, int] | None] = {}
        indexes = b""
        for name, content in sides.items():
            if content is None:
                slices[name] = None
                continue
            sealed = self._sealed(content, data_key, aad) if content else b""
            slices[name] = {"position": len(indexes), "size": len(sealed)}
            indexes += sealed
            if self.layout == "aiven-2023":
                made.path(OLD_SUFFIXES[name]).write_bytes(sealed)
        if self.layout == "aiven":
            made.path(".indexes").write_bytes(indexes)
        manifest: dict[str, Any] = {"version": "1", "chunkIndex": self._chunk_index(len(data), sizes)}
        if self.layout == "aiven":
            manifest["segmentIndexes"] = slices
        manifest["compression"] = self.is_compressed
        if self.key is not None:
            wrapped = base64.b64encode(self.key.wrap(data_key)).decode()
            manifest["encryption"] = {
                "dataKey": f"{self.key.key_id}:{wrapped}",
                "aad": base64.b64encode(aad).decode(),
            }
        manifest["remoteLogSegmentMetadata"] = self._written(made)
        made.path(".rsm-manifest").write_text(json.dumps(manifest))

    def _sealed(self, content: bytes, data_key: bytes, aad: bytes) -> bytes:
        if self.key is None:
            return content
        iv = os.urandom(12)
        return iv + AESGCM(data_key).encrypt(iv, content, aad)

    def _chunk_index(self, size: int, sizes: Sequence[int]) -> dict[str, Any]:
        common = {"originalChunkSize": self.chunk_bytes, "originalFileSize": size}
        if not self.is_compressed:
            return {
                "type": "fixed",
                **common,
                "transformedChunkSize": sizes[0],
                "finalTransformedChunkSize": sizes[-1],
            }
        encoded = zstandard.ZstdCompressor(write_content_size=True).compress(encoded_sizes(sizes))
        return {"type": "variable", **common, "transformedChunks": base64.b64encode(encoded).decode()}

    def _written(self, made: Uploaded) -> dict[str, Any]:
        return {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": made.topic_id,
                    "topicPartition": {"topic": self.topic, "partition": self.partition},
                },
                "id": made.segment_id,
            },
            "startOffset": made.start,
            "endOffset": made.end,
            "maxTimestampMs": made.max_timestamp_ms,
            "brokerId": 1,
            "eventTimestampMs": 1,
            "segmentLeaderEpochs": {str(epoch): start for epoch, start in made.epochs},
        }

    def event(self, made: Uploaded, state: int) -> bytes:
        """The value of a record of `__remote_log_metadata`: of the first state the segment, else an update."""
        name = self.topic.encode()
        raw = base64.urlsafe_b64decode(made.topic_id + "=="), base64.urlsafe_b64decode(made.segment_id + "==")
        place = bytes((len(name) + 1,)) + name + raw[0] + struct.pack(">i", self.partition) + b"\0"
        segment = place + raw[1] + b"\0"
        if state != STARTED:
            return b"\x01\x01\x00" + segment + struct.pack(">iq", 1, 1) + b"\0" + bytes((state,)) + b"\0"
        epochs = b"".join(struct.pack(">iqx", epoch, start) for epoch, start in made.epochs)
        return (
            b"\x01\x00\x00"
            + segment
            + struct.pack(">qqiqq", made.start, made.end, 1, made.max_timestamp_ms, 1)
            + bytes((len(made.epochs) + 1,))
            + epochs
            + struct.pack(">i", made.size)
            + b"\0"
            + bytes((state,))
            + b"\0"
        )


def side_files(segment: Sequence[bytes], lineage: Epochs, *, end: int) -> dict[str, bytes | None]:
    """The side files of a segment without aborted transactions, by their names in a manifest."""
    offsets, timestamps = index_entries(segment, base_offset=Header.unpack(segment[0]).base_offset)
    return {
        "offset": reference.write_offset_index(offsets, slots=None),
        "timestamp": reference.write_time_index(timestamps, slots=None),
        "producerSnapshot": EMPTY_SNAPSHOT,
        "leaderEpoch": reference.write_checkpoint([entry for entry in lineage if entry[1] <= end]).encode(),
        "transaction": None,
    }


LOCAL_SUFFIXES = {
    "offset": ".index",
    "timestamp": ".timeindex",
    "producerSnapshot": ".snapshot",
    "leaderEpoch": ".leader_epoch_checkpoint",
    "transaction": ".txnindex",
}
OLD_SUFFIXES = {**LOCAL_SUFFIXES, "leaderEpoch": ".leader-epoch-checkpoint"}


def encoded_sizes(sizes: Sequence[int]) -> bytes:
    """Sizes of chunks with a width of two bytes."""
    if len(sizes) == 1:
        return struct.pack(">ii", 1, sizes[0])
    base = min(sizes[:-1])
    above = b"".join(struct.pack(">H", size - base) for size in sizes[:-1])
    return struct.pack(">iib", len(sizes), base, 2) + above + struct.pack(">i", sizes[-1])


def write_events(root: Path, events: Sequence[bytes], *, partition: int = 0) -> Path:
    """Write a partition of `__remote_log_metadata`, one batch an event."""
    batches = [reference.write_batch([record(offset, value)]) for offset, value in enumerate(events)]
    directory = root / f"__remote_log_metadata-{partition}"
    if directory.exists():
        (log,) = directory.glob("*.log")
        log.write_bytes(b"".join(batches))
        return directory
    return write_partition(root, [batches], topic="__remote_log_metadata", partition=partition)


def write_epochs(directory: Path, epochs: Epochs) -> None:
    """Replace a partition's leader-epoch-checkpoint."""
    (directory / "leader-epoch-checkpoint").write_text(reference.write_checkpoint(epochs))
