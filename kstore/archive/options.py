"""ExportOptions: what is exported, and in which format; all runs into one target must have the same options."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, get_args

from kstore.archive.manifest import VERBATIM
from kstore.config import GIB, MIB
from kstore.env import StrPath, shown_path
from kstore.errors import ExportOptionsError, checked_int
from kstore.log.damage import OnError, skips_damage
from kstore.log.files.root_files import id_text, parse_id
from kstore.log.files.selection import Offsets, Selection
from kstore.log.reads import Isolation
from kstore.types import Time, TopicPartition, time_ms
from kstore.wire.protocol import ZERO_UUID

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kstore.values.decoded import Origin
    from kstore.values.formats import ValueFormat
    from kstore.values.providers import SchemaSource
    from kstore.values.typed import ValueMode

Format: TypeAlias = Literal["parquet", "arrow", "kstore"]
LastBatch: TypeAlias = Literal["keep", "drop"]
OpenTransactions: TypeAlias = Literal["wait", "keep"]

# How a table is named in place of a directory: delta:URI, iceberg:CATALOG.NAMESPACE.TABLE.
DELTA: Final = "delta:"
ICEBERG: Final = "iceberg:"
# Of the record's timestamp in UTC, by which files and tables are partitioned.
DATE: Final = "date"
FILE_BYTES = 128 * MIB
# Larger row groups compress a little better, and cost the reader and the writer memory.
ROW_GROUP_ROWS = 128 * 1024
_LEAST_FILE_BYTES, _MOST_FILE_BYTES = 4096, 64 * GIB
_MOST_ROWS = 1 << 30
# topic is in the names of the directories.
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
_CODECS: dict[str, tuple[str, ...]] = {
    "parquet": ("snappy", "zstd", "lz4", "gzip", "none"),
    "arrow": ("none", "lz4", "zstd"),
    VERBATIM: (),
}


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of an export, checked; see kstore.export. Picklable."""

    format: Format
    selection: Selection
    since_ms: int | None
    until_ms: int | None
    isolation: Isolation
    columns: tuple[str, ...]
    strings: tuple[str, ...]
    codec: str | None
    row_group_rows: int
    file_bytes: int
    last_batch: LastBatch
    open_transactions: OpenTransactions
    on_error: OnError
    topic_ids: tuple[tuple[str, str], ...]
    formats: tuple[tuple[Origin, ValueFormat], ...] = ()
    mode: ValueMode = "PERMISSIVE"
    flatten: bool = False

    @property
    def is_verbatim(self) -> bool:
        """Whether whole batches are copied."""
        return self.format == VERBATIM

    @property
    def end_isolation(self) -> Isolation:
        """Where a run ends: at the last stable offset for "read_committed", else at the log end."""
        waits = self.is_verbatim and self.open_transactions == "wait"
        return "read_committed" if waits else self.isolation

    def described(self) -> dict[str, Any]:
        """Return the options as JSON values, by the names of kstore.export."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("selection", "topic_ids", "formats"):
            del values[name]
        for origin, chosen in self.formats:
            values[origin] = {name: value for name, value in vars(chosen).items() if value is not None}
            if chosen.schemas is not None:
                values[origin]["schemas"] = shown_path(str(chosen.schemas))
        if not self.formats:
            # As in manifests of exports without them.
            del values["mode"], values["flatten"]
        selection = self.selection
        values["topics"] = None if selection.topics is None else sorted(selection.topics)
        values["partitions"] = None if selection.partitions is None else sorted(selection.partitions)
        values["start_offset"], values["end_offset"] = _described(selection.start), _described(selection.end)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def check_same(self, described: Mapping[str, object], *, path: str, source: str) -> None:
        """Raise ExportOptionsError unless a target was written with these options, and from this source.

        Args: described: those of the target, and its source.
        """
        own = {**self.described(), "source": source}
        names = [name for name in (*own, *(described.keys() - own.keys())) if own.get(name) != described.get(name)]
        if not names:
            return
        differences = {name: (described.get(name), own.get(name)) for name in names}
        listed = "; ".join(
            f"{name}: {found!r} there, {asked!r} asked for" for name, (found, asked) in differences.items()
        )
        message = f"{path} holds an export with other options: {listed}"
        raise ExportOptionsError(message, differences=differences, path=path)

    def check_topic_ids(self, exported: Iterable[TopicPartition]) -> None:
        """Raise ValueError for the id of a topic that is not exported."""
        others = sorted({topic for topic, _ in self.topic_ids} - {place.topic for place in exported})
        if others:
            raise ValueError(f"topic_ids names topics that are not exported: {', '.join(others)}")


def _described(bound: Offsets | None) -> object:
    return {str(place): bound[place] for place in sorted(bound)} if isinstance(bound, Mapping) else bound


class DecodingArguments(TypedDict, total=False):
    """The arguments of kstore.export that make columns of keys and values, as in kstore.scan."""

    value: ValueFormat | str | None
    key: ValueFormat | str | None
    schema: SchemaSource | None
    schemas: StrPath | None
    mode: ValueMode
    flatten: bool


class ExportArguments(DecodingArguments, total=False):
    """The arguments of kstore.export that say what is exported.

    topics, partitions, start_offset, end_offset, since, until, isolation: as in kstore.scan; a start_offset of
    2**63 - 1 is where each log ends at the first run. Of format "kstore" whole batches with offsets from start_offset
    on are copied, up to end_offset, or the first record at or after `until`.
    last_batch: whether a batch that spans the end is kept whole ("keep"), or dropped as in a broker's truncation.
    columns: as in kstore.scan, by default all but topic; strings: as there.
    open_transactions: whether a run of format "kstore" ends at the last stable offset ("wait": what is above it is
    exported once the transactions are decided), or at the log end ("keep").
    codec: of Parquet "snappy" (the default), "zstd", "lz4", "gzip" or "none", of Arrow "none" (the default), "lz4" or
    "zstd". row_group_rows: default 131072. file_bytes: the size of a file, about; default 128 MiB.
    on_error: "skip" leaves out damage, and lists it in the manifest.
    topic_ids: of format "kstore", for partition.metadata in place of the source's; also of partitions that were
    exported before.
    value, key, schema, schemas, mode, flatten: as in kstore.scan, not of format "kstore"; the fields of each topic are
    those of its own schema, and those of earlier runs.
    """

    topics: Iterable[str] | None
    partitions: Iterable[int] | int | None
    start_offset: Offsets | None
    end_offset: Offsets | None
    since: Time | None
    until: Time | None
    isolation: Isolation
    columns: Iterable[str] | None
    strings: Iterable[str]
    codec: str | None
    row_group_rows: int | None
    file_bytes: int | None
    last_batch: LastBatch
    open_transactions: OpenTransactions
    on_error: OnError
    topic_ids: Mapping[str, str | uuid.UUID] | None


def export_options(
    format: str,
    *,
    topics: Iterable[str] | None = None,
    partitions: Iterable[int] | int | None = None,
    start_offset: Offsets | None = None,
    end_offset: Offsets | None = None,
    since: Time | None = None,
    until: Time | None = None,
    isolation: Isolation = "read_uncommitted",
    columns: Iterable[str] | None = None,
    strings: Iterable[str] = (),
    codec: str | None = None,
    row_group_rows: int | None = None,
    file_bytes: int | None = None,
    last_batch: LastBatch = "keep",
    open_transactions: OpenTransactions = "wait",
    on_error: OnError = "raise",
    topic_ids: Mapping[str, str | uuid.UUID] | None = None,
    **decoding: Unpack[DecodingArguments],
) -> ExportOptions:
    """Check the options of kstore.export and return them with their defaults.

    Raises: ValueError, TypeError.
    """
    kind = _format_of(format)
    skips_damage(on_error)
    selection = Selection.of(topics=topics, partitions=partitions, start_offset=start_offset, end_offset=end_offset)
    since_ms, until_ms = _bounds(since, until)
    chosen = COLUMNS if columns is None else tuple(columns)
    names = (strings,) if isinstance(strings, str) else tuple(strings)
    given: dict[str, object] = {"codec": codec, "row_group_rows": row_group_rows, "columns": columns}
    formats = _formats(decoding)
    given |= formats
    given |= {"strings": names or None, "isolation": None if isolation == "read_uncommitted" else isolation}
    if format == VERBATIM:
        wrong = [name for name, value in given.items() if value is not None]
        if wrong:
            raise ValueError(f'format "kstore" copies batches as they are: {", ".join(wrong)} cannot be chosen')
        chosen = ()
    elif last_batch != "keep" or open_transactions != "wait" or topic_ids:
        raise ValueError('last_batch, open_transactions and topic_ids are options of format "kstore"')
    else:
        # The columns of values with a format are known when their schema is.
        _check_columns(COLUMNS if formats else chosen, names)
        codec = _codec_of(format, codec)
    _check_choice("isolation", isolation, Isolation)
    _check_choice("last_batch", last_batch, LastBatch)
    _check_choice("open_transactions", open_transactions, OpenTransactions)
    return ExportOptions(
        format=kind,
        selection=selection,
        since_ms=since_ms,
        until_ms=until_ms,
        isolation=isolation,
        columns=chosen,
        strings=names,
        codec=codec,
        row_group_rows=_rows_of(row_group_rows),
        file_bytes=_bytes_of(file_bytes),
        last_batch=last_batch,
        open_transactions=open_transactions,
        on_error=on_error,
        topic_ids=tuple(sorted((topic, _id_text(topic, topic_id)) for topic, topic_id in (topic_ids or {}).items())),
        formats=formats,
        mode=decoding.get("mode", "PERMISSIVE"),
        flatten=decoding.get("flatten", False),
    )


def _rows_of(row_group_rows: int | None) -> int:
    rows = ROW_GROUP_ROWS if row_group_rows is None else row_group_rows
    return checked_int("row_group_rows", rows, least=1, greatest=_MOST_ROWS)


def _bytes_of(file_bytes: int | None) -> int:
    size = FILE_BYTES if file_bytes is None else file_bytes
    return checked_int("file_bytes", size, least=_LEAST_FILE_BYTES, greatest=_MOST_FILE_BYTES)


def _bounds(since: Time | None, until: Time | None) -> tuple[int | None, int | None]:
    bounds = time_ms("since", since), time_ms("until", until)
    if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
        raise ValueError(f"since must not be after until, got {bounds[0]} and {bounds[1]} ms")
    return bounds


def _check_columns(columns: Sequence[str], strings: Sequence[str]) -> None:
    from kstore.arrow import schema

    schema(columns, strings=strings)


def _codec_of(format: str, codec: str | None) -> str:
    if codec is not None and codec not in _CODECS[format]:
        raise ValueError(f'codec of format "{format}" must be one of {", ".join(_CODECS[format])}, got {codec!r}')
    return codec or _CODECS[format][0]


def _formats(decoding: DecodingArguments) -> tuple[tuple[Origin, ValueFormat], ...]:
    """Return the formats, with the texts of given schemas, as a manifest has them."""
    unknown = sorted(decoding.keys() - DecodingArguments.__annotations__.keys())
    if unknown:
        raise TypeError(f"unknown options of an export: {', '.join(unknown)}")
    value, key = decoding.get("value"), decoding.get("key")
    schema, schemas = decoding.get("schema"), decoding.get("schemas")
    if value is key is schema is schemas is None:
        if decoding.get("flatten") or decoding.get("mode", "PERMISSIVE") != "PERMISSIVE":
            raise ValueError("mode and flatten are for keys or values with a format")
        return ()
    # Only here, since they import pyarrow.
    from kstore.values.formats import formats_of, schema_text
    from kstore.values.registry import SchemaRegistry

    formats = formats_of(value=value, key=key, schema=schema, schemas=schemas)
    described: list[tuple[Origin, ValueFormat]] = []
    for origin, each in formats.items():
        if isinstance(each.schemas, SchemaRegistry):
            raise ValueError(
                "schemas: an export needs the path of a root with the topic _schemas, not a SchemaRegistry"
            )
        text = schema_text(each)
        place = None if each.schemas is None else str(each.schemas)
        described.append((origin, replace(each, schema=text, schemas=place)))
    return tuple(described)


def _check_choice(name: str, value: object, choices: Any) -> None:
    known = get_args(choices)
    if value not in known:
        expected = " or ".join(f'"{choice}"' for choice in known)
        raise ValueError(f"{name} must be {expected}, got {value!r}")


def _format_of(name: str) -> Format:
    chosen = next((choice for choice in get_args(Format) if choice == name), None)
    if chosen is None:
        raise ValueError(f"format must be one of {', '.join(get_args(Format))}, got {name!r}")
    known: Format = chosen
    return known


def _id_text(topic: str, value: str | uuid.UUID) -> str:
    topic_id = parse_id(value) if isinstance(value, str) else value
    if topic_id == ZERO_UUID:
        raise ValueError(f"the id of topic {topic} must not be zero")
    return id_text(topic_id)
