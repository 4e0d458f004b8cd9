"""Options that several commands take, with their help."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kstore.cli.arguments import PartitionSelection, WrongUseError, parse_bytes, parse_header, parse_tier_key
from kstore.config import MAX_INT32

if TYPE_CHECKING:
    from kstore.record.search import RecordSearch


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
Directories = Annotated[
    list[str], typer.Argument(metavar="DIR...", help="Partition directories or log.dirs roots, as of one broker.")
]
Root = Annotated[str, typer.Argument(metavar="DIR", help="A log.dirs root.")]
Force = Annotated[bool, typer.Option("--force", help="Also in a root whose topics a cluster has its own account of.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
RecordFormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="text, json, csv, hex, or letters as kcat's -f: '%t %p %o %k %s\\n'.",
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="Only this topic, or pattern ('orders-*'); repeatable.",
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", metavar="N", min=0, help="Only this partition; repeatable."),
]
Watch = Annotated[
    float | None, typer.Option("--watch", metavar="SECONDS", min=0.1, help="Show it again and again, until Ctrl-C.")
]
Reverse = Annotated[bool, typer.Option("--reverse", "-r", help="Sort the other way round.")]
EndOffset = Annotated[str, typer.Option("--to", metavar="N|earliest|latest", help="Only offsets below this one.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only records at or after: -1h, 2024-05-01T12:00Z, epoch ms.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only records before this time.")]
Isolated = Annotated[
    Isolation, typer.Option(help="read_committed omits aborted records and stops at the last stable offset.")
]
ValueName = Annotated[
    str | None, typer.Option("--value", metavar="FORMAT", help="Decode values: avro, json, protobuf, string, ...")
]
KeyName = Annotated[str | None, typer.Option("--key", metavar="FORMAT", help="Decode keys.")]
KeyEquals = Annotated[
    str | None, typer.Option("--key-equals", metavar="TEXT", help="Only records with this key; hex:00ff for bytes.")
]
KeyRegex = Annotated[
    str | None, typer.Option("--key-regex", metavar="REGEX", help="Only records with a key that has a match.")
]
ValueRegex = Annotated[
    str | None, typer.Option("--value-regex", metavar="REGEX", help="Only records with a value that has a match.")
]
WithHeaders = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="K[=V]", help="Only records with this header; repeatable."),
]
ProducerId = Annotated[
    int | None, typer.Option("--producer-id", metavar="N", min=-1, help="Only records of this producer; -1: of none.")
]
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


TierPlace = Annotated[
    str | None,
    typer.Option(
        "--tier", metavar="DIR|URL", help="Tiered storage with the older segments; DIR again to read it alone."
    ),
]
TierKeys = Annotated[
    list[str] | None,
    typer.Option("--tier-key", metavar="ID=FILE", help="A private key (PEM) of encrypted segments; repeatable."),
]

TierEpoch = Annotated[
    int | None,
    typer.Option("--tier-epoch", metavar="N", min=0, help="The leader epoch to read a tier alone by."),
]
MaxDecryptedBytes = Annotated[
    int | None,
    typer.Option(
        "--max-decrypted-bytes",
        metavar="N",
        min=1,
        max=MAX_INT32,
        help="The largest encrypted chunk of a tier that is read; default: 256 MiB.",
    ),
]

# What the four options above gave, in their order.
TierArguments: TypeAlias = tuple[str | None, list[str] | None, int | None, int | None]


def selection_of(
    directory: str | list[str],
    topics: list[str] | None,
    partitions: list[int] | None,
    in_tier: TierArguments = (None, None, None, None),
) -> PartitionSelection:
    """Return the partitions that one or more DIRs, --topic and --partition select, with their --tier and its options.

    Raises: WrongUseError.
    """
    tier, tier_keys, tier_epoch, max_decrypted_bytes = in_tier
    first, *others = [directory] if isinstance(directory, str) else directory
    return PartitionSelection(
        directory=first,
        topics=tuple(topics or ()),
        partitions=tuple(partitions or ()),
        others=tuple(others),
        tier=tier,
        tier_keys=tuple(map(parse_tier_key, tier_keys or ())),
        tier_epoch=tier_epoch,
        max_decrypted_bytes=max_decrypted_bytes,
    )


def search_of(
    key_equals: str | None,
    key_regex: str | None,
    value_regex: str | None,
    headers: list[str] | None,
    producer_id: int | None,
) -> RecordSearch | None:
    """Return the search that options ask for, None if none is given.

    Raises: WrongUseError.
    """
    if all(each is None for each in (key_equals, key_regex, value_regex, producer_id)) and not headers:
        return None
    from kstore.record.search import RecordSearch

    try:
        return RecordSearch(
            key=None if key_equals is None else parse_bytes(key_equals, option="--key-equals"),
            key_regex=key_regex,
            value_regex=value_regex,
            headers=[parse_header(each, option="--header") for each in headers or ()],
            producer_id=producer_id,
        )
    except ValueError as error:
        raise WrongUseError(f"--{error}".replace("_", "-", 1)) from error
