"""`kstore schemas`: the schemas of a registry, by its topic `_schemas`."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Column, printable
from kstore.cli.render import JSON_TEXT
from kstore.errors import SchemaNotFoundError
from kstore.values.sources import RestRegistry, schemas_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstore.cli.output import Output
    from kstore.values.registry import RegisteredSchema, SchemaRegistry

COLUMNS = (
    Column("subject"),
    Column("version", is_number=True),
    Column("id", is_number=True),
    Column("type"),
    Column("compatibility"),
    Column("deleted", rank=1),
    Column("references", rank=2),
    Column("guid", rank=3),
)
LATEST = "latest"
_KEPT_SPACE = "\n\t"
_MOST_ID_DIGITS = 10
# One group, which is the whole of a string, or the rest of a text in which it does not end.
_JSON_STRING = re.compile(r'("(?:[^"\\]|\\.)*"?)', re.DOTALL)


class SchemasWanted(NamedTuple):
    """Which schemas to show.

    subject: of this one only; None for all. get: an id or a GUID, version: a version or "latest" of the subject; the
    text of the schema is shown, with_references after those of the schemas that it refers to.
    """

    place: str
    subject: str | None
    get: str | None
    version: str | None
    with_references: bool

    def check(self) -> None:
        """Raise WrongUseError for options that do not go together."""
        if self.get is not None and self.version is not None:
            raise WrongUseError("expected --get or --version, got both")
        if self.version is not None and self.subject is None:
            raise WrongUseError("--version needs --subject")
        if self.with_references and self.get is self.version is None:
            raise WrongUseError("--references needs --get, or --subject and --version")

    def shown(self, registry: SchemaRegistry) -> list[RegisteredSchema]:
        """Return the schemas that are shown.  Raises: WrongUseError, SchemaNotFoundError."""
        if self.get is not None or self.version is not None:
            schema = self.chosen(registry)
            return [*(registry.referenced(schema) if self.with_references else ()), schema]
        if self.subject is None:
            return list(registry.schemas)
        versions = list(registry.versions(self.subject))
        if not versions:
            raise SchemaNotFoundError(f"the registry has no subject {self.subject!r}")
        return versions

    def chosen(self, registry: SchemaRegistry) -> RegisteredSchema:
        """Return the schema whose text is shown.  Raises: WrongUseError, SchemaNotFoundError."""
        subject = self.subject or ""
        if self.version is not None:
            if self.version == LATEST:
                return registry.latest(subject)
            number = _number(self.version, "--version must be a number or latest")
            for schema in registry.versions(subject):
                if schema.version == number:
                    return schema
            raise SchemaNotFoundError(f"the registry has no version {number} of the subject {subject!r}")
        text = self.get or ""
        if _is_guid(text):
            return registry.by_guid(str(UUID(text)))
        schema_id = _number(text, "--get must be an id or a GUID")
        own = [schema for schema in registry.versions(subject) if schema.schema_id == schema_id]
        return min(own, key=lambda each: each.is_deleted) if own else registry.by_id(schema_id, subject)


def run(wanted: SchemasWanted, out: Output, *, is_json: bool) -> int:
    """Show the schemas of a registry, or the text of one, and return the exit status."""
    wanted.check()
    is_text = wanted.get is not None or wanted.version is not None
    try:
        with closing(schemas_source(wanted.place)) as source:
            registry = source.read()
            schemas = wanted.shown(registry)
            if isinstance(source, RestRegistry) and (is_json or not is_text):
                registry = source.with_levels(registry, [schema.subject for schema in schemas])
    except ValueError as error:
        raise WrongUseError(str(error)) from error
    if is_json or is_text:
        for schema in schemas:
            out.line(json_of(schema, registry, with_text=is_text) if is_json else text_of(schema))
    elif schemas:
        out.table(COLUMNS, [row_of(schema, registry) for schema in schemas])
    return EXIT_FINE


def row_of(schema: RegisteredSchema, registry: SchemaRegistry) -> list[str]:
    """Return the table cells of a version, in the order of COLUMNS."""
    references = (f"{each.name} = {each.subject} {each.version}" for each in schema.references)
    level = registry.compatibility_of(schema.subject)
    return [
        printable(schema.subject),
        str(schema.version),
        str(schema.schema_id),
        schema.schema_type,
        "-" if level is None else printable(level),
        "yes" if schema.is_deleted else "-",
        printable(", ".join(references)) or "-",
        "-" if schema.guid is None else printable(schema.guid),
    ]


def json_of(schema: RegisteredSchema, registry: SchemaRegistry, *, with_text: bool = False) -> str:
    """Return the JSON object of a version."""
    shown = {
        "subject": schema.subject,
        "version": schema.version,
        "schema_id": schema.schema_id,
        "schema_type": schema.schema_type,
        "compatibility": registry.compatibility_of(schema.subject),
        "is_deleted": schema.is_deleted,
        "references": [reference._asdict() for reference in schema.references],
        "guid": schema.guid,
    }
    return JSON_TEXT(shown | ({"text": schema.text} if with_text else {}))


def text_of(schema: RegisteredSchema) -> str:
    """Return the text of a schema as it is, but for what could control a terminal.

    Of JSON such characters become JSON's own escapes in strings, and blanks elsewhere, where JSON has no escapes, so
    that it stays the same schema.
    """
    text = schema.text.replace("\r\n", "\n")
    if schema.schema_type == "PROTOBUF":
        return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    parts = _JSON_STRING.split(text)
    parts[::2] = [_shown(part, lambda _: " ") for part in parts[::2]]
    parts[1::2] = [_shown(part, _json_escape) for part in parts[1::2]]
    return "".join(parts)


def _shown(text: str, replacement: Callable[[str], str]) -> str:
    return "".join(
        character if character.isprintable() or character in _KEPT_SPACE else replacement(character)
        for character in text
    )


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _number(text: str, expected: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_ID_DIGITS):
        raise WrongUseError(f"{expected}, got {text[:60]!r}")
    return int(text)


def _is_guid(text: str) -> bool:
    try:
        return len(text) == len(str(UUID(text)))
    except ValueError:
        return False
