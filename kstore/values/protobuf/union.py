"""One message of Protobuf for values of many schemas: with the fields of all of them, by their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from kstore.errors import InvalidSchemaError
from kstore.values.protobuf.columns import described, is_map, kind_of, symbols_of
from kstore.values.protobuf.schema import name_in_package
from kstore.values.protobuf.texts import MAIN_FILE

_F = FieldDescriptor
_INT32 = frozenset((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32))
_UINT32 = frozenset((_F.TYPE_UINT32, _F.TYPE_FIXED32))
_UINT64 = frozenset((_F.TYPE_UINT64, _F.TYPE_FIXED64))
_WHOLE = frozenset(("int", "enum", "bool"))
_WIDER = {frozenset(("float", "double")): _F.TYPE_DOUBLE, frozenset(("string", "bytes")): _F.TYPE_BYTES}
# Kinds of values that have a common type.
_ALIKE = (_WHOLE, *_WIDER)
# Messages that refer to each other in different ways would have more unions than there are messages.
_MOST_MESSAGES = 1 << 12


class MessageVersion(NamedTuple):
    """The message that values of a schema are. origin: which schema, for errors."""

    message: Descriptor
    origin: str


class _Written(NamedTuple):
    """A field of a version."""

    field: FieldDescriptor
    origin: str


class _Place(NamedTuple):
    """A message of the union, and its name with a point in front."""

    message: DescriptorProto
    name: str


def union_file(versions: Sequence[MessageVersion]) -> FileDescriptorProto:
    """Return a file whose first message is one as which values of all versions can be read.

    Fields are merged by number, in the order of the first version, then those that only later ones have; each has the
    name and the default of the newest version that has it, with its number if another field has the name. Whole numbers
    become a type that holds them all, or int64; float and double a double; string and bytes become bytes; a single
    value and a list become a list; enums have all symbols.
    Args: versions: newest first, at least one; the messages have one name in their packages.
    Raises: InvalidSchemaError for types that have no common one, with both and where they come from.
    """
    return _Merger(versions[0].message).file(versions)


class _Merger:
    """Merges messages; knows those that it has written, and the types that it names."""

    def __init__(self, newest: Descriptor) -> None:
        self._file = FileDescriptorProto(
            name=MAIN_FILE, package=newest.file.package, syntax="editions", edition=Edition.EDITION_2023
        )
        self._path = name_in_package(newest).split(".")
        self._known: dict[tuple[int, ...], str] = {}
        # Descriptors live as long as they are kept here, and so do the numbers that they are known by.
        self._kept: list[object] = []
        self._names = {self._path[0]}

    def file(self, versions: Sequence[MessageVersion]) -> FileDescriptorProto:
        place = self._file.message_type.add(name=self._path[0])
        for name in self._path[1:]:
            place = place.nested_type.add(name=name)
        name = self._full_name(*self._path)
        self._known[self._key([each.message for each in versions])] = name
        self._fill(_Place(place, name), versions, ())
        return self._file

    def _full_name(self, *path: str) -> str:
        return "." + ".".join(each for each in (self._file.package, *path) if each)

    def _key(self, types: Iterable[Descriptor | EnumDescriptor]) -> tuple[int, ...]:
        listed = list(types)
        self._kept += listed
        return tuple(sorted({id(each) for each in listed}))

    def _fill(self, place: _Place, versions: Sequence[MessageVersion], path: tuple[str, ...]) -> None:
        written: dict[int, list[_Written]] = {}
        for version in versions:
            for each in version.message.fields:
                written.setdefault(each.number, []).append(_Written(each, version.origin))
        names: set[str] = set()
        for number, found in written.items():
            name, is_mapped = found[0].field.name, is_map(found[0].field)
            while not names.isdisjoint(_taken(name, is_mapped=is_mapped)):
                name = f"{name}_{number}"
            names |= _taken(name, is_mapped=is_mapped)
            merged = place.message.field.add(name=name, number=number, json_name=f"field{number}")
            self._fill_field(place, merged, found, (*path, name))

    def _fill_field(
        self, place: _Place, merged: FieldDescriptorProto, found: Sequence[_Written], path: tuple[str, ...]
    ) -> None:
        maps = [each for each in found if is_map(each.field)]
        if maps and len(maps) < len(found):
            raise _different(maps[0], next(each for each in found if not is_map(each.field)), path)
        if maps:
            self._fill_map(place, merged, maps, path)
            return
        is_repeated = any(each.field.is_repeated for each in found)
        merged.label = merged.LABEL_REPEATED if is_repeated else merged.LABEL_OPTIONAL
        newest = found[0].field
        self._set_type(merged, found, path)
        if is_repeated or merged.type == merged.TYPE_MESSAGE:
            return
        has_presence = any(each.field.has_presence for each in found)
        presence = FeatureSet.EXPLICIT if has_presence else FeatureSet.IMPLICIT
        merged.options.features.field_presence = presence
        if has_presence and newest.has_default_value:
            merged.default_value = _default_text(newest, merged)

    def _fill_map(
        self, place: _Place, merged: FieldDescriptorProto, found: Sequence[_Written], path: tuple[str, ...]
    ) -> None:
        name = _entry_name(merged.name)
        entry = place.message.nested_type.add(name=name)
        entry.options.map_entry = True
        for number, part in ((1, "key"), (2, "value")):
            of_entry = [_Written(each.field.message_type.fields_by_number[number], each.origin) for each in found]
            field = entry.field.add(name=part, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            self._set_type(field, of_entry, (*path, part))
        merged.label, merged.type = merged.LABEL_REPEATED, merged.TYPE_MESSAGE
        merged.type_name = f"{place.name}.{name}"

    def _set_type(self, merged: FieldDescriptorProto, found: Sequence[_Written], path: tuple[str, ...]) -> None:
        newest = found[0].field
        kinds = {kind_of(each.field) for each in found}
        alike = next((group for group in _ALIKE if kind_of(newest) in group), {kind_of(newest)})
        other = next((each for each in found if kind_of(each.field) not in alike), None)
        if other is not None:
            raise _different(found[0], other, path)
        if kinds == {"message"}:
            self._set_message(merged, found, path)
        elif kinds == {"enum"}:
            merged.type, merged.type_name = merged.TYPE_ENUM, self._enum([each.field.enum_type for each in found])
        elif newest.message_type is not None:
            self._set_known(merged, found, path)
        elif kinds <= _WHOLE:
            merged.type = _whole([each.field for each in found])
        else:
            merged.type = newest.type if len(kinds) == 1 else _WIDER[frozenset(kinds)]

    def _set_known(self, merged: FieldDescriptorProto, found: Sequence[_Written], path: tuple[str, ...]) -> None:
        """Give a field a message that is one value, as a timestamp."""
        message = found[0].field.message_type
        other = next((each for each in found if each.field.message_type.full_name != message.full_name), None)
        if other is not None:
            raise _different(found[0], other, path)
        merged.type, merged.type_name = merged.TYPE_MESSAGE, f".{message.full_name}"
        if message.file.name not in self._file.dependency:
            self._file.dependency.append(message.file.name)

    def _set_message(self, merged: FieldDescriptorProto, found: Sequence[_Written], path: tuple[str, ...]) -> None:
        merged.type = merged.TYPE_MESSAGE
        messages = [each.field.message_type for each in found]
        key = self._key(messages)
        if key not in self._known:
            if len(self._known) >= _MOST_MESSAGES:
                raise InvalidSchemaError("the Protobuf schemas have more messages than a union of them may have")
            name = self._new_name(messages[0].name)
            self._known[key] = self._full_name(name)
            versions = [MessageVersion(each.field.message_type, each.origin) for each in found]
            self._fill(_Place(self._file.message_type.add(name=name), self._known[key]), versions, path)
        merged.type_name = self._known[key]

    def _enum(self, enums: Sequence[EnumDescriptor]) -> str:
        key = self._key(enums)
        if key not in self._known:
            # Symbols stand beside their enum, so that each enum has a message of its own.
            owner = self._new_name(f"Of{enums[0].name}")
            merged = self._file.message_type.add(name=owner).enum_type.add()
            _fill_enum(merged, enums)
            self._known[key] = self._full_name(owner, merged.name)
        return self._known[key]

    def _new_name(self, wanted: str) -> str:
        number, name = 1, wanted
        while name in self._names:
            number += 1
            name = f"{wanted}_{number}"
        self._names.add(name)
        return name


def _entry_name(name: str) -> str:
    """Return the name that the entries of a field's map have to have."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _taken(name: str, *, is_mapped: bool) -> set[str]:
    """Return the names that a field takes of its message."""
    return {name, _entry_name(name)} if is_mapped else {name}


