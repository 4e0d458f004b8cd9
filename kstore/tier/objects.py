"""The views of a segment's objects: its log, decoded chunk by chunk, its side files, and what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kstore.compression import decompress_frame
from kstore.env import ENOENT, FileKind, FileStatus, Identity, ObjectIdentity, ReadFile
from kstore.env.cache import SharedCache
from kstore.env.tiered import SeesObjects, View
from kstore.env.tiered.views import FileWindow, ViewFile
from kstore.errors import (
    CorruptIndexError,
    CorruptionError,
    CorruptManifestError,
    CorruptRecordError,
    CorruptSnapshotError,
    DecompressionError,
    MemoryLimitError,
    RemoteSegmentError,
    StorageError,
)
from kstore.log.files.names import LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX
from kstore.tier.chunks import Chunk, ChunkIndex, plain_chunks
from kstore.tier.keys import ENCRYPTION_BYTES, KeyRing, Sealed
from kstore.tier.manifest import MAX_MANIFEST_BYTES, Manifest, Slice, parse_manifest

MANIFEST_SUFFIX = ".rsm-manifest"
INDEXES_SUFFIX = ".indexes"
# A chunk is decoded as a whole, since its tag covers it; a manifest may claim any size.
MAX_CHUNK_BYTES = 256 * 1024 * 1024
# What all open segments keep of decoded chunks.
CHUNKS_LIMIT = 64 * 1024 * 1024
MAX_SIDE_FILE_BYTES = 1 << 30
# In place of bytes that cannot be had: a length of -1, which no batch has.
_NO_BYTE = b"\xff"

_CHUNKS: SharedCache[bytes] = SharedCache(limit=CHUNKS_LIMIT, weigh=len, drop=lambda _: None)


class SegmentPlace(NamedTuple):
    """Where the objects of a segment are, and how they are read.

    Args: stem: their path without a suffix; segment_id: as in their names; has_manifest: whether they are Aiven's,
        and may be transformed; keys: for those that are encrypted.
    """

    stem: str
    segment_id: str
    has_manifest: bool
    keys: KeyRing

    def path(self, suffix: str) -> str:
        """Return the path of one of the objects."""
        return self.stem + suffix


def manifest_of(place: SegmentPlace, env: SeesObjects) -> Manifest:
    """Return the manifest of a segment, read once for an Env.

    Raises: StorageError, CorruptManifestError.  Cost: a request, the first time.
    """
    path = place.path(MANIFEST_SUFFIX)

    def read() -> Manifest:
        try:
            content = env.remote.read_untrusted(path, max_bytes=MAX_MANIFEST_BYTES)
        except StorageError as error:
            if error.errno is not None:
                raise
            raise CorruptManifestError(f"malformed {path}: {error}", path=path, reason=str(error)) from error
        return parse_manifest(content, path=path)

    with env.kept.borrow(place.segment_id, path, read) as kept:
        if not isinstance(kept, Manifest):
            raise TypeError(f"expected a manifest, got {kept!r}")
        return kept


def sealed_of(place: SegmentPlace, env: SeesObjects) -> Sealed | None:
    """Return what decrypts a segment, None if it is not encrypted.  Raises: TierKeyError; as manifest_of."""
    key = manifest_of(place, env).key if place.has_manifest else None
    return None if key is None else Sealed(place.keys.open(key, path=place.path(MANIFEST_SUFFIX)), key.aad)


@dataclass(frozen=True)
class LogView(View):
    """The log of a segment, or the part [start, end) of it that is of the log. size_in_bytes: of the whole segment."""

    place: SegmentPlace
    size_in_bytes: int
    first_offset: int
    last_offset: int
    start: int = 0
    end: int | None = None

    @property
    def _end(self) -> int:
        return self.size_in_bytes if self.end is None else self.end

    def status(self, env: SeesObjects) -> FileStatus:
        return shown_status(self.place.path(LOG_SUFFIX), self._end - self.start, self.place.segment_id, env)

    def open(self, env: SeesObjects, path: str) -> ReadFile:
        try:
            whole = self._whole(env, path)
        except CorruptManifestError as error:
            reason = f"the manifest {self.place.path(MANIFEST_SUFFIX)} cannot be used: {error.reason}"
            absent = AbsentView(reason, self.first_offset, self.last_offset, self._end - self.start)
            return AbsentFile(absent, path, name=self.place.segment_id)
        if self.start == 0 and self.end is None:
            return whole
        identity = _identity(self._end - self.start, self.place.segment_id)
        return FileWindow(whole, path=path, identity=identity, start=self.start, end=self._end)

    def _whole(self, env: SeesObjects, path: str) -> ReadFile:
        identity = _identity(self.size_in_bytes, self.place.segment_id)
        manifest = manifest_of(self.place, env) if self.place.has_manifest else None
        if manifest is not None and manifest.chunks.file_bytes != self.size_in_bytes:
            reason = f"expected a segment of {self.size_in_bytes} bytes, found one of {manifest.chunks.file_bytes}"
            raise CorruptManifestError(reason, path=self.place.path(MANIFEST_SUFFIX), reason=reason)
        sealed = sealed_of(self.place, env)
        file = env.remote.open_read(self.place.path(LOG_SUFFIX))
        if manifest is not None and not manifest.is_plain:
            return ChunkedFile(
                file,
                manifest.chunks,
                path=path,
                identity=identity,
                is_compressed=manifest.is_compressed,
                sealed=sealed,
            )
        if file.size() == self.size_in_bytes:
            return FileWindow(file, path=path, identity=identity, start=0, end=self.size_in_bytes)
        # Chunks that are stored as they are: those that the object does not have are damage.
        chunks = plain_chunks(self.size_in_bytes)
        return ChunkedFile(file, chunks, path=path, identity=identity, is_compressed=False, sealed=None)


@dataclass(frozen=True)
class SideFileView(View):
    """A side file of a segment: an object of its own, or a slice of `.indexes`. suffix: as in the manifest's slices."""

    place: SegmentPlace
    suffix: str
    object_suffix: str

    def status(self, env: SeesObjects) -> FileStatus:
        try:
            stored = self._slice(env)
        except CorruptManifestError as error:
            raise StorageError(f"cannot stat {self.place.stem}: {error}", path=self.place.stem, errno=ENOENT) from error
        size = self._plain_size(stored, env)
        path = self.place.path(self.object_suffix if stored is None else INDEXES_SUFFIX)
        return shown_status(path, size, self.place.segment_id, env)

    def open(self, env: SeesObjects, path: str) -> ReadFile:
        try:
            return BytesFile(self.read(env, path), path=path, name=self.place.segment_id)
        except CorruptionError as error:
            # As a file that cannot be read: what is read with it goes on without it.
            raise StorageError(f"cannot read {path}: {error}", path=path) from error

    def read(self, env: SeesObjects, path: str) -> bytes:
        """Return the content.

        Raises: CorruptIndexError, CorruptSnapshotError for bytes that are damaged; StorageError.
        Cost: one range of an object, and the manifest.
        """
        stored = self._slice(env)
        try:
            data = self._stored(stored, env)
            sealed = sealed_of(self.place, env) if data else None
            return data if sealed is None else sealed.open(data)
        except ValueError as error:
            damaged = CorruptSnapshotError if self.suffix == PRODUCER_SNAPSHOT_SUFFIX else CorruptIndexError
            raise damaged(f"damage in {path}: {error}", path=path, position=0, reason=str(error)) from error

    def _stored(self, stored: Slice | None, env: SeesObjects) -> bytes:
        if stored is None:
            return bytes(env.remote.read_untrusted(self.place.path(self.object_suffix), max_bytes=MAX_SIDE_FILE_BYTES))
        if not stored.size:
            return b""
        with env.remote.open_read(self.place.path(INDEXES_SUFFIX)) as file:
            if file.size() - stored.position < stored.size:
                found = f"of the {file.size()} of {file.path}"
                raise ValueError(f"expected {stored.size} bytes at position {stored.position} {found}")
            return file.pread(stored.size, position=stored.position)

    def _slice(self, env: SeesObjects) -> Slice | None:
        """Return the slice of `.indexes`, None for an object of its own."""
        indexes = manifest_of(self.place, env).indexes if self.place.has_manifest else None
        return None if indexes is None else indexes.get(self.suffix, Slice(0, 0))

    def _plain_size(self, stored: Slice | None, env: SeesObjects) -> int:
        if stored is None:
            status = env.remote.stat(self.place.path(self.object_suffix))
            size = 0 if status is None else status.size_in_bytes
        else:
            size = stored.size
        is_sealed = self.place.has_manifest and manifest_of(self.place, env).key is not None
        return max(size - ENCRYPTION_BYTES, 0) if is_sealed else size


