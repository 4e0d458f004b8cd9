"""Schema resolution: how values of a writer's schema become columns of a reader's, as steps of the core.

The rules are those of Avro's specification, with two exceptions. Names of records need not match, as in Avro's Java
library. A logical type is part of what a reader wants: a timestamp in milliseconds is not read as one in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kstore._core import AVRO_SKIPS, AVRO_STEPS, AvroProgram, ValueColumns
from kstore.errors import InvalidSchemaError
from kstore.values.avro.columns import Column
from kstore.values.avro.defaults import encoded_default
from kstore.values.avro.schema import (
    NO_DEFAULT,
    ArrayType,
    AvroType,
    EnumType,
    Field,
    Fixed,
    Logical,
    MapType,
    Primitive,
    RecordType,
    UnionType,
    branch_key,
    type_name,
)

_UNWANTED = -1
_LIMB_BYTES = 32
_PROMOTIONS = {
    ("int", "long"): "int as long",
    ("int", "float"): "int as float",
    ("int", "double"): "int as double",
    ("long", "float"): "long as float",
    ("long", "double"): "long as double",
    ("float", "double"): "float as double",
    ("string", "bytes"): "bytes",
    ("bytes", "string"): "string",
}
_FIXED_BYTES = {"boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}


class Resolution:
    """The steps by which values of a writer's schema are read.

    Attributes: problems: what the reader has no place for, a phrase each; values that need it cannot be read.
    """

    def __init__(self, writer: AvroType, reader: Column) -> None:
        self.problems: list[str] = []
        self._steps: list[tuple[int, int, int, int, int, int, int]] = []
        self._references: list[int] = []
        self._constants = bytearray()
        self._skipped: dict[AvroType, int] = {}
        self._least: dict[AvroType, int] = {}
        self._path: list[str] = []
        self._root = self._read(writer, reader)

    def program(self, columns: ValueColumns) -> AvroProgram:
        """Return the steps for columns that have the layout of the reader."""
        return AvroProgram(columns, self._steps, self._references, bytes(self._constants), root=self._root)

    # Steps

    def _step(
        self,
        kind: str,
        column: Column | None = None,
        references: list[int] | None = None,
        *,
        count: int | None = None,
        size: int = 0,
        constant: bytes = b"",
    ) -> int:
        first, position = len(self._references), len(self._constants)
        references = references or []
        self._references += references
        self._constants += constant
        number = _UNWANTED if column is None else column.number
        self._steps.append(
            (
                AVRO_STEPS[kind],
                number,
                first,
                len(references) if count is None else count,
                size,
                position,
                len(constant),
            )
        )
        return len(self._steps) - 1

    def _unresolved(self, writer: AvroType, reader: Column) -> int:
        where = ".".join(self._path) or "the value"
        self._problem(f"{where} was written as {type_name(writer)}, and is read as {type_name(reader.avro_type)}")
        return self._step("unresolved")

    def _problem(self, phrase: str) -> None:
        if phrase not in self.problems:
            self.problems.append(phrase)

    # Reading

    def _read(self, writer: AvroType, reader: Column) -> int:
        """Return the number of the step that reads a value of the writer into a column."""
        if isinstance(writer, UnionType):
            return self._step("union", None, [self._read(branch, reader) for branch in writer.branches])
        if isinstance(writer, Primitive) and writer.name == "null":
            return self._step("null", reader)
        wanted = reader.avro_type
        if isinstance(wanted, UnionType):
            return self._read_member(writer, reader)
        match writer, wanted:
            case RecordType(), RecordType():
                return self._read_record(writer, wanted, reader)
            case ArrayType(), ArrayType():
                item = self._read(writer.items, reader.children[0])
                return self._step("array", reader, [item], size=self._least_size(writer.items))
            case MapType(), MapType():
                value = self._read(writer.values, reader.children[0].children[1])
                return self._step("map", reader, [value], size=1)
            case EnumType(), EnumType() if _names_match(writer, wanted):
                return self._read_enum(writer, wanted, reader)
            case Fixed(), Fixed() if writer.size == wanted.size and _names_match(writer, wanted):
                return self._read_scalar(writer, wanted, reader)
            case Primitive(), Primitive():
                return self._read_scalar(writer, wanted, reader)
            case Fixed() | Primitive(), Fixed() | Primitive() if _are_decimals(writer, wanted):
                return self._read_scalar(writer, wanted, reader)
        return self._unresolved(writer, reader)

    def _read_scalar(self, writer: Primitive | Fixed, wanted: Primitive | Fixed, reader: Column) -> int:
        logical = wanted.logical
        if writer.logical is not None and logical is not None and not _agree(writer.logical, logical):
            return self._unresolved(writer, reader)
        if logical is not None and logical.name == "decimal":
            return self._read_decimal(writer, logical, reader)
        if isinstance(writer, Fixed):
            kind = "fixed" if logical is None else logical.name
            return self._step(kind, reader, size=writer.size)
        kind = writer.name if writer.name == wanted.name else _PROMOTIONS.get((writer.name, wanted.name), "")
        return self._step(kind, reader) if kind else self._unresolved(writer, reader)

    def _read_decimal(self, writer: Primitive | Fixed, logical: Logical, reader: Column) -> int:
        bound = (10**logical.precision).to_bytes(_LIMB_BYTES, "little")
        if isinstance(writer, Fixed):
            return self._step("decimal fixed", reader, size=writer.size, constant=bound)
        if writer.name not in ("bytes", "string"):
            return self._unresolved(writer, reader)
        return self._step("decimal bytes", reader, constant=bound)

    def _read_enum(self, writer: EnumType, wanted: EnumType, reader: Column) -> int:
        texts: list[int] = []
        constants = bytearray()
        first = len(self._constants)
        for symbol in writer.symbols:
            text = symbol if symbol in wanted.symbols else wanted.default
            if text is None:
                self._problem(f"{'.'.join(self._path)} has symbol {symbol!r}, which the reader's enum does not have")
                texts += (-1, 0)
                continue
            encoded = text.encode("utf-8", "replace")
            texts += (first + len(constants), len(encoded))
            constants += encoded
        return self._step("enum", reader, texts, count=len(writer.symbols), constant=bytes(constants))

    def _read_record(self, writer: RecordType, wanted: RecordType, reader: Column) -> int:
        steps: list[int | AvroType] = []
        written: set[str] = set()
        for each in writer.fields:
            target = _reader_field(each.name, wanted)
            column = None if target is None else reader.child(target.name)
            if target is None or column is None or target.name in written:
                steps.append(each.type)
            else:
                steps.append(self._read_field(each, column))
            if target is not None:
                written.add(target.name)
        for target in wanted.fields:
            column = reader.child(target.name)
            if column is None or target.name in written:
                continue
            if target.default is NO_DEFAULT:
                self._problem(
                    f"field {target.name!r} of {type_name(wanted)} was not written, and the reader's schema has no "
                    "default for it"
                )
                steps.append(self._step("unresolved"))
                continue
            steps.append(self._default(target, column))
        return self._step("record", reader, self._joined(steps))

    def _read_field(self, each: Field, column: Column) -> int:
        self._path.append(each.name)
        step = self._read(each.type, column)
        self._path.pop()
        return step

    def _default(self, target: Field, column: Column) -> int:
        try:
            encoded = encoded_default(target.type, target.default)
        except InvalidSchemaError as error:
            self._problem(f"field {target.name!r} was not written: {error}")
            return self._step("unresolved")
        return self._step("default", None, [self._read(target.type, column)], constant=encoded)

    def _read_member(self, writer: AvroType, reader: Column) -> int:
        """Return the step for a value that a union of several types has a branch for."""
        branches = [child.avro_type for child in reader.children]
        number = next((i for i, branch in enumerate(branches) if branch_key(branch) == branch_key(writer)), None)
        if number is None:
            number = next((i for i, branch in enumerate(branches) if _may_be_read_as(writer, branch)), None)
        if number is None:
            return self._unresolved(writer, reader)
        return self._step("member", reader, [self._read(writer, reader.children[number])], size=number)

    # Skipping

    def _joined(self, fields: Iterable[int | AvroType]) -> list[int]:
        """Return the steps of fields, given as steps or as types that are passed over; types in a row become one step
        where they can.
        """
        steps: list[int] = []
        plain: list[tuple[int, int]] = []
        for each in (*fields, None):
            skip = None if each is None or isinstance(each, int) else _plain_skip(each)
            if skip is not None:
                plain += skip
                continue
            if plain:
                steps.append(self._step("skip", None, list(chain.from_iterable(plain)), count=len(plain)))
                plain = []
            if each is not None:
                steps.append(each if isinstance(each, int) else self._skip(each))
        return steps

    def _skip(self, writer: AvroType) -> int:
        """Return the step that moves past a value; a type that contains itself has a step that refers to itself."""
        known = self._skipped.get(writer)
        if known is not None:
            return known
        match writer:
            case Primitive():
                return self._step(writer.name)
            case Fixed():
                return self._step("fixed", size=writer.size)
            case EnumType():
                return self._step("enum", None, [-1, 0] * len(writer.symbols), count=len(writer.symbols))
            case UnionType():
                return self._step("union", None, [self._skip(branch) for branch in writer.branches])
            case ArrayType():
                return self._step("array", None, [self._skip(writer.items)], size=self._least_size(writer.items))
            case MapType():
                return self._step("map", None, [self._skip(writer.values)], size=1)
        number = self._skipped[writer] = self._step("record")
        steps = self._joined(each.type for each in writer.fields)
        kind, column, _, _, size, constant, constant_size = self._steps[number]
        self._steps[number] = (kind, column, len(self._references), len(steps), size, constant, constant_size)
        self._references += steps
        return number

    def _least_size(self, writer: AvroType) -> int:
        """Return a lower bound of the bytes that a value takes."""
        match writer:
            case Primitive():
                return _FIXED_BYTES.get(writer.name, 0)
            case Fixed():
                return writer.size
            case RecordType():
                if writer not in self._least:
                    self._least[writer] = 0
                    self._least[writer] = sum(self._least_size(each.type) for each in writer.fields)
                return self._least[writer]
        return 1


def _plain_skip(writer: AvroType) -> list[tuple[int, int]] | None:
    """Return how the core passes over a value that is no array, map or record, or a union of it and null; None for
    others.
    """
    match writer:
        case Primitive():
            if writer.name == "null":
                return []
            if writer.name in ("boolean", "float", "double"):
                return [(AVRO_SKIPS["fixed"], _FIXED_BYTES[writer.name])]
            return [(AVRO_SKIPS["sized" if writer.name in ("bytes", "string") else "number"], 0)]
        case Fixed():
            return [(AVRO_SKIPS["fixed"], writer.size)]
        case EnumType():
            return [(AVRO_SKIPS["number"], 0)]
        case UnionType(branches=(Primitive(name="null"), other)):
            return _optional_skip(other, "if second")
        case UnionType(branches=(other, Primitive(name="null"))):
            return _optional_skip(other, "if first")
    return None


def _optional_skip(branch: AvroType, when: str) -> list[tuple[int, int]] | None:
    skips = _plain_skip(branch)
    return [(kind | AVRO_SKIPS[when], size) for kind, size in skips] if skips else None


def _reader_field(name: str, wanted: RecordType) -> Field | None:
    """Return the field of a reader's record that takes the values of a written field."""
    named = next((each for each in wanted.fields if each.name == name), None)
    return named or next((each for each in wanted.fields if name in each.aliases), None)


def _names_match(writer: EnumType | Fixed, wanted: EnumType | Fixed) -> bool:
    """Whether the names are one without their namespaces, or the reader has the writer's as an alias."""
    short = writer.name.rpartition(".")[2]
    return short == wanted.name.rpartition(".")[2] or writer.name in wanted.aliases or short in wanted.aliases


def _are_decimals(writer: Primitive | Fixed, wanted: Primitive | Fixed) -> bool:
    return all(each.logical is not None and each.logical.name == "decimal" for each in (writer, wanted))


def _agree(one: Logical, other: Logical) -> bool:
    """Whether two logical types mean the same numbers."""
    return one.name == other.name and one.scale == other.scale


def _may_be_read_as(writer: AvroType, branch: AvroType) -> bool:
    match writer, branch:
        case Primitive(), Primitive():
            return writer.name == branch.name or (writer.name, branch.name) in _PROMOTIONS
        case EnumType(), EnumType():
            return _names_match(writer, branch)
        case Fixed(), Fixed():
            return writer.size == branch.size and _names_match(writer, branch)
    return type(writer) is type(branch)
