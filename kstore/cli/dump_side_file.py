"""`kstore dump` of all other files: transaction indexes, producer snapshots, checkpoints and the files of a root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli import EXIT_FINE
from kstore.cli.output import Part, printable
from kstore.cli.render import time_text
from kstore.errors import KStoreError
from kstore.log.env import DEFAULT_ENV, split_path
from kstore.log.files.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    malformed,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    read_text,
)
from kstore.log.files.names import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    QUORUM_STATE,
    RECOVERY_POINT_CHECKPOINT,
    TRANSACTION_INDEX_SUFFIX,
)
from kstore.log.files.root_files import id_text, parse_properties, read_partition_metadata
from kstore.log.files.snapshots import read_snapshot
from kstore.log.segment.indexes import MAX_INDEX_BYTES
from kstore.log.segment.transaction_index import ABORTED_TXN, TRANSACTION_INDEX_ENTRY_SIZE, decode_aborted_txns
from kstore.log.state.producer_append import ProducerStateEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstore.cli.output import Output

# Escapes everything but ASCII: names and values may be any text, even lone surrogates.
_JSON_TEXT = json.JSONEncoder(separators=(",", ":")).encode
_ABORTED_TXN_FIELDS = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
_PRODUCER_FIELDS = (
    "producerId",
    "producerEpoch",
    "coordinatorEpoch",
    "currentTxnFirstOffset",
    "firstSequence",
    "lastSequence",
    "lastOffset",
    "offsetDelta",
    "timestamp",
)


class Table(NamedTuple):
    """The content of a file: field names, and the values of each row. error: what is wrong, reported after the rows."""

    fields: tuple[str, ...]
    rows: list[tuple[object, ...]]
    error: KStoreError | None = None


def dump_side_file(path: str, kind: str, out: Output, *, base_offset: int | None, is_json: bool, prefix: str) -> int:
    """Show a file of one of SIDE_FILE_KINDS and return the exit status.

    Raises: KStoreError if the file can't be read at all.
    """
    fields, rows, error = SIDE_FILE_KINDS[kind](path, base_offset or 0)
    if is_json:
        for row in rows:
            shown = _JSON_TEXT(dict(zip(fields, row, strict=True)))
            out.line(f"{{{prefix}{shown[1:]}" if len(shown) > len("{}") else f"{{{prefix.rstrip(',')}}}")
    else:
        show_text(fields, rows, out)
    return EXIT_FINE if error is None else out.failure(error)


def show_text(fields: tuple[str, ...], rows: list[tuple[object, ...]], out: Output) -> None:
    """Write a table with a heading; each column is as wide as its widest cell."""
    cells = [
        [time_text(value) if name == "timestamp" and isinstance(value, int) else text_of(value) for name, value in row]
        for row in (zip(fields, one, strict=True) for one in rows)
    ]
    widths = [max(map(len, column)) for column in zip(fields, *cells, strict=True)]
    out.styled(
        [Part("  ".join(printable(name).rjust(width) for name, width in zip(fields, widths, strict=True)), "bold")]
    )
    for row in cells:
        out.line("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def text_of(value: object) -> str:
    """Return a value of a row as text."""
    return printable(value) if isinstance(value, str) else _JSON_TEXT(value)


def transaction_index_table(path: str, base_offset: int) -> Table:
    """Return all whole entries as they are stored, and the first error that validation finds."""
    content = DEFAULT_ENV.read_file(path, max_bytes=MAX_INDEX_BYTES)
    whole = len(content) - len(content) % TRANSACTION_INDEX_ENTRY_SIZE
    entries = enumerate(ABORTED_TXN.iter_unpack(memoryview(content)[:whole]))
    rows: list[tuple[object, ...]] = [(slot, *entry) for slot, entry in entries]
    error = None
    try:
        decode_aborted_txns(content, base_offset=base_offset, path=path)
    except KStoreError as caught:
        error = caught
    return Table(("slot", *_ABORTED_TXN_FIELDS), rows, error)


def snapshot_table(path: str, _: int) -> Table:
    """Return the producers in file order."""
    rows: list[tuple[object, ...]] = []
    for slot, entry in enumerate(read_snapshot(path)):
        batches = ProducerStateEntry.of_snapshot(entry).batches
        first_sequence = batches[-1].first_sequence if batches else -1
        rows.append(
            (
                slot,
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
                first_sequence,
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
                entry.timestamp_ms,
            )
        )
    return Table(("slot", *_PRODUCER_FIELDS), rows)


def leader_epoch_table(path: str, _: int) -> Table:
    """Return the entries of a leader-epoch-checkpoint."""
    return Table(("epoch", "startOffset"), [tuple(entry) for entry in read_leader_epoch_checkpoint(path) or ()])


def offset_checkpoint_table(path: str, _: int) -> Table:
    """Return the entries of a root's checkpoint."""
    entries = (read_offset_checkpoint(path) or {}).items()
    return Table(("topic", "partition", "offset"), [(*partition, offset) for partition, offset in entries])


def partition_metadata_table(path: str, _: int) -> Table:
    """Return the topic id of a partition.metadata, no rows if the file is missing."""
    topic_id = read_partition_metadata(split_path(path)[0])
    return Table(("topicId",), [] if topic_id is None else [(id_text(topic_id),)])


def properties_table(path: str, _: int) -> Table:
    """Return a properties file as one row, with its property names as the fields."""
    properties = parse_properties(text_in(path))
    return Table(tuple(properties), [tuple(properties.values())])


def json_table(path: str, _: int) -> Table:
    """Return a file that holds one JSON object as one row; an empty file has no fields.

    Raises: CorruptCheckpointError, StorageError.
    """
    text = text_in(path)
    try:
        content = json.loads(text, parse_constant=refuse_constant) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise malformed(path, f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise malformed(path, f"expected a JSON object, found {type(content).__name__}")
    return Table(tuple(content), [tuple(content.values())])


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python accepts but JSON does not have."""
    raise ValueError(f"found {name}")


def text_in(path: str) -> str:
    """Return the content of a small file as text, or "" if it does not exist any more.

    Raises: CorruptCheckpointError, StorageError.
    """
    return read_text(path, DEFAULT_ENV, max_bytes=MAX_CHECKPOINT_BYTES) or ""


# Keyed by suffix or by whole file name.
SIDE_FILE_KINDS: dict[str, Callable[[str, int], Table]] = {
    TRANSACTION_INDEX_SUFFIX: transaction_index_table,
    PRODUCER_SNAPSHOT_SUFFIX: snapshot_table,
    LEADER_EPOCH_CHECKPOINT: leader_epoch_table,
    PARTITION_METADATA: partition_metadata_table,
    QUORUM_STATE: json_table,
    RECOVERY_POINT_CHECKPOINT: offset_checkpoint_table,
    LOG_START_OFFSET_CHECKPOINT: offset_checkpoint_table,
    HIGH_WATERMARK_CHECKPOINT: offset_checkpoint_table,
    CLEANER_CHECKPOINT: offset_checkpoint_table,
    META_PROPERTIES: properties_table,
    CLEAN_SHUTDOWN_FILE: json_table,
}