@dataclass(frozen=True)
class TextView(View):
    """A small file that no store has: it follows from what a tier says."""

    content: bytes

    def status(self, env: SeesObjects) -> FileStatus:  # noqa: ARG002
        size = len(self.content)
        return FileStatus(FileKind.FILE, size, (size, 0, 0), _identity(size, ""))

    def open(self, env: SeesObjects, path: str) -> ReadFile:  # noqa: ARG002
        return BytesFile(self.content, path=path, name="")


@dataclass(frozen=True)
class AbsentView(View):
    """Records that the tier should have and does not give, in the place of their segment; reading raises why.

    size_in_bytes: of the segment if it is known; for a gap that of a header, so that it is not an empty segment.
    """

    reason: str
    first_offset: int
    last_offset: int
    size_in_bytes: int

    def status(self, env: SeesObjects) -> FileStatus:  # noqa: ARG002
        size = self.size_in_bytes
        return FileStatus(FileKind.FILE, size, (size, 0, 0), _identity(size, ""))

    def open(self, env: SeesObjects, path: str) -> ReadFile:  # noqa: ARG002
        return AbsentFile(self, path)


class BytesFile(ViewFile):
    """Bytes in memory as a file."""

    def __init__(self, content: bytes, *, path: str, name: str) -> None:
        super().__init__(path, _identity(len(content), name))
        self._content = content

    def size(self) -> int:
        return len(self._content)

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        part = self._content[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Does nothing."""


class ChunkedFile(ViewFile):
    """A log whose object has transformed chunks: compressed frames, encrypted, or both.

    Bytes come only from chunks that are whole: their tag is right, and so is the size of what they decompress to.
    Raises: CorruptRecordError with the position of a damaged chunk in the log; MemoryLimitError for one above
        MAX_CHUNK_BYTES; StorageError.
    Memory: one chunk as stored and one decoded for each read; up to CHUNKS_LIMIT bytes of decoded ones stay
        for all files.
    Threads: as ReadFile.  Cost: each chunk is requested and decoded once while it is kept.
    """

    def __init__(
        self,
        file: ReadFile,
        chunks: ChunkIndex,
        *,
        path: str,
        identity: Identity,
        is_compressed: bool,
        sealed: Sealed | None,
    ) -> None:
        super().__init__(path, identity)
        self._file = file
        self._chunks = chunks
        self._is_compressed = is_compressed
        self._sealed = sealed

    def size(self) -> int:
        return self._chunks.file_bytes

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        for part in self._parts(len(view), position=position):
            view[done : done + len(part)] = part
            done += len(part)
        return done

    def pread(self, size: int, *, position: int) -> bytes:
        parts = list(self._parts(size, position=position))
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def will_read(self, *, position: int, end_position: int) -> None:
        if position < end_position <= self._chunks.file_bytes:
            last = self._chunks.chunk(self._chunks.numbers(position=position, end_position=end_position)[-1])
            self._file.will_read(
                position=self._chunks.stored_position(position), end_position=last.stored_position + last.stored_bytes
            )

    def around_damage(self) -> ReadFile:
        return _FilledChunks(self, self._chunks)

    def why_missing(self, position: int, *, end_position: int) -> str | None:
        end = min(end_position, self._chunks.file_bytes)
        if position >= end:
            return None
        for number in self._chunks.numbers(position=position, end_position=end):
            try:
                self.chunk(number)
            except CorruptRecordError as error:
                return error.reason
        return None

    def close(self) -> None:
        # A finalizer of a log may call this.
        _CHUNKS.release_soon(self)
        self._file.close()

    def chunk(self, number: int) -> bytes:
        """Return the plain bytes of a chunk, kept or decoded.  Raises: as the class."""
        with _CHUNKS.borrow(self, str(number), lambda: self._decoded(self._chunks.chunk(number))) as content:
            return content

    def _parts(self, size: int, *, position: int) -> Iterator[memoryview]:
        end = min(position + size, self._chunks.file_bytes)
        if position >= end:
            return
        for number in self._chunks.numbers(position=position, end_position=end):
            start = number * self._chunks.chunk_bytes
            content = memoryview(self.chunk(number))
            yield content[max(position - start, 0) : min(end - start, len(content))]

    def _decoded(self, chunk: Chunk) -> bytes:
        largest = max(chunk.plain_bytes, chunk.stored_bytes)
        if largest > MAX_CHUNK_BYTES:
            raise MemoryLimitError(
                f"chunk {chunk.number} of {self._file.path} has {largest} bytes: at most {MAX_CHUNK_BYTES} are decoded",
                path=self.path,
                position=chunk.position,
                limit=MAX_CHUNK_BYTES,
                found=largest,
            )
        data = self._file.pread(chunk.stored_bytes, position=chunk.stored_position)
        try:
            if len(data) < chunk.stored_bytes:
                raise ValueError(f"expected {chunk.stored_bytes} bytes, found {len(data)}")
            if self._sealed is not None:
                data = self._sealed.open(data)
            if self._is_compressed:
                data = decompress_frame(data, chunk.plain_bytes)
            if len(data) != chunk.plain_bytes:
                raise ValueError(f"expected {chunk.plain_bytes} plain bytes, found {len(data)}")
        except (ValueError, DecompressionError, MemoryLimitError) as error:
            reason = f"chunk {chunk.number} of {self._file.path} is damaged: {error}"
            message = f"damage at position {chunk.position} of {self.path}: {reason}"
            raise CorruptRecordError(message, path=self.path, position=chunk.position, reason=reason) from error
        return data


class _FilledChunks(ViewFile):
    """A ChunkedFile whose damaged chunks have a byte of which no batch can be made."""

    def __init__(self, file: ChunkedFile, chunks: ChunkIndex) -> None:
        super().__init__(file.path, file.identity())
        self._file = file
        self._chunks = chunks

    def size(self) -> int:
        return self._file.size()

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        end = min(position + len(view), self.size())
        done = 0
        while position + done < end:
            start = position + done
            chunk = self._chunks.chunk(start // self._chunks.chunk_bytes)
            stop = min(end, chunk.position + chunk.plain_bytes)
            try:
                part = self._file.pread(stop - start, position=start)
            except CorruptRecordError:
                part = _NO_BYTE * (stop - start)
            view[done : done + len(part)] = part
            done += len(part)
        return done

    def close(self) -> None:
        """Does nothing: the file is closed by whom it was opened."""


class AbsentFile(ViewFile):
    """The file of an AbsentView.  Raises: RemoteSegmentError from every read."""

    def __init__(self, view: AbsentView, path: str, *, name: str = "") -> None:
        super().__init__(path, _identity(view.size_in_bytes, name))
        self._view = view

    def size(self) -> int:
        return self._view.size_in_bytes

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:  # noqa: ARG002
        if not len(buffer):
            return 0
        first, last = self._view.first_offset, self._view.last_offset
        raise RemoteSegmentError(
            f"records [{first}, {last}] of {self.path} cannot be read: {self._view.reason}",
            path=self.path,
            reason=self._view.reason,
            first_offset=first,
            last_offset=last,
        )

    def why_missing(self, position: int, *, end_position: int) -> str | None:
        return self._view.reason if position < end_position else None

    def around_damage(self) -> ReadFile:
        return _NoBytesFile(self.path, _identity(self.size(), ""))

    def close(self) -> None:
        """Does nothing."""


class _NoBytesFile(ViewFile):
    """A file of one byte, again and again, of which no batch can be made."""

    def size(self) -> int:
        size: int = self.identity()[0]
        return size

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        size = max(min(len(view), self.size() - position), 0)
        view[:size] = _NO_BYTE * size
        return size

    def close(self) -> None:
        """Does nothing."""


def shown_status(path: str, size_in_bytes: int, name: str, env: SeesObjects) -> FileStatus:
    """Return the status of a view of an object: its size as shown, and the time of the object.

    Raises: StorageError with errno ENOENT if there is no such object.
    """
    status = env.remote.stat(path)
    if status is None:
        raise StorageError(f"cannot stat {path}: no such object", path=path, errno=ENOENT)
    return FileStatus(
        FileKind.FILE, size_in_bytes, (size_in_bytes, 0, status.identity[2]), _identity(size_in_bytes, name)
    )


def _identity(size_in_bytes: int, name: str) -> ObjectIdentity:
    return ObjectIdentity(size_in_bytes, 0, name)
