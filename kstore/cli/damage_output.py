"""Damaged ranges as JSON objects and table rows, for `verify` and `recover`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.cli.output import Column
from kstore.log.env import split_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.log.damage import Damage
    from kstore.types import TopicPartition

DAMAGE_COLUMNS = (
    Column("partition"),
    Column("file"),
    Column("position", is_number=True),
    Column("size", is_number=True),
    Column("reason"),
)


def damage_objects(damage: Iterable[Damage]) -> list[dict[str, object]]:
    """Return the JSON object of each range."""
    return [
        {"file": split_path(path)[1], "position": position, "size": size_in_bytes, "reason": reason}
        for path, position, size_in_bytes, reason in damage
    ]


def damage_rows(topic_partition: TopicPartition, damage: Iterable[Damage]) -> list[list[str]]:
    """Return the table cells of each range, in the order of DAMAGE_COLUMNS."""
    return [
        [str(topic_partition), split_path(path)[1], str(position), str(size_in_bytes), reason]
        for path, position, size_in_bytes, reason in damage
    ]
