"""rivals/limit.c, compiled when needed and called in this process on the same bytes as the other contestants."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.common import BENCH_DIRECTORY, Settings

SOURCE = BENCH_DIRECTORY / "rivals" / "limit.c"
# Compiled for this processor, with its fastest CRC instructions.
FLAGS = ("-O3", "-march=native", "-mpclmul", "-shared", "-fPIC")
PADDING_BYTES = 64
VIEW_BYTES = 16
FUNCTIONS = (
    "limit_copied",
    "limit_views",
    "limit_views_unchecked",
    "limit_crc",
    "limit_append",
    "limit_encode",
    "limit_messages",
    "limit_file_crc",
    "limit_file_copied",
    "limit_file_views",
)


class _Cursor(ctypes.Structure):
    _fields_ = [("segment", ctypes.c_void_p), ("size", ctypes.c_int64), ("position", ctypes.c_int64)]


COLUMN_NAMES = ("offset", "timestamp_us", "key_end", "value_end", "keys", "values", "key_view", "value_view")


class _Columns(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in COLUMN_NAMES]


@dataclass(frozen=True)
class Columns:
    """Columns that are filled repeatedly, one numpy array each."""

    offset: NDArray[np.int64]
    timestamp_us: NDArray[np.int64]
    key_end: NDArray[np.int32]
    value_end: NDArray[np.int32]
    keys: NDArray[np.uint8]
    values: NDArray[np.uint8]
    key_view: NDArray[np.uint8]
    value_view: NDArray[np.uint8]


def padded(data: bytes) -> NDArray[np.uint8]:
    """Return a copy of a segment with the padding that limit.c may read past its end."""
    array = np.zeros(len(data) + PADDING_BYTES, np.uint8)
    array[: len(data)] = np.frombuffer(data, np.uint8)
    return array


def _columns(column_bytes: int) -> Columns:
    # A fill may exceed column_bytes by one batch of 16 KiB, and a record has at least 8 bytes.
    rows = column_bytes // 8 + 4096
    room = column_bytes + 64 * 1024
    return Columns(
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(rows + 1, np.int32),
        np.zeros(rows + 1, np.int32),
        np.zeros(room, np.uint8),
        np.zeros(room, np.uint8),
        np.zeros(rows * VIEW_BYTES, np.uint8),
        np.zeros(rows * VIEW_BYTES, np.uint8),
    )


class Limit:
    """The compiled program over one padded segment. Unsafe for untrusted data; uncompressed batches only."""

    def __init__(self, library: ctypes.CDLL, segment: NDArray[np.uint8], *, column_bytes: int) -> None:
        self._library = library
        self.segment = segment
        self._size = len(segment) - PADDING_BYTES
        self._column_bytes = column_bytes
        self.columns = _columns(column_bytes)
        self._pointers = _Columns(*(getattr(self.columns, name).ctypes.data for name in COLUMN_NAMES))

    def fills(self, function: str) -> Iterator[int]:
        """Call the named function, which fills the columns, repeatedly; yield the number of rows of each fill."""
        fill = getattr(self._library, function)
        cursor = _Cursor(self.segment.ctypes.data, self._size, 0)
        at, to, column_bytes = ctypes.byref(cursor), ctypes.byref(self._pointers), ctypes.c_int64(self._column_bytes)
        while cursor.position < self._size:
            rows = fill(at, to, column_bytes)
            if rows <= 0:
                raise ValueError(f"{function}: batch at position {cursor.position} has a wrong CRC or record size")
            yield rows

    def check_crcs(self) -> int:
        """Check the CRC of each batch; return the total bytes of the batches that are correct."""
        cursor = _Cursor(self.segment.ctypes.data, self._size, 0)
        return int(self._library.limit_crc(ctypes.byref(cursor)))


def append_with_limit(library: ctypes.CDLL, segment: NDArray[np.uint8], descriptor: int) -> int:
    """Check the CRC of each batch of a padded segment and write it; return how many bytes were written."""
    cursor = _Cursor(segment.ctypes.data, len(segment) - PADDING_BYTES, 0)
    return int(library.limit_append(ctypes.byref(cursor), ctypes.c_int64(descriptor)))


class _File(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("descriptor", "size", "position", "chunk")),
        ("buffer", ctypes.c_void_p),
        ("held", _Cursor),
    ]


class FileLimit:
    """The compiled program over one .log file, read by preads of chunk_bytes into one reused buffer.

    As unsafe as Limit. A fill returns the rows of one chunk; views point into `segment`, the buffer.
    """

    def __init__(self, library: ctypes.CDLL, path: Path, *, chunk_bytes: int, stack: ExitStack) -> None:
        file = stack.enter_context(path.open("rb", buffering=0))
        self._library = library
        self._descriptor = file.fileno()
        self._size = path.stat().st_size
        self._chunk_bytes = chunk_bytes
        self.segment = np.zeros(chunk_bytes + PADDING_BYTES, np.uint8)
        self.columns = _columns(chunk_bytes)
        self._pointers = _Columns(*(getattr(self.columns, name).ctypes.data for name in COLUMN_NAMES))

    def _start(self) -> _File:
        return _File(self._descriptor, self._size, 0, self._chunk_bytes, self.segment.ctypes.data)

    def fills(self, function: str) -> Iterator[int]:
        """Call the named function, which fills the columns, repeatedly; yield the number of rows of each fill."""
        fill, file = getattr(self._library, function), self._start()
        at, to = ctypes.byref(file), ctypes.byref(self._pointers)
        column_bytes = ctypes.c_int64(2 * self._chunk_bytes)
        while file.position < self._size:
            rows = fill(at, to, column_bytes)
            if rows <= 0:
                raise ValueError(f"{function}: batch before position {file.position} has a wrong CRC or size")
            yield rows

    def check_crcs(self) -> int:
        """Check the CRC of each batch; return the total bytes of the batches that are correct."""
        return int(self._library.limit_file_crc(ctypes.byref(self._start())))


class _Records(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("timestamp_ms", "key_end", "value_end", "keys", "values")),
        ("count", ctypes.c_int64),
        ("row", ctypes.c_int64),
    ]


@dataclass(frozen=True)
class RecordArrays:
    """The input of limit_encode. keys and values end with PADDING_BYTES of padding."""

    timestamp_ms: NDArray[np.int64]
    key_end: NDArray[np.int32]
    value_end: NDArray[np.int32]
    keys: NDArray[np.uint8]
    values: NDArray[np.uint8]


class LimitEncoder:
    """limit_encode over one set of arrays, which writes repeatedly into one block of out_bytes."""

    def __init__(self, library: ctypes.CDLL, arrays: RecordArrays, *, batch_bytes: int, out_bytes: int) -> None:
        self._encode = library.limit_encode
        self._arrays = arrays
        self._batch_bytes = batch_bytes
        self._out_bytes = out_bytes
        self.out = np.zeros(out_bytes + 2 * batch_bytes + PADDING_BYTES, np.uint8)

    def runs(self) -> Iterator[int]:
        """Encode all records; yield the number of bytes now in `out`."""
        pointers = [getattr(self._arrays, name).ctypes.data for name in RecordArrays.__dataclass_fields__]
        count = len(self._arrays.timestamp_ms)
        records = _Records(*pointers, count, 0)
        at, out = ctypes.byref(records), ctypes.c_void_p(self.out.ctypes.data)
        out_bytes, batch_bytes = ctypes.c_int64(self._out_bytes), ctypes.c_int64(self._batch_bytes)
        while records.row < count:
            yield int(self._encode(at, out, out_bytes, batch_bytes))


def compile_limit(settings: Settings) -> ctypes.CDLL | None:
    """Compile and load limit.c, once per version. If it can't run here, print a line and return None."""
    if platform.machine() != "x86_64":
        print(f"limit.c left out: it needs x86-64 instructions, this is {platform.machine()}")
        return None
    library = compiled(SOURCE, FLAGS, settings)
    return None if library is None else _load(library)


def compiled(source: Path, flags: Sequence[str], settings: Settings) -> Path | None:
    """Compile a C program of rivals/ as a library, once per version. If that fails, print a line and return None."""
    version = hashlib.sha256(source.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    library = settings.build_directory / f"{source.stem}-{version}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{source.name} left out: {error}")
            return None
    return library


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name in FUNCTIONS:
        getattr(library, name).restype = ctypes.c_int64
    library.limit_prepare()
    library.limit_prepare_messages()
    return library
