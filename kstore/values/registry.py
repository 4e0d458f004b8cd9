"""Schemas by id, subject and version: what the records of a registry's topic, `_schemas`, add up to.

The records are those of Confluent's Schema Registry (KafkaSchemaRegistry), which Karapace and Redpanda write too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from kstore.env import Closing, Env, StrPath, join_path, locate
from kstore.errors import LogNotFoundError, LogReplacedError, SchemaNotFoundError, StorageError
from kstore.log.files.names import find_partition
from kstore.log.log import Log
from kstore.log.segment.replaced import is_change
from kstore.store.opening import open_found

SCHEMAS_TOPIC = "_schemas"
SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]

_CONTEXT = ":."
# The context whose level is that of all others that have none.
_GLOBAL = ":.__GLOBAL:"
# The version of a reference to the latest one.
_LATEST = -1
# References have no circle in a registry; a damaged one might.
_MOST_REFERENCES = 1000
# Attempts to read a topic whose files are replaced in the meantime.
_MOST_ATTEMPTS = 10


class Reference(NamedTuple):
    """That a schema names another one. name: what it calls it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject.

    schema_id: the id in frames; schema_type: AVRO, JSON or PROTOBUF; text: the schema; references: the subjects and
    versions that it imports.
    guid: the id in headers of newer serializers, None if the registry gave none. is_deleted: whether it was deleted
    softly, so that no new record uses it; it still reads the old ones.
    """

    schema_id: int
    subject: str
    version: int
    schema_type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    guid: str | None = None
    is_deleted: bool = False


def label_of(schema: RegisteredSchema) -> str:
    """Return what errors call a schema."""
    return f"version {schema.version} of {schema.subject!r}"


class SchemaRegistry:
    """The schemas of a registry. Thread-safe, as nothing changes it.

    Attributes: compatibility: the level of each subject that has one of its own, by subject; "" is that of the others,
        ":.CONTEXT:" that of the others of a context; ":.__GLOBAL:" that of what has none of these.
    """

    def __init__(self, schemas: Iterable[RegisteredSchema], compatibility: Mapping[str, str] | None = None) -> None:
        self.schemas = tuple(sorted(schemas, key=lambda schema: (schema.subject, schema.version)))
        self.compatibility = dict(compatibility or {})
        self._versions = {(schema.subject, schema.version): schema for schema in self.schemas}
        self._by_id: dict[tuple[str, int], RegisteredSchema] = {}
        self._by_guid: dict[str, RegisteredSchema] = {}
        # An id that a deleted version and another one have is that of the other one.
        for schema in sorted(self.schemas, key=lambda each: each.is_deleted):
            self._by_id.setdefault((_context_of(schema.subject), schema.schema_id), schema)
            if schema.guid is not None:
                self._by_guid.setdefault(schema.guid, schema)

    def __reduce__(self) -> tuple[object, ...]:
        return SchemaRegistry, (self.schemas, self.compatibility)

    def __repr__(self) -> str:
        return f"SchemaRegistry(subjects={len(self.subjects)}, schemas={len(self.schemas)})"

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects, in order, also those of which all versions were deleted softly."""
        return tuple(dict.fromkeys(schema.subject for schema in self.schemas))

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        """Return the schema with an id, of the context of a subject.

        Raises: SchemaNotFoundError.
        """
        schema = self._by_id.get((_context_of(subject), schema_id))
        if schema is None:
            raise SchemaNotFoundError(f"the registry has no schema of id {schema_id}")
        return schema

    def by_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema with a GUID.

        Raises: SchemaNotFoundError.
        """
        schema = self._by_guid.get(guid)
        if schema is None:
            raise SchemaNotFoundError(f"the registry has no schema of GUID {guid}")
        return schema

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return the versions of a subject, deleted ones too, in order; none for an unknown subject."""
        return tuple(schema for schema in self.schemas if schema.subject == subject)

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest version of a subject; a deleted one only if all are deleted.

        Raises: SchemaNotFoundError for an unknown subject.
        """
        versions = self.versions(subject)
        if not versions:
            raise SchemaNotFoundError(f"the registry has no subject {subject!r}")
        return max(versions, key=lambda schema: (not schema.is_deleted, schema.version))

    def compatibility_of(self, subject: str) -> str | None:
        """Return the level that a subject has, by itself, by its context, or as all subjects outside of contexts.

        None: the topic has no such level, and the default of the registry holds.
        """
        context = _context_of(subject)
        places = subject, f"{_CONTEXT}{context}:" if context else "", _GLOBAL
        return next((self.compatibility[place] for place in places if place in self.compatibility), None)

    def target(self, schema: RegisteredSchema, reference: Reference) -> RegisteredSchema | None:
        """Return the schema that a reference of `schema` names, None if it is missing.

        A subject without a context is one of the context of `schema`. The version -1 is the latest one.
        """
        subject, context = reference.subject, _context_of(schema.subject)
        if context and not _context_of(subject):
            subject = f"{_CONTEXT}{context}:{subject}"
        if reference.version == _LATEST:
            return self.latest(subject) if self.versions(subject) else None
        return self._versions.get((subject, reference.version))

    def referenced(self, schema: RegisteredSchema) -> list[RegisteredSchema]:
        """Return the schemas that a schema refers to, each once and after those that it refers to itself.

        Raises: SchemaNotFoundError if one is missing.
        """
        ordered: dict[tuple[str, int], RegisteredSchema] = {}
        self._collect(schema, ordered, [])
        return list(ordered.values())

    def _collect(
        self, schema: RegisteredSchema, ordered: dict[tuple[str, int], RegisteredSchema], within: list[RegisteredSchema]
    ) -> None:
        if schema in within or len(within) > _MOST_REFERENCES:
            raise SchemaNotFoundError(f"{label_of(schema)} refers to itself")
        for reference in schema.references:
            target = self.target(schema, reference)
            if target is None:
                raise SchemaNotFoundError(
                    f"{label_of(schema)} refers to version {reference.version} of "
                    f"{reference.subject!r}, which the registry does not have"
                )
            place = target.subject, target.version
            if place not in ordered:
                self._collect(target, ordered, [*within, schema])
                ordered[place] = target


def in_context_of(registry: SchemaRegistry, subject: str, schema_type: SchemaType) -> SchemaRegistry:
    """Return the schemas of a type in the context of a subject, with those that they refer to."""
    context = _context_of(subject)
    waiting = [
        schema
        for schema in registry.schemas
        if schema.schema_type == schema_type and _context_of(schema.subject) == context
    ]
    kept: dict[tuple[str, int], RegisteredSchema] = {}
    while waiting:
        schema = waiting.pop()
        if (schema.subject, schema.version) not in kept:
            kept[schema.subject, schema.version] = schema
            targets = (registry.target(schema, reference) for reference in schema.references)
            waiting += [target for target in targets if target is not None]
    return SchemaRegistry(kept.values())


class SchemaTopic(Closing):
    """The `_schemas` topic of a root, for reading it again as it grows.

    Args: path: a root that has the topic, or the directory of its one partition.
    Raises: SchemaNotFoundError if a root has no such topic.
    Lifetime: until close(). Threads: not thread-safe.
    """

    def __init__(self, path: StrPath, env: Env | None = None) -> None:
        env, place = locate(path, env)
        try:
            self._directory = find_partition(place, env)
        except LogNotFoundError:
            try:
                self._directory = find_partition(join_path(place, f"{SCHEMAS_TOPIC}-0"), env)
            except LogNotFoundError as error:
                raise SchemaNotFoundError(
                    f"{place} has no topic {SCHEMAS_TOPIC}: expected a root with a registry's topic, or its partition",
                    path=place,
                ) from error
        self._log: Log | None = None
        self._registry: SchemaRegistry | None = None
        self._extent = 0, 0

    def read(self) -> SchemaRegistry:
        """Return what the topic adds up to now; the same object if nothing was written.

        Raises: what Log.read raises.
        Cost: two stats if nothing was written; otherwise reads the topic once.
        """
        attempts_left = _MOST_ATTEMPTS
        while True:
            attempts_left -= 1
            try:
                return self._read()
            except (StorageError, LogReplacedError) as error:
                # A broker that compacts the topic replaces its files.
                self.close()
                if not attempts_left or not is_change(error):
                    raise

    def _read(self) -> SchemaRegistry:
        if self._log is None:
            self._log = open_found(self._directory)
        else:
            self._log.refresh()
        extent = self._log.log_end_offset, self._log.size_in_bytes
        if self._registry is None or extent != self._extent:
            self._registry = registry_of((record.key, record.value) for record in self._log.read())
            self._extent = extent
        return self._registry

    def close(self) -> None:
        """Close the log; the next read opens it again."""
        if self._log is not None:
            self._log.close()
            self._log = None


def registry_of(records: Iterable[tuple[bytes | None, bytes | None]]) -> SchemaRegistry:
    """Return what the keys and values of a `_schemas` topic add up to, in the order of their offsets.

    Keys and values that are no JSON objects, or lack what a registry writes, are passed over.
    """
    state = _State()
    for key, value in records:
        kind, fields = _object(key), _object(value)
        if kind is not None:
            state.apply(kind, fields)
    return SchemaRegistry(state.schemas.values(), state.compatibility)


def _object(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


class _State:
    """The state of a registry while its records are applied, as KafkaStoreMessageHandler does.

    A new version whose id has another text is passed over: two leaders gave one id, and the first one counts. A version
    that is written again, as for its deletion, may have its text in another form.
    """

    def __init__(self) -> None:
        self.schemas: dict[tuple[str, int], RegisteredSchema] = {}
        self.compatibility: dict[str, str] = {}
        # By context and id, the versions with it, the oldest first.
        self._users: dict[tuple[str, int], dict[tuple[str, int], None]] = {}

    def apply(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        subject = key.get("subject") or ""
        if not isinstance(subject, str):
            return
        match key.get("keytype"):
            case "SCHEMA":
                self._apply_schema(subject, key.get("version"), value)
            case "CONFIG":
                level = None if value is None else value.get("compatibilityLevel")
                self.compatibility.pop(subject, None)
                if isinstance(level, str):
                    self.compatibility[subject] = level
            case "DELETE_SUBJECT" if value is not None and type(value.get("version")) is int:
                for place, schema in self._versions(subject):
                    if schema.version <= value["version"]:
                        self.schemas[place] = replace(schema, is_deleted=True)
            case "CLEAR_SUBJECT" if value is not None:
                for (cleared, version), schema in [*self.schemas.items()]:
                    if schema.is_deleted and _is_cleared(cleared, value.get("subject")):
                        self._remove(cleared, version)

    def _versions(self, subject: str) -> list[tuple[tuple[str, int], RegisteredSchema]]:
        return [(place, schema) for place, schema in self.schemas.items() if place[0] == subject]

    def _apply_schema(self, subject: str, version: object, value: Mapping[str, Any] | None) -> None:
        if type(version) is not int:
            return
        if value is None:
            self._remove(subject, version)
            return
        schema = registered_schema(subject, version, value)
        if schema is None:
            return
        users = self._users.get((_context_of(subject), schema.schema_id))
        if users and (subject, version) not in users and self.schemas[next(iter(users))].text != schema.text:
            return
        self._remove(subject, version)
        self.schemas[subject, version] = schema
        self._users.setdefault((_context_of(subject), schema.schema_id), {})[subject, version] = None

    def _remove(self, subject: str, version: int) -> None:
        schema = self.schemas.pop((subject, version), None)
        if schema is not None:
            del self._users[_context_of(subject), schema.schema_id][subject, version]


def registered_schema(subject: str, version: int, fields: Mapping[str, Any]) -> RegisteredSchema | None:
    """Return the version of a subject that fields describe as a registry has them; None if they are others."""
    schema_id, text, guid = fields.get("id"), fields.get("schema"), fields.get("guid")
    schema_type = fields.get("schemaType") or "AVRO"
    if type(schema_id) is not int or not isinstance(text, str) or schema_type not in ("AVRO", "PROTOBUF", "JSON"):
        return None
    return RegisteredSchema(
        schema_id,
        subject,
        version,
        cast("SchemaType", schema_type),
        text,
        tuple(_references(fields.get("references"))),
        guid if isinstance(guid, str) else None,
        is_deleted=fields.get("deleted") is True,
    )


def _references(items: object) -> Iterator[Reference]:
    for item in items if isinstance(items, list) else ():
        match item:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                yield Reference(name, subject, version)


def _is_cleared(subject: str, cleared: object) -> bool:
    """Whether clearing `cleared`, a subject, a context with no subject in it, or None for all, includes a subject."""
    if cleared in (None, subject, _GLOBAL):
        return True
    is_context = isinstance(cleared, str) and (not cleared or (cleared.startswith(_CONTEXT) and cleared.endswith(":")))
    return is_context and _context_of(str(cleared)) == _context_of(subject)


def _context_of(subject: str) -> str:
    """Return the context of a subject, in which ids are unique: "" or that between `:.` and the next colon."""
    if not subject.startswith(_CONTEXT):
        return ""
    return subject[len(_CONTEXT) :].partition(":")[0]
