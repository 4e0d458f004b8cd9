"""JSON state files: an object with a checksum, of which each field is read by its type; nothing in it is believed.

For files that a later run goes on from, such as the manifest of an export. What is read has the right types and ranges;
whether the numbers are true is for the caller to find out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from kstore._core import crc32c
from kstore.config import MAX_INT64
from kstore.errors import json_fault

CHECKSUM = "crc32c"
# A name that stays in its directory, on every system.
_COMPONENT = re.compile(r"[^/\\:\x00]+")


class FieldError(ValueError):
    """A field is missing, unknown, or not what it has to be.

    Attributes: field, such as files[3].partition; expected; found.
    """

    def __init__(self, field: str, expected: object, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {found!r:.80}")
        self.field = field
        self.expected = expected
        self.found = found


def checksum_of(fields: Mapping[str, Any]) -> str:
    """Return the CRC-32C of an object, whatever the order of its fields, without that of the checksum; 8 hex digits."""
    content = {name: value for name, value in fields.items() if name != CHECKSUM}
    return f"{crc32c(json.dumps(content, sort_keys=True).encode()):08x}"


def with_checksum(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its checksum as the last field."""
    return {**fields, CHECKSUM: checksum_of(fields)}


def json_object(content: bytes) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises: FieldError, also for a name that occurs twice; ValueError for other content that is no JSON.
    """
    try:
        fields = json.loads(content, object_pairs_hook=_fields_of)
    except FieldError:
        raise
    except RecursionError as error:
        raise FieldError("the file", "a JSON object", "too many levels") from error
    except ValueError as error:
        raise ValueError(json_fault(error)) from error
    if not isinstance(fields, dict):
        raise FieldError("the file", "a JSON object", type(fields).__name__)
    return fields


def check_checksum(fields: Mapping[str, Any]) -> bool:
    """Return whether an object has a checksum.  Raises: FieldError for a wrong one."""
    if CHECKSUM not in fields:
        return False
    expected = checksum_of(fields)
    if fields[CHECKSUM] != expected:
        raise FieldError(CHECKSUM, expected, fields[CHECKSUM])
    return True


def value_as(kind: Any, value: object, *, field: str) -> Any:
    """Return a JSON value as a value of a type: int (64 bits), str, bool, None, dict[str, X], tuple[X, ...],
    tuple[X, Y], a NamedTuple (from an object, or from a list in the order of its fields), a union of these, or Any.

    Raises: FieldError.
    """
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _as_one_of(get_args(kind), value, field=field)
    if origin is tuple:
        return _as_tuple(get_args(kind), value, field=field)
    if origin is dict:
        return _as_dict(get_args(kind)[1], value, field=field)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _as_named_tuple(kind, value, field=field)
    if kind is None or kind is type(None):
        if value is not None:
            raise FieldError(field, "null", value)
        return None
    if type(value) is not kind:
        raise FieldError(field, _NAMES[kind], value)
    if isinstance(value, str) and not _is_text(value):
        raise FieldError(field, "text", value)
    if type(value) is int and not -MAX_INT64 <= value <= MAX_INT64:
        raise FieldError(field, "a number of 64 bits", value)
    return value


def check_number(field: str, value: int, *, least: int, most: int) -> None:
    """Raise FieldError for a number outside [least, most]."""
    if not least <= value <= most:
        raise FieldError(field, f"a number from {least} to {most}", value)


def check_relative_path(field: str, path: str, *, most_components: int) -> None:
    """Raise FieldError for a path that is not below its directory: names with slashes between them, none of them . or
    .., no backslash, colon (as of a drive) or NUL.
    """
    names = path.split("/")
    if len(names) > most_components or not all(
        _COMPONENT.fullmatch(name) and name not in (".", "..") for name in names
    ):
        what = "a name" if most_components == 1 else f"a path of at most {most_components} names"
        raise FieldError(field, f"{what} below the directory", path)


def _is_text(value: str) -> bool:
    """Whether a string can be encoded; bytes of a path that are not UTF-8 are kept by surrogateescape."""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


_NAMES = {int: "a number", str: "a string", bool: "true or false"}


def _as_one_of(kinds: tuple[Any, ...], value: object, *, field: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    (kind,) = (kind for kind in kinds if kind is not type(None))
    return value_as(kind, value, field=field)


def _as_tuple(kinds: tuple[Any, ...], value: object, *, field: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise FieldError(field, "a list", value)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise FieldError(field, f"{len(kinds)} values", value)
    pairs = enumerate(zip(kinds, value, strict=True))
    return tuple(value_as(kind, item, field=f"{field}[{at}]") for at, (kind, item) in pairs)


def _as_dict(kind: Any, value: object, *, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(field, "an object", value)
    return {name: value_as(kind, item, field=f"{field}.{name}") for name, item in value.items()}


def _as_named_tuple(kind: Any, value: object, *, field: str) -> Any:
    kinds, defaults = _kinds_of(kind), kind._field_defaults
    if isinstance(value, list):
        if len(value) > len(kinds):
            raise FieldError(field, f"at most {len(kinds)} values", value)
        value = dict(zip(kinds, value, strict=False))
    if not isinstance(value, dict):
        raise FieldError(field, "an object", value)
    prefix = f"{field}." if field else ""
    for name in value.keys() - kinds.keys():
        raise FieldError(f"{prefix}{name}", "no such field", value[name])
    for name in kinds:
        if name not in value and name not in defaults:
            raise FieldError(f"{prefix}{name}", "a value", "nothing")
    return kind(**{name: value_as(kinds[name], item, field=f"{prefix}{name}") for name, item in value.items()})


@lru_cache(maxsize=64)
def _kinds_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind._fields}


def _fields_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise FieldError(next(name for name in names if names.count(name) > 1), "one value", "two")
    return fields
