"""Splitting of offset ranges into tasks by minPartitions and maxRecordsPerPartition.

Number, boundaries and order of the tasks are those of Spark's Kafka source (KafkaOffsetRangeCalculator), so that a job
that switches to kstore keeps its tasks. Apart from planning.py because it opens no log: numbers in, numbers out.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstore.spark.offsets import OffsetRange
from kstore.types import TopicPartition

_MASK_32 = 0xFFFFFFFF
_TRIE_BITS = 5


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Split ranges to at most max_records_per_partition offsets each, then into about min_partitions ranges.

    Empty ranges are dropped. A range is split evenly, with the remainder in its last pieces. min_partitions is
    distributed in proportion to size, and ranges that get a share of one are not split, so the result can have fewer
    or more ranges. It has an effect only if it exceeds the number of ranges passed.
    """
    ranges = list(ranges)
    pieces = [item for item in ranges if item.size > 0]
    if max_records_per_partition is not None:
        pieces = [part for item in pieces for part in _split(item, -(-item.size // max_records_per_partition))]
    if min_partitions is None or min_partitions <= len(ranges):
        return pieces
    if min_partitions > len(pieces):
        pieces = _share_out(pieces, min_partitions)
    return _in_connector_order(pieces)


def _split(item: OffsetRange, part_count: int) -> list[OffsetRange]:
    parts = []
    start_offset = item.start_offset
    for remaining_parts in range(min(part_count, item.size), 0, -1):
        end_offset = start_offset + (item.end_offset - start_offset) // remaining_parts
        parts.append(item._replace(start_offset=start_offset, end_offset=end_offset))
        start_offset = end_offset
    return parts


def _share_out(pieces: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    total = sum(piece.size for piece in pieces)
    small = {piece for piece in pieces if _share(piece.size, total=total, parts=min_partitions) == 1}
    total_to_split = total - sum(piece.size for piece in small)
    parts_to_share = max(min_partitions - len(small), 1)
    parts = []
    for piece in pieces:
        is_small = piece in small
        parts += _split(piece, 1 if is_small else _share(piece.size, total=total_to_split, parts=parts_to_share))
    return parts


def _share(size: int, *, total: int, parts: int) -> int:
    """Return size / total of the parts, rounded half up as Java's Math.round does, at least 1."""
    return max((2 * size * parts + total) // (2 * total), 1)


def _in_connector_order(pieces: list[OffsetRange]) -> list[OffsetRange]:
    """Order topic-partitions as Spark's Kafka source does after splitting: by iteration of Scala's hash map."""
    by_partition: dict[TopicPartition, list[OffsetRange]] = {}
    for piece in pieces:
        by_partition.setdefault(piece.topic_partition, []).append(piece)
    hashed = [(_scala_hash(topic_partition), topic_partition) for topic_partition in by_partition]
    return [piece for topic_partition in _trie_order(hashed, shift=0) for piece in by_partition[topic_partition]]


def _trie_order(hashed: list[tuple[int, TopicPartition]], *, shift: int) -> list[TopicPartition]:
    """Return the keys in iteration order of a hash trie: a node's own keys by 5 bits of the hash, then its children."""
    if len({code for code, _ in hashed}) <= 1:
        return [topic_partition for _, topic_partition in hashed]
    slots: dict[int, list[tuple[int, TopicPartition]]] = {}
    for code, topic_partition in hashed:
        slots.setdefault((code >> shift) & (2**_TRIE_BITS - 1), []).append((code, topic_partition))
    nodes = [slots[slot] for slot in sorted(slots)]
    own = [node[0][1] for node in nodes if len(node) == 1]
    return own + [key for node in nodes if len(node) > 1 for key in _trie_order(node, shift=shift + _TRIE_BITS)]


def _scala_hash(topic_partition: TopicPartition) -> int:
    """Return Java's hash code of a TopicPartition, as improved by Scala's immutable HashMap."""
    code = 0
    for character in topic_partition.topic:
        code = (31 * code + ord(character)) & _MASK_32
    code = (31 * (31 + topic_partition.partition) + code) & _MASK_32
    code = (code + ~(code << 9)) & _MASK_32
    code ^= code >> 14
    code = (code + (code << 4)) & _MASK_32
    return code ^ (code >> 10)
