"""Names of tables: delta:URI and iceberg:CATALOG.NAMESPACE.TABLE, with {topic} for one table of each topic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Final

from kstore.archive.options import DELTA, ICEBERG, ExportOptions
from kstore.env import is_local, locate
from kstore.errors import ExportError

# In the name of a table, the topic.
TOPIC: Final = "{topic}"
_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9_]")


def check_destination(target: object, table: object, partition_by: object) -> None:
    """Check that an export has a directory or a table.  Raises: ValueError."""
    if (target is None) == (table is None):
        given = "neither" if table is None else "both"
        raise ValueError(f"an export goes either to target, a directory, or to table; got {given}")
    if table is None and partition_by is not None:
        raise ValueError("partition_by is for tables; the files of a directory are partitioned by topic and date")


def check_no_storage_options(storage_options: object) -> None:
    """Raise ValueError if options of a URL are given for a table."""
    if storage_options:
        raise ValueError("storage_options are for a target that is a URL; a table has those of its own configuration")


def check_table(table: str, options: ExportOptions) -> None:
    """Check the name of a table, and that rows are exported.

    Raises: ValueError; ModuleNotFoundError without the package that the table needs.
    """
    if options.is_verbatim:
        raise ValueError('format "kstore" cannot be written to a table')
    kind, colon, name = table.partition(":")
    package = {DELTA: "deltalake", ICEBERG: "pyiceberg"}.get(kind + colon)
    if package is None or not name or (kind + colon == ICEBERG and name.count(".") < 2):
        raise ValueError(f"a table must be {DELTA}URI or {ICEBERG}CATALOG.NAMESPACE.TABLE, got {table!r}")
    if kind + colon == ICEBERG and TOPIC in name.partition(".")[0]:
        raise ValueError(f"{TOPIC} may be in the namespace and in the name of a table, not in its catalog: {table!r}")
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"this table needs the package {package}: pip install 'kstore[{kind}]'"
        raise ModuleNotFoundError(message, name=package) from error


def absolute(table: str) -> str:
    """Return the name of a table that means the same in another working directory."""
    path = table.removeprefix(DELTA)
    return DELTA + locate(path).path if path != table and is_local(path) else table


def table_of(table: str, topic: str) -> str:
    """Return the table of a topic.

    In a URI stands the topic as it is. In an identifier of Iceberg, which engines split at dots, all characters but
    letters, digits and underscores become underscores.
    """
    name = _NOT_IN_IDENTIFIERS.sub("_", topic) if table.startswith(ICEBERG) else topic
    return table.replace(TOPIC, name)


def tables_of(table: str, topics: Iterable[str]) -> dict[str, str]:
    """Return the tables by topic.

    Raises: ExportError if two topics would have the same table.
    """
    topic_of: dict[str, str] = {}
    for topic in topics:
        name = table_of(table, topic)
        other = topic_of.setdefault(name, topic)
        if other != topic:
            raise ExportError(
                f"the topics {other} and {topic} would both be in {name}: select one of them, and give the other one "
                "another table",
                path=name,
            )
    return {topic: name for name, topic in topic_of.items()}
