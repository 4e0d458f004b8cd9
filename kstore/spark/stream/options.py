"""The options of a stream that reads: those of Spark's Kafka source, and endOffsets.

Opens no file and does not import Spark. Each invalid option is a ValueError with its name and its value, and what was
expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kstore.config import MAX_INT64
from kstore.spark.options import OptionReader, ReadOptions, parse_read_options

EndOffsets: TypeAlias = Literal["written", "flushed"]

DEFAULT_TRIGGER_DELAY_MS = 15 * 60 * 1000
_MS_IN_UNIT = {"us": 0.001, "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """All options of a stream, validated.

    read: those that a batch read has too. max_offsets, min_offsets: of one micro-batch, None for no limit.
    max_trigger_delay_ms: how long min_offsets may hold a micro-batch back. end_offsets: where a micro-batch may end, at
    the end of the log, or at the offset below which all survives a power cut.
    """

    read: ReadOptions
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    end_offsets: EndOffsets


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse and validate the options of a stream.

    Raises: ValueError that names the option; for an unknown one also the nearest known name.
    """
    reader = OptionReader(options)
    return StreamOptions(
        read=parse_read_options(options, is_stream=True),
        max_offsets=_count(reader, "maxOffsetsPerTrigger"),
        min_offsets=_count(reader, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_delay_ms(reader),
        end_offsets=_end_offsets(reader),
    )


def _count(reader: OptionReader, name: str) -> int | None:
    value = reader.integer(name)
    if value is not None and value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return value


def _delay_ms(reader: OptionReader) -> int:
    """Return maxTriggerDelay. Source: Spark JavaUtils.timeStringAs."""
    text = reader.text("maxTriggerDelay")
    if text is None:
        return DEFAULT_TRIGGER_DELAY_MS
    match = re.fullmatch(r"([0-9]{1,18})([a-z]*)", text.strip().lower())
    unit = _MS_IN_UNIT.get(match[2]) if match else None
    if match is None or unit is None:
        raise ValueError(
            f'maxTriggerDelay: got "{text}". Time must be specified as seconds (s), milliseconds (ms), microseconds '
            "(us), minutes (m or min), hour (h), or day (d). E.g. 50s, 100ms, or 250us."
        )
    return min(int(int(match[1]) * unit), MAX_INT64)


def _end_offsets(reader: OptionReader) -> EndOffsets:
    text = reader.text("endOffsets")
    if text is None or text.lower() == "written":
        return "written"
    if text.lower() == "flushed":
        return "flushed"
    raise ValueError(f"endOffsets must be written or flushed, got {text}")
