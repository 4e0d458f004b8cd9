"""Schemas of Protobuf as descriptors: which messages a schema has, and which one a value is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from threading import Lock

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool

from kstore.errors import InvalidSchemaError
from kstore.values.protobuf.compiling import compiled
from kstore.values.protobuf.known import GOOGLE_FILES, known_files
from kstore.values.protobuf.texts import descriptors_in, text_of_files
from kstore.values.providers import SchemaText

_KEPT_SCHEMAS = 1024
_MOST_FILES = 2000
_portable: dict[SchemaText, str | None] = {}
_portable_lock = Lock()
_MOST_NAMED = 20
_KEY_TYPES = frozenset(
    getattr(FieldDescriptorProto, f"TYPE_{name}")
    for name in ("BOOL", "STRING", "INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64", "FIXED32", "FIXED64")
) | {FieldDescriptorProto.TYPE_SFIXED32, FieldDescriptorProto.TYPE_SFIXED64}


class ProtobufSchema:
    """The messages of a schema.

    Args: files: that of the schema last, after those that it imports, in any order.
    Raises: InvalidSchemaError.
    Threads: thread-safe.
    """

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self._main = files[-1]
        # Its own pool, as another version has the same names.
        self._pool = DescriptorPool()
        for file in _in_order(files):
            _check_entries(file.message_type)
            try:
                self._pool.AddSerializedFile(file.SerializeToString())
            except (TypeError, ValueError) as error:
                raise InvalidSchemaError(f"malformed schema of Protobuf: {str(error)[:500]}") from error

    def named(self, name: str | None) -> Descriptor:
        """Return a message by its name, with or without the package; the first one of the file for None.

        Raises: InvalidSchemaError.
        """
        if name is None:
            return self._message([self._at([0])])
        message = self.find(name)
        if message is not None:
            return message
        package = f"{self._main.package}." if self._main.package else ""
        names = [f"{package}{each}" for each in _names(self._main.message_type)]
        more = ", ..." if len(names) > _MOST_NAMED else ""
        raise InvalidSchemaError(
            f"the schema of Protobuf has no message {name!r}; it has {', '.join(names[:_MOST_NAMED])}{more}"
        )

    def find(self, name: str) -> Descriptor | None:
        """Return a message by its name, with or without the package; None if there is none."""
        package = f"{self._main.package}." if self._main.package else ""
        for full_name in (name.removeprefix("."), f"{package}{name}"):
            try:
                return self._pool.FindMessageTypeByName(full_name)
            except KeyError:
                continue
        return None

    def at(self, indexes: Sequence[int], expected: str) -> Descriptor:
        """Return the message that the indexes of a value name.

        Confluent's serializers in Java do not count the entries of maps among the messages in a message, and those of
        Python do: where both are messages, it is the one of the expected name, or else that of Java.
        Args: expected: the name of a message in its package.
        Raises: InvalidSchemaError.
        """
        return self._message([self._at(indexes, counts_entries=False), self._at(indexes)], expected)

    def _message(self, names: Sequence[str | None], expected: str = "") -> Descriptor:
        known = [name for name in names if name is not None]
        if not known:
            raise InvalidSchemaError("the schema has no message of these indexes")
        name = expected if expected in known else known[0]
        package = f"{self._main.package}." if self._main.package else ""
        return self._pool.FindMessageTypeByName(f"{package}{name}")

    def _at(self, indexes: Sequence[int], *, counts_entries: bool = True) -> str | None:
        """Return the name of a message without the package, None if there is none."""
        messages: Iterable[DescriptorProto] = self._main.message_type
        path = []
        for index in indexes:
            listed = [each for each in messages if counts_entries or not each.options.map_entry]
            if not 0 <= index < len(listed):
                return None
            path.append(listed[index].name)
            messages = listed[index].nested_type
        return ".".join(path) or None


def name_in_package(message: Descriptor) -> str:
    """Return the name of a message without the package."""
    name: str = message.full_name
    return name.removeprefix(f"{message.file.package}.") if message.file.package else name


@lru_cache(maxsize=_KEPT_SCHEMAS)
def schema_of(schema: SchemaText) -> ProtobufSchema:
    """Return a schema, which is kept.

    Raises: InvalidSchemaError; ModuleNotFoundError for text without a compiler.
    """
    result = _made(schema)
    if isinstance(result, InvalidSchemaError):
        raise result
    return ProtobufSchema(result)


def portable_text(schema: SchemaText) -> str:
    """Return a schema as descriptors, which need no compiler, as text.

    Raises: InvalidSchemaError; ModuleNotFoundError for text without a compiler.
    """
    files = _made(schema)
    if isinstance(files, InvalidSchemaError):
        raise files
    return text_of_files(files)


def portable_texts(schemas: Sequence[SchemaText]) -> list[str | None]:
    """Return schemas as descriptors, which need no compiler, as text; None for those of which there are none.

    Those of the last schemas are kept, at least those of the last call.
    Cost: one process for all that are not kept; none if all are.
    Threads: thread-safe.
    """
    with _portable_lock:
        known = {schema: _portable[schema] for schema in schemas if schema in _portable}
    new = list(dict.fromkeys(schema for schema in schemas if schema not in known))
    texts = [schema for schema in new if descriptors_in(schema.text) is None]
    try:
        at_once = dict(zip(texts, _compiled(texts), strict=True)) if texts else {}
        made = {schema: at_once[schema] if schema in at_once else _made(schema) for schema in new}
    except ModuleNotFoundError:
        return [None] * len(schemas)
    for schema, files in made.items():
        known[schema] = None if isinstance(files, InvalidSchemaError) else text_of_files(files)
    with _portable_lock:
        if len(_portable) + len(made) > _KEPT_SCHEMAS:
            _portable.clear()
        _portable.update(known)
    return [known[schema] for schema in schemas]


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _made(schema: SchemaText) -> list[FileDescriptorProto] | InvalidSchemaError:
    """Return the files of a schema, its own last."""
    files = descriptors_in(schema.text)
    if files is None:
        return _compiled([schema])[0]
    if not schema.references:
        return files
    imports = "".join(f'import "{reference.name}";\n' for reference in schema.references)
    imported = _compiled([schema._replace(text=f'syntax = "proto3";\n{imports}')])[0]
    if isinstance(imported, InvalidSchemaError):
        return imported
    return [*imported[:-1], *files]


def _compiled(schemas: Sequence[SchemaText]) -> list[list[FileDescriptorProto] | InvalidSchemaError]:
    return [
        each if isinstance(each, InvalidSchemaError) else list(FileDescriptorSet.FromString(each).file)
        for each in compiled(schemas)
    ]


def _in_order(files: Sequence[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return the files, with known ones that they import, each after those that it imports itself.

    Raises: InvalidSchemaError if one is missing, or imports itself.
    """
    if not all(isinstance(name, str) for file in files for name in (file.name, *file.dependency)):
        raise InvalidSchemaError("malformed schema of Protobuf: the name of a file is not UTF-8")
    # Those of Google are not those that a schema has, which may be others.
    google = {name: file for name, file in known_files().items() if name in GOOGLE_FILES}
    by_name = {**known_files(), **{file.name: file for file in files}, **google}
    ordered: dict[str, FileDescriptorProto] = {}
    waiting: list[tuple[str, bool]] = [(file.name, False) for file in files]
    within: set[str] = set()
    while waiting:
        name, is_after = waiting.pop()
        if is_after:
            within.discard(name)
            ordered[name] = by_name[name]
        elif name not in ordered:
            if name not in by_name or name in within or len(by_name) > _MOST_FILES:
                problem = "imports itself" if name in within else "is imported, and is missing"
                raise InvalidSchemaError(f"malformed schema of Protobuf: {name[:200]!r} {problem}")
            within.add(name)
            waiting.append((name, True))
            waiting += [(each, False) for each in by_name[name].dependency]
    return list(ordered.values())


def _check_entries(messages: Iterable[DescriptorProto]) -> None:
    """Raise InvalidSchemaError for an entry of a map that is none."""
    for message in messages:
        _check_entries(message.nested_type)
        if message.options.map_entry and (
            [each.number for each in message.field] != [1, 2]
            or message.field[0].type not in _KEY_TYPES
            or any(each.label == each.LABEL_REPEATED or each.HasField("oneof_index") for each in message.field)
        ):
            raise InvalidSchemaError(f"malformed schema of Protobuf: {message.name[:200]!r} is no entry of a map")


def _names(messages: Iterable[DescriptorProto], within: str = "") -> list[str]:
    names = []
    for message in messages:
        if not message.options.map_entry:
            names += [f"{within}{message.name}", *_names(message.nested_type, f"{within}{message.name}.")]
    return names