def _fill_enum(merged: EnumDescriptorProto, enums: Sequence[EnumDescriptor]) -> None:
    """Store all symbols: of a number the newest, and of two numbers with one symbol the number that had it last."""
    symbols: dict[int, str] = {}
    names: set[str] = set()
    for enum in enums:
        for number, name in symbols_of(enum).items():
            if number in symbols:
                continue
            while name in names:
                name = f"{name}_{abs(number)}"
            symbols[number] = name
            names.add(name)
    merged.name = enums[0].name
    while merged.name in names:
        merged.name += "_"
    # An open enum begins with its zero.
    merged.options.features.enum_type = FeatureSet.OPEN if 0 in symbols else FeatureSet.CLOSED
    for number in sorted(symbols, key=lambda number: (number != 0, number)):
        merged.value.add(name=symbols[number], number=number)


def _whole(fields: Sequence[FieldDescriptor]) -> int:
    """Return the type that holds the whole numbers of all fields; int64 if none does."""
    types = {each.type for each in fields}
    if types <= {_F.TYPE_BOOL}:
        return int(_F.TYPE_BOOL)
    unsigned = _UINT32 | _UINT64 | {_F.TYPE_BOOL}
    if types <= unsigned:
        return int(_F.TYPE_UINT64 if types & _UINT64 else _F.TYPE_UINT32)
    return int(_F.TYPE_INT32 if types <= _INT32 | {_F.TYPE_BOOL, _F.TYPE_ENUM} else _F.TYPE_INT64)


def _default_text(newest: FieldDescriptor, merged: FieldDescriptorProto) -> str:
    """Return a default as descriptors have it."""
    default = newest.default_value
    if merged.type == merged.TYPE_ENUM:
        return symbols_of(newest.enum_type)[default]
    if merged.type == merged.TYPE_BOOL:
        return "true" if default else "false"
    if merged.type == merged.TYPE_BYTES:
        content = default if isinstance(default, bytes) else default.encode()
        return "".join(f"\\{byte:03o}" for byte in content)
    if merged.type == merged.TYPE_STRING:
        return str(default)
    return repr(default) if isinstance(default, float) else str(int(default))


def _different(one: _Written, other: _Written, path: tuple[str, ...]) -> InvalidSchemaError:
    number = one.field.number
    return InvalidSchemaError(
        f"the Protobuf schemas have no union: field {'.'.join(path)!r} of number {number} is {described(one.field)} in "
        f"{one.origin}, and {described(other.field)} in {other.origin}: choose one by schema_id="
    )
