"""ConsumerSettings: the types of a consumer's settings as keyword arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypedDict

from kstore.env import StrPath
from kstore.log.following.tail import AutoOffsetReset
from kstore.log.reads import Isolation
from kstore.serializers import Deserializer
from kstore.store.store import WritableStore


class ConsumerSettings(TypedDict, total=False):
    """The settings of a Consumer as keyword arguments, each optional; for type checkers."""

    group: str | None
    topics: Collection[str]
    partitions: Iterable[tuple[str, int]]
    auto_offset_reset: AutoOffsetReset
    isolation: Isolation
    offsets: StrPath | WritableStore | None
    key_deserializer: Deserializer | str | None
    value_deserializer: Deserializer | str | None
    max_poll_records: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
