"""Options that several commands take, with their help."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.arguments import PartitionSelection
from kstore.cli.shell.completion import partitions_of, topics_of


class ValueMode(str, Enum):
    """What becomes of keys and values that cannot be decoded."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


class Isolation(str, Enum):
    """Whether records of aborted and open transactions are shown (Kafka: isolation.level)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Directory = Annotated[str, typer.Argument(metavar="DIR", help="A partition directory or a log.dirs root.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", autocompletion=topics_of, help="Only this topic; repeatable."),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", metavar="N", min=0, autocompletion=partitions_of, help="Only this partition; repeatable."
    ),
]
EndOffset = Annotated[str, typer.Option("--to", metavar="N|earliest|latest", help="Only offsets below this one.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only records at or after: epoch ms or ISO-8601, UTC by default.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only records before this time.")]
Isolated = Annotated[
    Isolation, typer.Option(help="read_committed omits aborted records and stops at the last stable offset.")
]
ValueName = Annotated[
    str | None, typer.Option("--value", metavar="FORMAT", help="Decode values: avro, json, protobuf, string, ...")
]
KeyName = Annotated[str | None, typer.Option("--key", metavar="FORMAT", help="Decode keys.")]
SchemasPlace = Annotated[
    str | None,
    typer.Option("--schemas", metavar="DIR|URL", help="A root with _schemas, or a registry; default: DIR."),
]
SchemaFile = Annotated[
    str | None, typer.Option("--schema", metavar="FILE", help="The schema of values: a file, latest, union or infer.")
]
MessageName = Annotated[
    str | None,
    typer.Option("--message", metavar="NAME", help="Protobuf: the message; default: the first of the schema."),
]
SchemaId = Annotated[
    int | None, typer.Option("--schema-id", metavar="ID", min=0, help="The id of the schema that values are read as.")
]
Mode = Annotated[
    ValueMode,
    typer.Option(
        "--mode",
        case_sensitive=False,
        help="Keys and values that cannot be decoded: null, with the reason; left out with the record; or an error.",
    ),
]
SkipDamaged = Annotated[
    bool, typer.Option("--skip-damaged", help="Leave out damaged batches, report them, and read on.")
]


def selection_of(directory: str, topics: list[str] | None, partitions: list[int] | None) -> PartitionSelection:
    """Return the partitions that DIR, --topic and --partition select."""
    return PartitionSelection(directory=directory, topics=tuple(topics or ()), partitions=tuple(partitions or ()))
