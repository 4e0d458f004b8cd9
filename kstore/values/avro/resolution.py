"""Schema resolution: how values of a writer's schema become columns of a reader's, as steps of the core.

The rules are those of Avro's specification as its Java library applies them: names of records need not match, and the
branch of a union is the first one of the same type (the same full name, or else the same fields), then the first that a
number may be widened to. Four differences are on purpose. A null is read as null whatever the reader's type is, as each
column takes one. A logical type is part of what a reader wants: a timestamp in milliseconds is not read as one in
microseconds. Enums and fixed match by their names without namespaces, as the specification has it. A field is found by
its name before another one has it by an alias.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
_MOST_STEPS = 1 << 18
_MOST_REFERENCES = 1 << 22
_MOST_CONSTANTS = 1 << 26
_MOST_SKIPPED = (1 << 31) - 1
# What a reason says at most; each bad value has one.
_MOST_PROBLEMS = 5
_MOST_PHRASE = 300
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
        if (
            len(self._steps) >= _MOST_STEPS
            or len(self._references) > _MOST_REFERENCES
            or len(self._constants) > _MOST_CONSTANTS
        ):
            raise InvalidSchemaError("the Avro schema has more types in types than can be read")
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
        phrase = phrase if len(phrase) <= _MOST_PHRASE else phrase[: _MOST_PHRASE - 3] + "..."
        if len(self.problems) < _MOST_PROBLEMS and phrase not in self.problems:
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
        if kind and logical is not None and logical.name in ("time-millis", "time-micros"):
            kind = logical.name
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
        targets = _targets(writer, wanted)
        columns = dict(zip(reader.names, reader.children, strict=True))
        for each in writer.fields:
            column = columns.get(targets[each.name].name) if each.name in targets else None
            steps.append(each.type if column is None else self._read_field(each, column))
        written = {target.name for target in targets.values()}
        for target in wanted.fields:
            column = columns.get(target.name)
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
        except (InvalidSchemaError, RecursionError) as error:
            self._problem(f"field {target.name!r} was not written: {error}")
            return self._step("unresolved")
        return self._step("default", None, [self._read(target.type, column)], constant=encoded)

    def _read_member(self, writer: AvroType, reader: Column) -> int:
        """Return the step for a value that a union of several types has a branch for."""
        number = _branch_for(writer, [child.avro_type for child in reader.children])
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
                for field in skip:
                    _add_skip(plain, field)
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


def _add_skip(skips: list[tuple[int, int]], field: tuple[int, int]) -> None:
    """Add a field to those that are passed over; one of a fixed size becomes a part of the field before it."""
    fixed = AVRO_SKIPS["fixed"]
    kind, size = field
    if kind == fixed and skips:
        before, more = skips[-1]
        is_optional = before >= AVRO_SKIPS["if second"]
        is_fixed = before % AVRO_SKIPS["if second"] == fixed
        if not (is_optional and is_fixed) and more + size <= _MOST_SKIPPED:
            skips[-1] = before, more + size
            return
    skips.append(field)


def _optional_skip(branch: AvroType, when: str) -> list[tuple[int, int]] | None:
    skips = _plain_skip(branch)
    return [(kind | AVRO_SKIPS[when], size) for kind, size in skips] if skips else None


def _targets(writer: RecordType, wanted: RecordType) -> dict[str, Field]:
    """Return the fields of a reader's record by the names of the written fields whose values they take."""
    names = {each.name for each in writer.fields}
    targets = {each.name: each for each in wanted.fields if each.name in names}
    for each in wanted.fields:
        if each.name not in names:
            alias = next((alias for alias in each.aliases if alias in names and alias not in targets), None)
            if alias is not None:
                targets[alias] = each
    return targets


def _names_match(writer: EnumType | Fixed, wanted: EnumType | Fixed) -> bool:
    """Whether the names are one without their namespaces, or the reader has the writer's as an alias."""
    short = writer.name.rpartition(".")[2]
    return short == wanted.name.rpartition(".")[2] or writer.name in wanted.aliases or short in wanted.aliases


def _are_decimals(writer: Primitive | Fixed, wanted: Primitive | Fixed) -> bool:
    return all(each.logical is not None and each.logical.name == "decimal" for each in (writer, wanted))


def _agree(one: Logical, other: Logical) -> bool:
    """Whether two logical types mean the same numbers."""
    return one.name == other.name and one.scale == other.scale


def _branch_for(writer: AvroType, branches: Sequence[AvroType]) -> int | None:
    """Return the number of the branch of a reader's union that takes the values of a writer."""
    alike = [number for number, branch in enumerate(branches) if type(branch) is type(writer)]
    for number in alike:
        if _is_the_type(writer, branches[number]):
            return number
    if isinstance(writer, RecordType):
        fitting = [number for number in alike if _has_its_fields(writer, branches[number])]
        short = [number for number in fitting if _short_name(branches[number]) == _short_name(writer)]
        return next(iter(short or fitting), None)
    return next((number for number, branch in enumerate(branches) if _may_be_read_as(writer, branch)), None)


def _is_the_type(writer: AvroType, branch: AvroType) -> bool:
    """Whether types of one kind are the same, as far as a union tells them apart."""
    match writer, branch:
        case (Primitive(), Primitive()):
            return writer.name == branch.name
        case (RecordType() | EnumType() | Fixed(), RecordType() | EnumType() | Fixed()):
            return writer.name == branch.name or writer.name in branch.aliases
    return True


def _short_name(avro_type: AvroType) -> str:
    return branch_key(avro_type).rpartition(".")[2]


def _has_its_fields(writer: RecordType, branch: AvroType) -> bool:
    """Whether a reader's record can be read: each field was written as a type that fits, or has a default."""
    if not isinstance(branch, RecordType):
        return False
    written = {each.name: each.type for each in writer.fields}
    types = {target.name: written[name] for name, target in _targets(writer, branch).items()}
    return all(
        _may_be_read_as(types[each.name], each.type) if each.name in types else each.default is not NO_DEFAULT
        for each in branch.fields
    )


def _may_be_read_as(writer: AvroType, wanted: AvroType) -> bool:
    """Whether values of a type can be read as another one, without a look at the types inside of them."""
    match writer, wanted:
        case (UnionType(), _) | (Primitive(name="null"), _):
            return True
        case (_, UnionType()):
            return any(_may_be_read_as(writer, branch) for branch in wanted.branches)
        case (Primitive(), Primitive()):
            return writer.name == wanted.name or (writer.name, wanted.name) in _PROMOTIONS
        case (EnumType(), EnumType()):
            return _names_match(writer, wanted)
        case (Fixed(), Fixed()):
            return writer.size == wanted.size and _names_match(writer, wanted)
        case (RecordType(), RecordType()):
            written = {target.name for target in _targets(writer, wanted).values()}
            return all(each.name in written or each.default is not NO_DEFAULT for each in wanted.fields)
    return type(writer) is type(wanted)
