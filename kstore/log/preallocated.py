"""Preallocated space after the last batch of a segment that is not the last.

Layer 5. The cleaner of Kafka 0.9 and 0.10 leaves it, and so may the crash of a writer that makes a segment before it
trims the one before. Brokers stop reading there, and their recovery drops every later segment, though no record is
missing.
"""

from __future__ import annotations

from collections.abc import Callable

from kstore.log.env import ReadFile

# What is read at once. It fits the second-level cache, so that the comparison finds there what was just read.
_ZEROS = bytes(256 * 1024)


def is_zeros(data: bytes | bytearray) -> bool:
    """Tell whether no byte differs from zero.  Cost: a memcmp."""
    return all(data.startswith(_ZEROS[: len(data) - start], start) for start in range(0, len(data), len(_ZEROS)))


def holds_only_zeros(file: ReadFile, *, position: int, end_position: int) -> bool:
    """Tell whether every byte from `position` to end_position is there and zero.

    Raises: StorageError.  Cost: reads what is no hole, up to the first chunk that differs.
    """
    buffer = bytearray(min(len(_ZEROS), max(end_position - position, 0)))
    while position < end_position:
        position = file.skip_hole(position)
        wanted = end_position - position
        if wanted <= 0:
            break
        if wanted < len(buffer):
            del buffer[wanted:]
        if file.pread_into(buffer, position=position) < len(buffer) or not is_zeros(buffer):
            return False
        position += len(buffer)
    return position >= end_position


def is_preallocated(
    file: ReadFile,
    *,
    position: int,
    end_position: int,
    next_offset: int,
    next_base_offset: int | None,
    cleaned_below: Callable[[], int],
) -> bool:
    """Tell whether zeros from `position` to the end of a .log hold the place of no record.

    Args: next_offset: behind the last batch before them; next_base_offset: of the next segment, None for the last,
        of which this never holds; cleaned_below: tells the offset up to which a cleaner may have removed records, asked
        only where offsets are missing.
    Raises: StorageError.  Cost: reads the zeros.
    """
    if next_base_offset is None or (next_offset < next_base_offset and cleaned_below() < next_base_offset):
        return False
    return holds_only_zeros(file, position=position, end_position=end_position)
