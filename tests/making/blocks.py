"""Raw blocks of lz4 and snappy made of literals and copies, right ones and such as break every rule."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple


class Copy(NamedTuple):
    """Bytes of a block that repeat what stands offset bytes before; width is that of snappy's offset."""

    offset: int
    size: int
    width: int = 2


def lz4_block_of(elements: Iterable[bytes | Copy]) -> bytes:
    """A block of literals and copies, which may break every rule; each copy ends a sequence."""
    block, literals = bytearray(), b""
    for element in elements:
        if isinstance(element, bytes):
            literals += element
            continue
        high, more_literals = _lz4_packed_length(len(literals))
        low, more_size = _lz4_packed_length(element.size - 4)
        block += bytes([high << 4 | low]) + more_literals + literals + struct.pack("<H", element.offset) + more_size
        literals = b""
    high, more_literals = _lz4_packed_length(len(literals))
    return bytes(block + bytes([high << 4]) + more_literals + literals)


def _lz4_packed_length(length: int) -> tuple[int, bytes]:
    if length < 15:
        return length, b""
    whole, rest = divmod(length - 15, 255)
    return 15, b"\xff" * whole + bytes([rest])


def snappy_block_of(elements: Iterable[bytes | Copy], *, size: int) -> bytes:
    """A raw block that declares size bytes, of literals and copies, which may break every rule."""
    block = bytearray()
    while size > 127:
        block.append(size & 127 | 128)
        size >>= 7
    block.append(size)
    for element in elements:
        if isinstance(element, Copy):
            high = (element.size - 4 | element.offset >> 8 << 3) if element.width == 1 else element.size - 1
            tag = high << 2 | {1: 1, 2: 2, 4: 3}[element.width]
            offset = element.offset & 255 if element.width == 1 else element.offset
            block += bytes([tag]) + offset.to_bytes(element.width, "little")
        elif len(element) <= 60:
            block += bytes([len(element) - 1 << 2]) + element
        else:
            width = ((len(element) - 1).bit_length() + 7) // 8
            block += bytes([59 + width << 2]) + (len(element) - 1).to_bytes(width, "little") + element
    return bytes(block)


def content_of(elements: Iterable[bytes | Copy]) -> bytes:
    """What literals and copies make; copies must not reach before the start."""
    out = bytearray()
    for element in elements:
        if isinstance(element, Copy):
            for _ in range(element.size):
                out.append(out[-element.offset])
        else:
            out += element
    return bytes(out)
