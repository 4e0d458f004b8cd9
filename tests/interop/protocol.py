"""A real broker is asked by kstore's requests, each api in each version, and kstore decodes its answers.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from kstore.errors import KStoreError
from kstore.store.store import open_store
from kstore.wire.classes import Message
from kstore.wire.frames import Api, apis, decode_response, encode_request, encode_response
from kstore.wire.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeAclsRequest,
    FetchRequest,
    ProduceRequest,
    message_named,
)
from tests.interop.broker import NODE_ID, Broker
from tests.interop.store import CLUSTER_ID, Problems, topic_id

TOPIC = "asked"
RECORDS = 10
SECONDS = 60
FETCH_BY_ID = 13
ANY = 1
# A broker refuses Produce 0 to 2, but offers them, for old versions of librdkafka (KAFKA-18659).
OFFERED_ONLY = {"Produce": 0}


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        topic_id(client, TOPIC, ())
        client.ask("produce", TOPIC, 0, "none", RECORDS, "plain")
        with closing(socket.create_connection(("127.0.0.1", broker.port), SECONDS)) as connection:
            yield "kstore has the versions that a broker offers", offered(connection)
        yield "a broker answers kstore's requests, and kstore reads each answer whole", answered(broker)


def asked(connection: socket.socket, body: Message, *, api: Api, version: int) -> tuple[Message, bytes]:
    """Send a request; return the answer and its frame."""
    parts = encode_request(body, version=version, correlation_id=version + 7, client_id="kstore")
    connection.sendall(b"".join(map(bytes, parts)))
    (size,) = struct.unpack(">i", received(connection, 4))
    frame = received(connection, size)
    correlation_id, answer = decode_response(frame, api_key=api.key, version=version)
    if correlation_id != version + 7:
        raise ConnectionError(f"answer {correlation_id} to request {version + 7}")
    return answer, frame


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data


def offered(connection: socket.socket) -> Problems:
    for version in apis()[18].versions:
        request = ApiVersionsRequest(client_software_name="kstore", client_software_version="0")
        answer, _ = asked(connection, request, api=apis()[18], version=version)
        if not isinstance(answer, ApiVersionsResponse):
            yield f"v{version}: {answer}"
            continue
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        for api in apis().values():
            first = OFFERED_ONLY.get(api.name, api.versions[0])
            if ranges.get(api.key) != (first, api.versions[-1]):
                yield f"v{version}: {api.name}: a broker has {ranges.get(api.key)}, kstore {api.versions}"


def body_of(api: Api, version: int) -> Message:
    """A request that changes nothing: of defaults, or of one partition."""
    if api.name == "Produce":
        return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[])
    if api.name == "ApiVersions":
        return ApiVersionsRequest(client_software_name="kstore", client_software_version="0")
    if api.name == "DescribeAcls":
        return DescribeAclsRequest(resource_type_filter=ANY, operation=ANY, permission_type=ANY)
    if api.name == "AddPartitionsToTxn" and version >= 4:
        # A broker never answers one without transactions.
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id="t", topics=[topic])
        return AddPartitionsToTxnRequest(transactions=[transaction])
    if api.name == "Fetch":
        partitions = [FetchRequest.FetchPartition(partition_max_bytes=1 << 20)]
        topics = [FetchRequest.FetchTopic(topic=TOPIC, partitions=partitions)] if version < FETCH_BY_ID else []
        return FetchRequest(topics=topics, min_bytes=0)
    return message_named(f"{api.name}Request")()


def answered(broker: Broker) -> Problems:
    for api in apis().values():
        for version in api.versions:
            with closing(socket.create_connection(("127.0.0.1", broker.port), SECONDS)) as connection:
                try:
                    answer, frame = asked(connection, body_of(api, version), api=api, version=version)
                except (KStoreError, OSError) as error:
                    yield f"{api.name} v{version}: {error!r}"
                    continue
                again = b"".join(map(bytes, encode_response(answer, version=version, correlation_id=version + 7)))
                if again[4:] != frame:
                    yield f"{api.name} v{version}: kstore writes {again[4:].hex()[:200]} for {frame.hex()[:200]}"
                if getattr(answer, "error_code", 0) == 35:
                    yield f"{api.name} v{version}: refused"
