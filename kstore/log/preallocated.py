"""Preallocated space behind the last batch of a segment that is not the last, as the cleaner of Kafka 0.10 leaves it.

Layer 5. There brokers stop reading, and recovery drops all segments behind it, though no record is missing.
"""

from __future__ import annotations

from collections.abc import Callable

from kstore.log.env import ReadFile
from kstore.log.segment_records import HEADER_CHUNK_BYTES


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
    while position < end_position:
        chunk = file.pread(min(HEADER_CHUNK_BYTES, end_position - position), position=position)
        if not chunk or any(chunk):
            return False
        position += len(chunk)
    return True
