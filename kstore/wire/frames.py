"""Requests and answers with their headers, as they are sent: what a server reads from a connection and writes to it.

A frame is the bytes after the size in front of each request and answer (int32). Source: Kafka's RequestHeader,
ResponseHeader and ApiKeys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from kstore.errors import InvalidRequestError, UnsupportedVersionError
from kstore.wire.classes import Message
from kstore.wire.compiler import Buffer, Part, codec
from kstore.wire.messages import RequestHeader, ResponseHeader, message_named, tables
from kstore.wire.schema import parse_schema

_HEADER = struct.Struct(">hhi")
_ANSWER = struct.Struct(">ii")
_FLEXIBLE_ANSWER = struct.Struct(">iix")
_SIZE = struct.Struct(">i")
_API_VERSIONS = 18
_request_decoders: dict[tuple[int, int], tuple[Callable[..., Any], Callable[..., Any]]] = {}
_response_encoders: dict[tuple[type[Message], int], tuple[Callable[[Any], list[Part]], struct.Struct]] = {}


class Api(NamedTuple):
    """A kind of request: its name in Kafka, the versions that a broker of Kafka 4.1 serves, and the flexible ones."""

    key: int
    name: str
    versions: range
    flexible: range


class Request(NamedTuple):
    """A decoded request. The records in its body are views of the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Message


@cache
def apis() -> dict[int, Api]:
    """Return all kinds of requests by their keys."""
    heads = (parse_schema(text.partition("\n")[0]) for name, text in tables().items() if name.endswith("Request"))
    return {
        head.api_keys[0]: Api(head.api_keys[0], head.name.removesuffix("Request"), head.versions, head.flexible)
        for head in heads
    }


def _compiled_decoders(api_key: int, *, version: int) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Return what decodes the header and the body of requests; None if there are no such requests.

    Only requests that there are take memory here, however many others clients ask for.
    """
    api = apis().get(api_key)
    if api is None or version not in api.versions:
        return None
    header = codec(RequestHeader, version=2 if version in api.flexible else 1)
    found = header.decode, codec(message_named(f"{api.name}Request"), version=version).decode
    _request_decoders[api_key, version] = found
    return found


def decode_request(frame: Buffer) -> Request:
    """Return the request in a frame. Bytes after it are passed over, as a broker does.

    Args: frame: bytes or a bytearray, which can't be resized while the records of the request live.
    Raises: UnsupportedVersionError for an api or version that is not in apis(); InvalidRequestError for a frame that
        ends too early or contradicts itself.
    """
    if len(frame) < _HEADER.size:
        text = f"RequestHeader: at byte 0 of {len(frame)}: expected {_HEADER.size} bytes, found {len(frame)}"
        raise InvalidRequestError(text, field="RequestHeader", position=0, expected=_HEADER.size, found=len(frame))
    api_key, version, correlation_id = _HEADER.unpack_from(frame)
    decoders = _request_decoders.get((api_key, version)) or _compiled_decoders(api_key, version=version)
    if decoders is None:
        raise UnsupportedVersionError(
            f"request with api key {api_key}, version {version}: expected {_offered(api_key)}",
            api_key=api_key,
            version=version,
            correlation_id=correlation_id,
        )
    decode_header, decode_body = decoders
    header, position = decode_header(frame)
    body, _ = decode_body(frame, position)
    return Request(api_key, version, correlation_id, header.client_id, body)


def _offered(api_key: int) -> str:
    api = apis().get(api_key)
    return "another api" if api is None else f"{api.name} {api.versions[0]} to {api.versions[-1]}"


def _response_encoder(cls: type[Message], *, version: int) -> tuple[Callable[[Any], list[Part]], struct.Struct]:
    """Return what encodes answers of a class, and the layout of their size and header."""
    schema = cls.schema
    if schema is None:
        raise ValueError(f"expected an answer, got {cls.__qualname__}")
    # A client must be able to read the answer to an ApiVersions request of any version.
    is_flexible = version in schema.flexible and schema.api_keys != (_API_VERSIONS,)
    found = codec(cls, version=version).encode, _FLEXIBLE_ANSWER if is_flexible else _ANSWER
    _response_encoders[cls, version] = found
    return found


def encode_response(body: Message, *, version: int, correlation_id: int) -> list[Part]:
    """Return the parts of an answer, in their order, with the size in front. The first part is bytes.

    kstore.wire.encoder.compile_encoder says which records are parts of their own. Raises: ValueError for a body that
    can't be encoded in this version.
    """
    cls = type(body)
    encode, layout = _response_encoders.get((cls, version)) or _response_encoder(cls, version=version)
    parts = encode(body)
    size = sum(map(len, parts)) + layout.size - _SIZE.size
    parts[0] = layout.pack(size, correlation_id) + parts[0]
    return parts


def encode_request(body: Message, *, version: int, correlation_id: int, client_id: str | None = None) -> list[Part]:
    """Return the parts of a request, as encode_response does of an answer."""
    schema = type(body).schema
    if schema is None:
        raise ValueError(f"expected a request, got {type(body).__qualname__}")
    header = RequestHeader(
        request_api_key=schema.api_keys[0],
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    (head,) = codec(RequestHeader, version=2 if version in schema.flexible else 1).encode(header)
    parts = codec(type(body), version=version).encode(body)
    parts[0] = _SIZE.pack(sum(map(len, parts)) + len(head)) + head + parts[0]
    return parts


def decode_response(frame: Buffer, *, api_key: int, version: int) -> tuple[int, Message]:
    """Return the correlation id and the body of the answer in a frame, to a request of this api and version.

    Raises: KeyError for an api that is not in apis(); ValueError for another version; InvalidRequestError.
    """
    api = apis()[api_key]
    is_flexible = version in api.flexible and api_key != _API_VERSIONS
    header, position = codec(ResponseHeader, version=int(is_flexible)).decode(frame)
    body, _ = codec(message_named(f"{api.name}Response"), version=version).decode(frame, position)
    return header.correlation_id, body
