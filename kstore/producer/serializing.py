"""Keys and values as bytes, and what to say when there are none. Layer 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstore.errors import SerializationError
from kstore.serializers import serializer as serializer_named

if TYPE_CHECKING:
    from kstore.serializers import Serializer


def serializer_of(given: Serializer | str | None) -> Serializer | None:
    """Return a callable as it is, a built-in one by its name.  Raises: ValueError for a name that there is not."""
    return serializer_named(given) if isinstance(given, str) else given


def serialized(name: str, data: Any, serializer: Serializer | None, topic: str) -> bytes | None:
    """Return a "key" or "value" as bytes, None for null.

    Raises: SerializationError for what the serializer refuses or makes no bytes of, or for what is none without one.
    """
    try:
        made = data if serializer is None else serializer(data)
    except Exception as error:
        raise SerializationError(f"{name} of a record for {topic!r}: {error}") from error
    if made is None or type(made) is bytes:
        return made
    try:
        return bytes(memoryview(made))
    except TypeError as error:
        where = f"{name}_serializer" if serializer is None else repr(serializer)
        raise SerializationError(
            f"{name} of a record for {topic!r}: expected bytes or None, "
            f"found {type(made).__name__} {'without a ' if serializer is None else 'from '}{where}"
        ) from error
