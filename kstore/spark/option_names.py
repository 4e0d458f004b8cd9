"""What the options of reads and writes share: their names, by use, the refusal of a name that a use does not know, and
paths.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from kstore.env import portable
from kstore.errors import StorageError

Use: TypeAlias = Literal["read", "readStream", "write", "writeStream"]

# Options of Spark's Kafka source and sink that change nothing here.
_CLIENT_NAMES = frozenset(
    {"groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"}
)
# Of keys and values that become columns. schemas and valueMode are of both.
VALUE_NAMES: Final = tuple(
    f"{origin}{name}"
    for origin in ("value", "key")
    for name in ("Format", "Schema", "SchemaId", "Framing", "MessageName")
)
_READ_NAMES = _CLIENT_NAMES | {
    *VALUE_NAMES,
    "schemas",
    "valueMode",
    "path",
    "paths",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "mode",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxPartitionBytes",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "pushFilters",
    "rows",
    "tier",
    "tierEpoch",
    "maxDecryptedBytes",
}
_WRITE_NAMES = _CLIENT_NAMES | {"path", "topic", "createTopics", "txnAppId", "txnVersion", "includeHeaders"}
# All names of each use, as they are documented. checkpointLocation and queryName come from Spark itself.
OPTION_NAMES: Final[dict[Use, frozenset[str]]] = {
    "read": _READ_NAMES,
    "readStream": _READ_NAMES | {"endOffsets"},
    "write": _WRITE_NAMES,
    "writeStream": _WRITE_NAMES | {"checkpointLocation", "queryName"},
}
# The one setting of Kafka's consumers that a read follows.
ISOLATION_LEVEL: Final = "kafka.isolation.level"
# What the id of a private key of tiered storage follows, in an option whose value is the path of its file.
TIER_KEY: Final = "tierKey."
# Of Kafka's clients, and of what Spark passes on for itself.
FOREIGN_PREFIXES: Final = ("kafka.", "spark.", "option.", "__")
# What Spark passes on when a table is created (TableCatalog's reserved properties), in lower case.
_TABLE_PROPERTIES = frozenset(
    {"provider", "location", "owner", "external", "is_managed_location", "comment", "collation"}
)


def check_names(names: Iterable[str], use: Use) -> None:
    """Refuse a name that a use does not know. Names are not case-sensitive.

    Settings of Kafka's clients (kafka.*) are accepted, but not a misspelled one that this use follows.
    Raises: ValueError that names the option and the nearest name of this use, if one is near, else all of them.
    """
    known = {name.lower(): name for name in OPTION_NAMES[use]}
    for name in names:
        asked = name.lower()
        if use in ("read", "readStream") and asked != ISOLATION_LEVEL and _is_like_isolation_level(asked):
            raise ValueError(f"unknown option {name}; did you mean {ISOLATION_LEVEL}?")
        if asked in known or asked in _TABLE_PROPERTIES or asked.startswith(FOREIGN_PREFIXES):
            continue
        if use in ("read", "readStream") and asked.startswith(TIER_KEY.lower()) and len(asked) > len(TIER_KEY):
            continue
        nearest = get_close_matches(asked, known, n=1)
        hint = f"did you mean {known[nearest[0]]}?" if nearest else f"{use} knows {', '.join(sorted(known.values()))}"
        raise ValueError(f"unknown option {name}; {hint}")


def checked_path(text: str) -> str:
    """Return a URL as it is, and a path as absolute: a task may run in a different working directory than the driver.

    Raises: ValueError for an empty one, or a file URL of another machine.
    """
    if not text.strip():
        raise ValueError("path must not be empty")
    try:
        return portable(text)
    except StorageError as error:
        raise ValueError(f"path: {error}") from error


def _is_like_isolation_level(name: str) -> bool:
    """Whether a name is a misspelling of kafka.isolation.level; no other setting of a consumer is that near."""
    setting = name.removeprefix("kafka.")
    return name.startswith("kafka.") and bool(get_close_matches(setting, ["isolation.level", "isolation"], cutoff=0.75))
