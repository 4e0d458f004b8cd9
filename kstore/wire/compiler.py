"""Codecs: the compiled functions of one version of a message, made at first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from kstore.wire.classes import Message
from kstore.wire.decoder import Buffer, compile_decoder
from kstore.wire.encoder import Part, compile_encoder

M = TypeVar("M", bound=Message)
_CODECS: dict[tuple[type[Message], int], Codec[Any]] = {}


class Codec(Generic[M]):
    """Encodes and decodes one version of a message.

    decode(data, pos=0) returns the message at a position and the position after it, and raises InvalidRequestError;
    kstore.wire.decoder.compile_decoder has the details. encode(message) returns the parts of its bytes, and raises
    ValueError; see kstore.wire.encoder.compile_encoder. Each is compiled when it is first asked for, which takes
    1-3 ms. Thread-safe.
    """

    __slots__ = ("_message_class", "_version", "decode", "encode")

    decode: Callable[..., tuple[M, int]]
    encode: Callable[[M], list[Part]]

    def __init__(self, message_class: type[M], *, version: int) -> None:
        self._message_class = message_class
        self._version = version

    def __getattr__(self, name: str) -> Any:
        """Compile a function that was not asked for before."""
        compiled = {"decode": compile_decoder, "encode": compile_encoder}.get(name)
        if compiled is None:
            raise AttributeError(name)
        schema = self._message_class.schema
        function = compiled(cast(Any, schema), self._message_class, version=self._version)
        setattr(self, name, function)
        return function


def codec(message_class: type[M], *, version: int) -> Codec[M]:
    """Return the codec of a class of kstore.wire.messages.

    Raises: ValueError for a version that the message does not have.
    """
    found = _CODECS.get((message_class, version))
    if found is None:
        schema = message_class.schema
        if schema is None or version not in schema.versions:
            has = "no schema" if schema is None else f"versions {schema.versions[0]} to {schema.versions[-1]}"
            raise ValueError(f"{message_class.__name__} has {has}, got {version}")
        found = _CODECS[message_class, version] = Codec(message_class, version=version)
    return cast("Codec[M]", found)


__all__ = ["Buffer", "Codec", "Part", "codec"]
