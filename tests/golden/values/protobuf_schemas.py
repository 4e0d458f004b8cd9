"""The schemas of Protobuf in golden/values, each in three versions."""

from __future__ import annotations

from typing import NamedTuple

_NUMBERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
_PACKED = (*_NUMBERS, "float", "double", "bool")
_SCALARS = (*_PACKED, "string", "bytes")
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_KNOWN = [f"google/protobuf/{name}.proto" for name in ("any", "duration", "empty", "struct", "timestamp", "wrappers")]
SHARED = {
    "org/place.proto": 'syntax = "proto3"; package org.place; message Place { string name = 1; double height = 2; }',
    "org/people.proto": """syntax = "proto3";
package org.people;
import "org/place.proto";
message Person { string name = 1; org.place.Place home = 2; repeated org.place.Place others = 3; }
""",
}
# What the versions of a message add.
_MORE = ("", "string later = 20;", "string later = 20; int64 last = 21;")


class Kind(NamedTuple):
    """A topic. is_text: whether the registry has its schemas as text; has_headers: whether ids are in headers."""

    topic: str
    versions: tuple[str, ...]
    message: str = "golden.M"
    is_text: bool = False
    has_headers: bool = False


def _file(body: str, *imports: str, syntax: str = "proto3") -> str:
    lines = "".join(f'import "{each}";\n' for each in imports)
    return f'syntax = "{syntax}";\npackage golden;\n{lines}{body}\n'


def _versions(body: str, *imports: str, syntax: str = "proto3", label: str = "") -> tuple[str, ...]:
    """Return the versions of a file, whose text has MORE where they add fields."""
    added = [more.replace("string", f"{label}string").replace("int64", f"{label}int64") for more in _MORE]
    return tuple(_file(body.replace("MORE", more), *imports, syntax=syntax) for more in added)


def _each(form: str, types: tuple[str, ...] = _SCALARS) -> str:
    fields = " ".join(form.format(type=each, number=number) for number, each in enumerate(types, 1))
    return f"message M {{ {fields} MORE }}"


KINDS = [
    Kind("scalars", _versions(_each("{type} f{number} = {number};"))),
    Kind("optional", _versions(_each("optional {type} f{number} = {number};")), is_text=True),
    Kind("repeated", _versions(_each("repeated {type} f{number} = {number};"))),
    Kind("unpacked", _versions(_each("repeated {type} f{number} = {number} [packed = false];", _PACKED))),
    Kind("wrappers", _versions(_each("google.protobuf.{type}Value f{number} = {number};", _WRAPPERS), *_KNOWN)),
    Kind(
        "known",
        _versions(
            "message M { google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2; google.protobuf.Struct s = 3;"
            " google.protobuf.Value v = 4; google.protobuf.ListValue l = 5; google.protobuf.Any a = 6; "
            "google.protobuf.Empty e = 7; repeated google.protobuf.Timestamp ts = 8; google.type.Date day = 9; MORE }",
            *_KNOWN,
            "google/type/date.proto",
        ),
    ),
    Kind(
        "confluent",
        _versions(
            'message M { option (confluent.message_meta) = { doc: "x" }; confluent.type.Decimal d = 1 '
            '[(confluent.field_meta) = { params: [{ key: "precision", value: "9" }] }]; MORE }',
            "confluent/meta.proto",
            "confluent/type/decimal.proto",
        ),
        is_text=True,
    ),
    Kind(
        "maps",
        _versions(
            "message M { map<string, int64> a = 1; map<int32, string> b = 2; map<bool, V> c = 3; map<uint64, E> d = 4; "
            "MORE } message V { repeated string s = 1; } enum E { X = 0; Y = 5; }"
        ),
    ),
    Kind(
        "oneofs",
        _versions(
            "message M { oneof o { int32 a = 1; string b = 2; V c = 3; E d = 4; } MORE } message V { oneof p { W w = 1;"
            " bytes x = 2; } message W { sint64 y = 1; } } enum E { X = 0; Y = 5; Z = -1; }"
        ),
        is_text=True,
    ),
    Kind(
        "nested",
        _versions(
            "message First { string a = 1; } message Second { First f = 1; message Other { int32 x = 1; } "
            "message Inner { Other o = 1; repeated First f = 2; MORE } }"
        ),
        message="golden.Second.Inner",
    ),
    Kind(
        "after-a-map",
        _versions("message M { map<string, int32> m = 1; message Inner { int32 x = 1; MORE } }"),
        message="golden.M.Inner",
    ),
    Kind(
        "references",
        _versions(
            "message M { org.people.Person p = 1; org.place.Place q = 2; MORE }", "org/people.proto", "org/place.proto"
        ),
    ),
    Kind(
        "references-of-text",
        _versions("message M { repeated org.people.Person p = 1; MORE }", "org/people.proto"),
        is_text=True,
    ),
    Kind(
        "proto2",
        _versions(
            "message M { optional int32 a = 1 [default = 7]; optional string b = 2; repeated group G = 3 { optional "
            "bool c = 4; } optional E e = 5 [default = Y]; extensions 100 to 200; MORE } enum E { X = 1; Y = 5; } "
            "extend M { optional string x = 150; }",
            syntax="proto2",
            label="optional ",
        ),
    ),
    Kind(
        "wider",
        (
            _file("message M { int32 a = 1; bool b = 2; uint32 c = 3; E d = 4; } enum E { X = 0; Y = 1; }"),
            _file("message M { int64 a = 1; bool b = 2; uint64 c = 3; E d = 4; } enum E { X = 0; Z = 1; W = 2; }"),
            _file("message M { int64 renamed = 1; int32 b = 2; uint64 c = 3; int32 d = 4; }"),
        ),
    ),
    Kind(
        "headers",
        _versions("message First { } message Second { message Inner { string a = 1; MORE } }"),
        message="golden.Second.Inner",
        has_headers=True,
    ),
]
