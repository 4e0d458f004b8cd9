"""The views of a segment's objects: its log, decoded chunk by chunk, its side files, and what is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from kstore._core import ColumnBuffer
from kstore.compression import decompress_frame_into
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
from kstore.tier.streaming import ChunkStreams, blocks_of, split_after

MANIFEST_SUFFIX = ".rsm-manifest"
INDEXES_SUFFIX = ".indexes"
# What all open segments keep of decoded chunks; a compressed one that is larger is read in blocks.
CHUNKS_LIMIT = 64 * 1024 * 1024
MAX_SIDE_FILE_BYTES = 1 << 30
# In place of bytes that cannot be had: a length of -1, which no batch has.
_NO_BYTE = b"\xff"

# A place between two batches is looked for this far in a chunk, so that all that is read for it is in that chunk.
_AFTER_SPLIT_BYTES = 128 * 1024
_LEAST_SPLIT_BYTES = 8 * _AFTER_SPLIT_BYTES
# Smaller chunks are copied together, since each part that a reader is given costs some calls.
_LEAST_PART_BYTES = 1024 * 1024


class _Decoded:
    """The plain bytes of a block, decoded by the first reader that asks for them while others wait for it."""

    __slots__ = ("_content", "_lock", "weight")

    def __init__(self, size_in_bytes: int) -> None:
        # Of those that cannot be read in blocks, as encrypted ones, a larger one is kept as long as it is the only one.
        self.weight = min(size_in_bytes, CHUNKS_LIMIT)
        self._lock = threading.Lock()
        self._content: memoryview | None = None

    def content(self, decode: Callable[[], memoryview]) -> memoryview:
        with self._lock:
            if self._content is None:
                self._content = decode()
            return self._content


_CHUNKS: SharedCache[_Decoded] = SharedCache(
    limit=CHUNKS_LIMIT, weigh=lambda decoded: decoded.weight, drop=lambda _: None
)


class _OpenChunks:
    """Under which number the decoded chunks of a segment are kept, as long as a file of it is open."""

    _numbers = count()

    def __init__(self) -> None:
        self.owner = next(self._numbers)

    def __del__(self) -> None:
        _CHUNKS.release_soon(self.owner)


# The files of a segment that one Env has opened have its one manifest, and its chunks in common.
_OPEN: WeakValueDictionary[ChunkIndex, _OpenChunks] = WeakValueDictionary()
_OPENING = threading.Lock()


def _opened(chunks: ChunkIndex) -> _OpenChunks:
    with _OPENING:
        found = _OPEN.get(chunks)
        if found is None:
            found = _OPEN[chunks] = _OpenChunks()
        return found


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

    with env.kept.lend(place.segment_id, path, read) as kept:
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
                max_decrypted_bytes=self.place.keys.max_bytes,
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
            return data if sealed is None else bytes(sealed.open(data))
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

    Bytes come only from chunks that are whole: their tag is right, and so is the size of what they decompress to. Of a
    compressed chunk above CHUNKS_LIMIT they come from blocks, as ChunkStreams gives them.
    Raises: CorruptRecordError with the position of a damaged chunk, or of the first damaged block, in the log;
        MemoryLimitError for an encrypted chunk above max_decrypted_bytes; StorageError.
    Memory: for each read one chunk as stored and one decoded, or what ChunkStreams takes; up to CHUNKS_LIMIT bytes of
        decoded ones stay for all files.
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
        max_decrypted_bytes: int = 0,
    ) -> None:
        super().__init__(path, identity)
        self._file = file
        self._chunks = chunks
        self._is_compressed = is_compressed
        self._sealed = sealed
        self._max_decrypted_bytes = max_decrypted_bytes
        self._streams = ChunkStreams(self._opened_frame)
        self._open: _OpenChunks | None = _opened(chunks)
        self._announced = range(0)
        self._passed = 0

    def size(self) -> int:
        return self._chunks.file_bytes

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        for part in self._parts(len(view), position=position):
            view[done : done + len(part)] = part
            done += len(part)
        if self._announced:
            self._let_go(position, end_position=position + done)
        return done

    def pread(self, size: int, *, position: int) -> bytes:
        parts = list(self._parts(size, position=position))
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    @property
    def has_parts(self) -> bool:
        return self._chunks.chunk_bytes >= _LEAST_PART_BYTES

    def part_at(self, position: int) -> memoryview | None:
        if not self.has_parts:
            return None
        if self._announced:
            self._let_go(self._passed, end_position=position)
        self._passed = position
        return next(self._parts(self._chunks.file_bytes - position, position=position), memoryview(b"")).toreadonly()

    def will_read(self, *, position: int, end_position: int) -> None:
        if position < end_position <= self._chunks.file_bytes:
            self._announced = range(position, end_position)
            self._passed = position
            last = self._chunks.chunk(self._chunks.numbers(position=position, end_position=end_position)[-1])
            self._file.will_read(
                position=self._chunks.stored_position(position), end_position=last.stored_position + last.stored_bytes
            )

    def split_target(self, target: int, *, position: int) -> int:
        size = self._chunks.chunk_bytes
        if target < self._chunks.file_bytes and self._is_streamed(chunk := self._chunks.chunk(target // size)):
            return split_after(chunk)
        if size < _LEAST_SPLIT_BYTES or target - position < 2 * size:
            return target
        # Both readers have the chunk with the split, so it is one of which the first reader needs only the beginning.
        return (target + size // 2) // size * size + _AFTER_SPLIT_BYTES

    def around_damage(self) -> ReadFile:
        return _FilledChunks(self)

    def why_missing(self, position: int, *, end_position: int) -> str | None:
        for block in self.blocks(position=position, end_position=end_position):
            try:
                self.content(block)
            except CorruptRecordError as error:
                return error.reason
        return None

    def close(self) -> None:
        # A finalizer of a log may call this.
        self._open = None
        self._streams.close()
        self._file.close()

    def blocks(self, *, position: int, end_position: int) -> Iterator[_Block]:
        """Yield what has bytes of [position, end_position), which may go beyond the end, in order."""
        end = min(end_position, self._chunks.file_bytes)
        if position >= end:
            return
        for number in self._chunks.numbers(position=position, end_position=end):
            chunk = self._chunks.chunk(number)
            if self._is_streamed(chunk):
                for at, start, size in blocks_of(chunk, position=position, end_position=end):
                    yield _Block(chunk, at, start, size)
            else:
                yield _Block(chunk, None, chunk.position, chunk.plain_bytes)

    def content(self, block: _Block) -> memoryview:
        """Return the plain bytes of a block, kept or decoded.  Raises: as the class."""
        opened = self._open
        if opened is None:
            return self._decoded(block)
        with _CHUNKS.lend(opened.owner, block.name, lambda: _Decoded(block.plain_bytes)) as decoded:
            try:
                return decoded.content(lambda: self._decoded(block))
            except BaseException:
                _CHUNKS.release_one(opened.owner, block.name)
                raise

    def _is_streamed(self, chunk: Chunk) -> bool:
        return self._is_compressed and max(chunk.plain_bytes, chunk.stored_bytes) > CHUNKS_LIMIT

    def _let_go(self, position: int, *, end_position: int) -> None:
        """Drop the blocks that a reader in order has read to their ends and from their beginnings on; another reader
        may go on in one that it has read in part.
        """
        opened, end = self._open, min(end_position, self._announced.stop)
        for block in self.blocks(position=position, end_position=end_position):
            is_passed = self._announced.start <= block.position and block.position + block.plain_bytes <= end
            if opened is not None and is_passed:
                _CHUNKS.release_one(opened.owner, block.name)

    def _parts(self, size: int, *, position: int) -> Iterator[memoryview]:
        end = position + size
        for block in self.blocks(position=position, end_position=end):
            start = block.position
            yield self.content(block)[max(position - start, 0) : min(end - start, block.plain_bytes)]

    def _decoded(self, block: _Block) -> memoryview:
        chunk = block.chunk
        self._check_memory(chunk)
        try:
            if block.number is not None:
                return memoryview(self._streams.block(chunk, block.number))
            data = self._decrypted(chunk)
            found = len(data)
            if self._is_compressed:
                frame, data = data, memoryview(ColumnBuffer(chunk.plain_bytes))
                found = decompress_frame_into(frame, data)
            if found != chunk.plain_bytes:
                raise ValueError(f"expected {chunk.plain_bytes} plain bytes, found {found}")
        except (ValueError, DecompressionError, MemoryLimitError) as error:
            reason = f"chunk {chunk.number} of {self._file.path} is damaged: {error}"
            message = f"damage at position {block.position} of {self.path}: {reason}"
            raise CorruptRecordError(message, path=self.path, position=block.position, reason=reason) from error
        return data

    def _check_memory(self, chunk: Chunk) -> None:
        largest = chunk.stored_bytes if self._is_compressed else max(chunk.plain_bytes, chunk.stored_bytes)
        if self._sealed is not None and largest > self._max_decrypted_bytes:
            raise MemoryLimitError(
                f"chunk {chunk.number} of {self._file.path} is encrypted as a whole and has {largest} bytes: at most "
                f"{self._max_decrypted_bytes} are decrypted (max_decrypted_bytes of LogConfig)",
                path=self.path,
                position=chunk.position,
                option="max_decrypted_bytes",
                limit=self._max_decrypted_bytes,
                found=largest,
            )

    def _decrypted(self, chunk: Chunk) -> memoryview:
        # As all buffers here not memory of the thread's own, whose pages would be new ones for each chunk.
        data = memoryview(ColumnBuffer(chunk.stored_bytes))
        found = self._file.pread_into(data, position=chunk.stored_position)
        if found < chunk.stored_bytes:
            raise ValueError(f"expected {chunk.stored_bytes} bytes, found {found}")
        return data if self._sealed is None else self._sealed.open(data)

    def _opened_frame(self, chunk: Chunk) -> Callable[[int], bytes]:
        """Return what reads the frame that a chunk is, from its start on."""
        position, end = chunk.stored_position, chunk.stored_position + chunk.stored_bytes
        frame = None if self._sealed is None else self._decrypted(chunk)

        def read(size: int) -> bytes:
            nonlocal position
            if frame is None:
                data = self._file.pread(min(size, end - position), position=position)
            else:
                data = bytes(frame[position - chunk.stored_position :][:size])
            position += len(data)
            return data

        return read


class _Block(NamedTuple):
    """A chunk, or a block of one that is read in blocks: its number there, and which bytes of the log it has."""

    chunk: Chunk
    number: int | None
    position: int
    plain_bytes: int

    @property
    def name(self) -> str:
        """Under which it is kept."""
        return f"{self.chunk.number} {self.number}"


class _FilledChunks(ViewFile):
    """A ChunkedFile whose damaged chunks have a byte of which no batch can be made."""

    def __init__(self, file: ChunkedFile) -> None:
        super().__init__(file.path, file.identity())
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        end, done = position + len(view), 0
        for block in self._file.blocks(position=position, end_position=end):
            start, stop = max(position, block.position), min(end, block.position + block.plain_bytes)
            part = view[done : done + stop - start]
            try:
                part[:] = self._file.content(block)[start - block.position : stop - block.position]
            except CorruptRecordError:
                part[:] = _NO_BYTE * len(part)
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
