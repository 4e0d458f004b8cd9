"""Files of Protobuf that registries know without having them: Google's and Confluent's."""

from __future__ import annotations

import importlib
from functools import cache

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

GOOGLE_FILES = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
}
# Messages and enums by file, with the fields and symbols in the order of their numbers: from 1 and from 0 on. A message
# in another one is named after it; "?" is a member of a oneof.
_GOOGLE_TYPES = {
    "calendar_period": {"CalendarPeriod": "CALENDAR_PERIOD_UNSPECIFIED DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR"},
    "color": {"Color": "float red, float green, float blue, google.protobuf.FloatValue alpha"},
    "date": {"Date": "int32 year, int32 month, int32 day"},
    "datetime": {
        "DateTime": "int32 year, int32 month, int32 day, int32 hours, int32 minutes, int32 seconds, int32 nanos, "
        "google.protobuf.Duration utc_offset?, google.type.TimeZone time_zone?",
        "TimeZone": "string id, string version",
    },
    "dayofweek": {
        "DayOfWeek": "DAY_OF_WEEK_UNSPECIFIED MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
    },
    "decimal": {"Decimal": "string value"},
    "expr": {"Expr": "string expression, string title, string description, string location"},
    "fraction": {"Fraction": "int64 numerator, int64 denominator"},
    "interval": {"Interval": "google.protobuf.Timestamp start_time, google.protobuf.Timestamp end_time"},
    "latlng": {"LatLng": "double latitude, double longitude"},
    "localized_text": {"LocalizedText": "string text, string language_code"},
    "money": {"Money": "string currency_code, int64 units, int32 nanos"},
    "month": {
        "Month": "MONTH_UNSPECIFIED JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER "
        "DECEMBER",
    },
    "phone_number": {
        "PhoneNumber": "string e164_number?, google.type.PhoneNumber.ShortCode short_code?, string extension",
        "PhoneNumber.ShortCode": "string region_code, string number",
    },
    "postal_address": {
        "PostalAddress": "int32 revision, string region_code, string language_code, string postal_code, "
        "string sorting_code, string administrative_area, string locality, string sublocality, "
        "string* address_lines, string* recipients, string organization",
    },
    "quaternion": {"Quaternion": "double x, double y, double z, double w"},
    "timeofday": {"TimeOfDay": "int32 hours, int32 minutes, int32 seconds, int32 nanos"},
}
_CONFLUENT_TYPES = {
    "decimal": {"Decimal": "bytes value, uint32 precision, int32 scale"},
    "variant": {"Variant": "bytes metadata, bytes value"},
}
_META = {
    "Meta": "string doc, confluent.Meta.ParamsEntry* params, string* tags, confluent.Rule* rules",
    "Meta.ParamsEntry": "string key, string value",
    "Rule": "string name, string doc, string expr, string sql",
}
_META_NUMBER = 1088
_META_TARGETS = {"file": "File", "message": "Message", "field": "Field", "enum": "Enum", "enum_value": "EnumValue"}
_SCALARS = {
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}


@cache
def known_files() -> dict[str, FileDescriptorProto]:
    """Return the files by the name that an import has."""
    files = {name: _of_module(module) for name, module in GOOGLE_FILES.items()}
    for name, types in _GOOGLE_TYPES.items():
        files[f"google/type/{name}.proto"] = _file(f"google/type/{name}.proto", "google.type", types)
    for name, types in _CONFLUENT_TYPES.items():
        files[f"confluent/type/{name}.proto"] = _file(f"confluent/type/{name}.proto", "confluent.type", types)
    # Where older registries have it, with the same name of the message.
    files["confluent/types/decimal.proto"] = FileDescriptorProto(
        name="confluent/types/decimal.proto",
        syntax="proto3",
        dependency=["confluent/type/decimal.proto"],
        public_dependency=[0],
    )
    files["confluent/meta.proto"] = _meta()
    return files


def _of_module(module: str) -> FileDescriptorProto:
    content: bytes = importlib.import_module(module).DESCRIPTOR.serialized_pb
    return FileDescriptorProto.FromString(content)


def _file(name: str, package: str, types: dict[str, str]) -> FileDescriptorProto:
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    for path, members in types.items():
        if members.isupper():
            symbols = file.enum_type.add(name=path)
            for number, symbol in enumerate(members.split()):
                symbols.value.add(name=symbol, number=number)
            continue
        outer, _, inner = path.partition(".")
        owner = next((each for each in file.message_type if each.name == outer), None)
        message = file.message_type.add(name=outer) if owner is None else owner.nested_type.add(name=inner)
        for number, member in enumerate(members.split(", "), 1):
            kind, field_name = member.split()
            field = message.field.add(name=field_name.rstrip("?"), number=number)
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            if kind.rstrip("*") in _SCALARS:
                field.type = _SCALARS[kind.rstrip("*")]
            else:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{kind.rstrip('*')}"
                if kind.startswith("google.protobuf."):
                    imported = next(each for each in GOOGLE_FILES if _has(each, kind))
                    if imported not in file.dependency:
                        file.dependency.append(imported)
            if field_name.endswith("?"):
                field.oneof_index = 0
                if not message.oneof_decl:
                    message.oneof_decl.add(name="kind" if outer == "PhoneNumber" else "time_offset")
    return file


def _has(name: str, type_name: str) -> bool:
    package, _, message = type_name.rpartition(".")
    file = _of_module(GOOGLE_FILES[name])
    return file.package == package and any(each.name == message for each in file.message_type)


def _meta() -> FileDescriptorProto:
    file = _file("confluent/meta.proto", "confluent", _META)
    file.message_type[0].nested_type[0].options.map_entry = True
    file.dependency.append("google/protobuf/descriptor.proto")
    for name, target in _META_TARGETS.items():
        extension = file.extension.add(name=f"{name}_meta", number=_META_NUMBER)
        extension.label, extension.type = extension.LABEL_OPTIONAL, extension.TYPE_MESSAGE
        extension.type_name, extension.extendee = ".confluent.Meta", f".google.protobuf.{target}Options"
    return file
