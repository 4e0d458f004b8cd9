"""Compression codecs of record batches: Kafka's id <-> a bounded function over one payload. Layer 3.

Every function stops at `limit` output bytes in memory that grows with what was really produced, never with what
a header declares. Framings are described in docs/format.md#compression.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

import cramjam
import lz4.block
import zstandard

from kstore import _core
from kstore.errors import DecompressionError, UnsupportedCompressionTypeError

Payload: TypeAlias = "bytes | memoryview"

_LARGEST_LZ4_BLOCK = 4 * 1024 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_ZSTD_MAX_WINDOW_BYTES = 1 << 27


class CompressionType(IntEnum):
    """Kafka's compression ids; `label` is the name in Kafka's configs."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        return self.name.lower()
