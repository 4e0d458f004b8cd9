"""Drive the compiled decoder over the byte ranges of a plan: preads in, columns out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kstore._core import ColumnBuffer, ColumnDecoder, Columns
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, UnsupportedMagicError
from kstore.log.env import DEFAULT_ENV, Env, FileIdentity, ReadFile, open_listed
from kstore.log.plan import FileRange, ScanRange
from kstore.log.replaced import ListedFile, change_behind
from kstore.log.segment_records import cut_off

Mode: TypeAlias = Literal["copy", "view", "string"]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which columns to decode, and how: key and value are None, "copy", "view" or "string"."""

    key: Mode | None = None
    value: Mode | None = None
    offset: bool = False
    timestamp: bool = False
    headers: bool = False
    verify_crc: bool = True


def scan_columns(
    scan_range: ScanRange,
    selection: Selection,
    *,
    batch_bytes: int,
    config: LogConfig,
    env: Env = DEFAULT_ENV,
) -> Iterator[Columns]:
    """Decode the records of one range, control records left out, into Columns of about batch_bytes.

    Raises: CorruptRecordError, InvalidRecordError, DecompressionError, Unsupported...Error, StorageError;
        LogReplacedError if a file is not the one that was planned any more.
    Cost: one pass; preads of config.read_chunk_bytes into a kept buffer; memory of one chunk, one Columns and one
        decompressed batch.
    """
    decoder = ColumnDecoder(
        key=selection.key,
        value=selection.value,
        offset=selection.offset,
        timestamp=selection.timestamp,
        headers=selection.headers,
        verify_crc=selection.verify_crc,
        batch_bytes=batch_bytes,
        max_batch_bytes=config.max_batch_bytes,
        max_decompressed_bytes=config.max_decompressed_bytes,
        decompress=decompress,
        start_offset=scan_range.start_offset,
        end_offset=scan_range.end_offset,
        aborted=scan_range.aborted,
    )
    keeps_chunks = "view" in (selection.key, selection.value)
    identities = dict(scan_range.identities)
    for piece in scan_range.files:
        identity = identities.get(piece.path)
        decoder.start_file(
            position=piece.start_position,
            end_position=piece.end_position,
            base_offset=piece.base_offset,
            next_base_offset=piece.next_base_offset,
            path=piece.path,
            finds_end=piece.finds_end,
        )
        try:
            with closing(_opened(piece.path, identity, env)) as file:
                reader = _ChunkReader(file, piece.path, end_position=piece.end_position, config=config)
                while (status := decoder.run()) != "done":
                    if status == "full":
                        yield decoder.take()
                    else:
                        decoder.feed(
                            reader.read(position=decoder.position, needed=decoder.needed, fresh=keeps_chunks),
                            decoder.position,
                        )
        except (CorruptRecordError, UnsupportedMagicError) as error:
            listed = None if identity is None else _listed(piece, identity)
            change = change_behind(error, listed, config=config, env=env)
            if change is None:
                raise
            raise change from error
    if decoder.row_count:
        yield decoder.take()


def _opened(path: str, identity: FileIdentity | None, env: Env) -> ReadFile:
    return env.open_read(path) if identity is None else open_listed(path, identity, env)


def _listed(piece: FileRange, identity: FileIdentity) -> ListedFile:
    return ListedFile(piece.path, piece.base_offset, piece.next_base_offset, piece.end_position, identity)


class _ChunkReader:
    """Reads chunks of one file into a kept buffer, or into a fresh one where Arrow views keep the last."""

    def __init__(self, file: ReadFile, path: str, *, end_position: int, config: LogConfig) -> None:
        self._file = file
        self._path = path
        self._end_position = end_position
        self._config = config
        self._buffer: ColumnBuffer | None = None

    def read(self, *, position: int, needed: int, fresh: bool) -> memoryview:
        size = min(max(self._config.read_chunk_bytes, needed), self._end_position - position)
        if fresh or self._buffer is None or len(self._buffer) < size:
            self._buffer = ColumnBuffer(size)
        view = memoryview(self._buffer)[:size]
        got = self._file.pread_into(view, position=position)
        if got < min(needed, size):
            raise cut_off(self._path, position, expected=needed, found=got)
        return view[:got]
