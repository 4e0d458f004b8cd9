"""temporary_topic: a topic of any broker, by requests of our own, so that no client has to be installed."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from kstore.wire.codes import ErrorCode
from kstore.wire.frames import decode_response, encode_request
from kstore.wire.messages import CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest

_METADATA, _CREATE_TOPICS, _DELETE_TOPICS = 3, 19, 20
# Versions that brokers since Kafka 2.1 have.
_VERSIONS = {_METADATA: 5, _CREATE_TOPICS: 3, _DELETE_TOPICS: 3}
_TIMEOUT_MS = 30_000
_SIZE = struct.Struct(">i")
_MOST_NAME_LENGTH = 200


class TopicRequestError(Exception):
    """A broker did not create or delete the topic of a test."""


@contextmanager
def temporary_topic(bootstrap_servers: str, title: str, *, is_kept: bool, partitions: int = 1) -> Iterator[str]:
    """Yield the name of a new topic, made of a title and random letters; delete the topic afterwards unless it is kept.

    Raises: TopicRequestError; OSError if no broker is reached, which speaks without TLS and SASL.
    """
    name = f"{re.sub('[^A-Za-z0-9._-]', '_', title)[:_MOST_NAME_LENGTH]}-{uuid4().hex[:8]}"
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
    with _controller(bootstrap_servers) as broker:
        _check(name, _asked(broker, _CREATE_TOPICS, request).topics)
    yield name
    if not is_kept:
        with _controller(bootstrap_servers) as broker:
            answer = _asked(broker, _DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name], timeout_ms=_TIMEOUT_MS))
            _check(name, answer.responses, but={ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def _check(name: str, results: list[Any], but: frozenset[int] | set[int] = frozenset()) -> None:
    for result in results:
        if result.error_code not in {ErrorCode.NONE, *but}:
            message = getattr(result, "error_message", None) or "no message"
            raise TopicRequestError(f"topic {name}: {ErrorCode(result.error_code).name}: {message}")


@contextmanager
def _controller(bootstrap_servers: str) -> Iterator[socket.socket]:
    """Yield a connection to the node that changes topics."""
    with _connected(bootstrap_servers.split(",", maxsplit=1)[0]) as any_broker:
        cluster = _asked(any_broker, _METADATA, MetadataRequest(topics=[]))
    nodes = {node.node_id: f"{node.host}:{node.port}" for node in cluster.brokers}
    with _connected(nodes.get(cluster.controller_id, bootstrap_servers.split(",", maxsplit=1)[0])) as controller:
        yield controller


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_MS / 1000)


def _asked(broker: socket.socket, api_key: int, request: Any) -> Any:
    version = _VERSIONS[api_key]
    for part in encode_request(request, version=version, correlation_id=1, client_id="kstore-testing"):
        broker.sendall(part)
    with broker.makefile("rb") as stream:
        head = stream.read(_SIZE.size)
        frame = stream.read(*_SIZE.unpack(head)) if len(head) == _SIZE.size else b""
    if not frame:
        raise TopicRequestError(f"the broker closed the connection: expected one that answers {type(request).__name__}")
    return decode_response(bytearray(frame), api_key=api_key, version=version)[1]
