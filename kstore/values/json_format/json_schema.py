"""JSON Schema to the Arrow type that values which it describes become."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

import pyarrow as pa

from kstore.errors import InvalidSchemaError, SchemaNotFoundError, json_fault
from kstore.values.decoded import MOST_COLUMN_DEPTH, MOST_COLUMNS
from kstore.values.json_format.columns import TEXT
from kstore.values.providers import NamedSchema

# A schema may name the same one many times over, without a column for it.
_MOST_STEPS = 1 << 16
_MOST_NESTED = 250
_BRANCHES = ("oneOf", "anyOf")
_SIMPLE = {"string": pa.string(), "boolean": pa.bool_(), "null": pa.null(), "number": pa.float64()}
# Of Kafka Connect's JSON converters, for integers and numbers.
_CONNECT = {
    ("integer", "int8"): pa.int8(),
    ("integer", "int16"): pa.int16(),
    ("integer", "int32"): pa.int32(),
    ("number", "float32"): pa.float32(),
}
_CONNECT_TITLES = {
    ("integer", "org.apache.kafka.connect.data.Date"): pa.date32(),
    ("integer", "org.apache.kafka.connect.data.Timestamp"): pa.timestamp("ms", "UTC"),
    # Of which a double would keep 15 digits.
    ("number", "org.apache.kafka.connect.data.Decimal"): TEXT,
}


def type_of_json_schema(text: str, references: Sequence[NamedSchema] = ()) -> pa.DataType:
    """Return the type that values of a JSON Schema become: TEXT where it has none, as for one of several objects.

    Args: references: the schemas that it names.
    Raises: InvalidSchemaError for text that is no JSON Schema, or more or deeper columns than there may be;
        SchemaNotFoundError for a reference to what is not there.
    """
    documents = {"": _parsed(text, "the JSON Schema")}
    for name, other in references:
        documents[name] = _parsed(other, f"the JSON Schema {name!r}")
    try:
        return _Types(documents).type(documents[""], "")
    except RecursionError as error:
        raise InvalidSchemaError("the JSON Schema is nested too deep") from error
    except UnicodeEncodeError as error:
        found = error.object[max(0, error.start - 20) : error.end]
        raise InvalidSchemaError(f"the JSON Schema has a name that is no text: {found!r}") from error


def _parsed(text: str, name: str) -> Any:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"{name} is no JSON: {json_fault(error)}") from error
    if not isinstance(schema, (dict, bool)):
        raise InvalidSchemaError(f"{name} is neither an object nor a boolean")
    return schema


class _Place(NamedTuple):
    """A place in a document, by its JSON pointer."""

    document: str
    pointer: str


class _Types:
    """Makes the type of a schema; knows which references it is in, to see one to itself."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        self._ids = {
            schema["$id"]: name
            for name, schema in documents.items()
            if isinstance(schema, dict) and isinstance(schema.get("$id"), str)
        }
        self._within: list[_Place] = []
        self._steps = 0
        self._columns = 0
        self._depth = 0
        self._nested = 0

    def type(self, schema: Any, document: str) -> pa.DataType:
        """Return the type of a schema in a document.  Raises: InvalidSchemaError, SchemaNotFoundError."""
        self._steps += 1
        self._nested += 1
        if self._steps > _MOST_STEPS or self._nested > _MOST_NESTED:
            raise InvalidSchemaError(
                f"the JSON Schema has more than {_MOST_STEPS} parts, or parts nested more than {_MOST_NESTED} deep"
            )
        arrow_type = self._of(schema, document) if isinstance(schema, dict) else TEXT
        self._nested -= 1
        return arrow_type

    def _of(self, schema: Mapping[str, Any], document: str) -> pa.DataType:
        if isinstance(schema.get("$ref"), str):
            return self._referenced(schema["$ref"], document)
        if isinstance(schema.get("allOf"), list):
            rest = {key: each for key, each in schema.items() if key != "allOf"}
            return _of_all([self.type(each, document) for each in [*schema["allOf"], rest]])
        kinds = _kinds(schema)
        if not kinds:
            branches: list[Any] = next((schema[key] for key in _BRANCHES if isinstance(schema.get(key), list)), [])
            return _of_one([self.type(each, document) for each in branches])
        return _of_one([self._of_kind(kind, schema, document) for kind in kinds])

    def _of_kind(self, kind: str, schema: Mapping[str, Any], document: str) -> pa.DataType:
        if kind == "object":
            return self._object(schema, document)
        if kind == "array":
            items = schema.get("items")
            with self._column(1):
                item = TEXT if "prefixItems" in schema or isinstance(items, list) else self.type(items, document)
            return pa.list_(pa.field("element", item))
        title, connect = schema.get("title"), schema.get("connect.type")
        if isinstance(title, str) and (kind, title) in _CONNECT_TITLES:
            return _CONNECT_TITLES[kind, title]
        if isinstance(connect, str) and (kind, connect) in _CONNECT:
            return _CONNECT[kind, connect]
        return pa.int64() if kind == "integer" else _SIMPLE[kind]

    def _object(self, schema: Mapping[str, Any], document: str) -> pa.DataType:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            fields = []
            for name, each in properties.items():
                with self._column(1):
                    fields.append(pa.field(name, self.type(each, document)))
            return pa.struct(fields)
        if isinstance(others, dict):
            with self._column(2):
                return pa.map_(pa.string(), pa.field("value", self.type(others, document)))
        return TEXT

    @contextmanager
    def _column(self, depth: int) -> Iterator[None]:
        """Count a column, and those that it is in, while its type is made."""
        self._columns += 1
        self._depth += depth
        if self._columns > MOST_COLUMNS or self._depth > MOST_COLUMN_DEPTH:
            raise InvalidSchemaError(
                f"the JSON Schema has more than {MOST_COLUMNS} columns, or columns nested more than "
                f"{MOST_COLUMN_DEPTH} deep"
            )
        yield
        self._depth -= depth

    def _referenced(self, reference: str, document: str) -> pa.DataType:
        place = self._place(reference, document)
        if place in self._within:
            return TEXT
        self._within.append(place)
        arrow_type = self.type(self._at(place, reference), place.document)
        self._within.pop()
        return arrow_type

    def _place(self, reference: str, document: str) -> _Place:
        name, _, pointer = reference.partition("#")
        if not name:
            return _Place(document, pointer)
        here = self._documents[document]
        base = here.get("$id") if isinstance(here, dict) else None
        for each in (name, urljoin(base, name) if isinstance(base, str) else name):
            if each in self._documents:
                return _Place(each, pointer)
            if each in self._ids:
                return _Place(self._ids[each], pointer)
        raise SchemaNotFoundError(f"the JSON Schema refers to {reference!r}, which is not among its references")

    def _at(self, place: _Place, reference: str) -> Any:
        schema = self._documents[place.document]
        for part in place.pointer.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict) and name in schema:
                schema = schema[name]
            elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
                schema = schema[int(name)]
            else:
                raise SchemaNotFoundError(f"the JSON Schema refers to {reference!r}, which is not there")
        if place.pointer and not place.pointer.startswith("/"):
            raise SchemaNotFoundError(f"the JSON Schema refers to {reference!r}: expected a JSON pointer after #")
        return schema


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the types that a schema allows, none if it says nothing of them."""
    known = (*_SIMPLE, "integer", "object", "array")
    given = schema.get("type")
    if isinstance(given, (str, list)):
        listed = [given] if isinstance(given, str) else given
        unknown = [each for each in listed if each not in known]
        if unknown or not listed:
            raise InvalidSchemaError(f"the JSON Schema has a type {given!r}: expected {', '.join(known)}")
        return listed
    if "properties" in schema:
        return ["object"]
    if "items" in schema or "prefixItems" in schema:
        return ["array"]
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    return list(dict.fromkeys(_kind_of(value) for value in values))


def _kind_of(value: Any) -> str:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _of_one(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type of values of which each has one of these types."""
    several = [each for each in dict.fromkeys(types) if not pa.types.is_null(each)]
    if not several:
        return pa.null() if types else TEXT
    if set(several) == {pa.int64(), pa.float64()}:
        return pa.float64()
    return several[0] if len(several) == 1 else TEXT


def _of_all(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type of values that have all of these types, of which TEXT says nothing."""
    several = [each for each in dict.fromkeys(types) if each != TEXT]
    if not several or not all(pa.types.is_struct(each) for each in several):
        return several[0] if len(several) == 1 else TEXT
    fields: dict[str, pa.DataType] = {}
    for each in (field for arrow_type in several for field in arrow_type):
        fields[each.name] = _of_all([fields.get(each.name, TEXT), each.type])
    return pa.struct(list(fields.items()))
