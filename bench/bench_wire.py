"""Requests and answers of Kafka's protocol: the compiled functions of kstore.wire, its interpreter, and kio.

Measured: requests and answers of Kafka's protocol, decoded and encoded one at a time by the compiled functions of
`kstore.wire`.
Compared with: its interpreter; kio, whose reader is compiled and whose writer is Python.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from bench.common import Case, Contestant, Settings, interleaved, require_equal
from kstore.wire.classes import Message
from kstore.wire.compiler import codec
from kstore.wire.messages import (
    FetchRequest,
    FetchResponse,
    MetadataResponse,
    OffsetCommitRequest,
    ProduceRequest,
)
from kstore.wire.schema import decode_message, encode_message

COMPILED, INTERPRETER, KIO = "kstore, compiled", "kstore, interpreter", "kio"
TOPIC_ID = UUID(int=77)
MESSAGES_PER_RUN = 50


class Work(NamedTuple):
    """A message, and in which direction it goes."""

    title: str
    message: Message
    version: int
    is_decoded: bool


def produce(size: int) -> Message:
    partition = ProduceRequest.PartitionProduceData(index=3, records=bytes(size))
    topic = ProduceRequest.TopicProduceData(name="topic", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch(count: int) -> Message:
    partitions = [
        FetchRequest.FetchPartition(partition=number, fetch_offset=10**6, partition_max_bytes=1 << 20)
        for number in range(count)
    ]
    topics = [FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=partitions)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, isolation_level=1, topics=topics)


def fetched(count: int, size: int) -> Message:
    partitions = [
        FetchResponse.PartitionData(partition_index=number, high_watermark=10**6, records=bytes(size))
        for number in range(count)
    ]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)])


def commit(count: int) -> Message:
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=number, committed_offset=10**6)
        for number in range(count)
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="topic", partitions=partitions)]
    return OffsetCommitRequest(group_id="group", member_id="member-1", topics=topics)


def metadata(count: int) -> Message:
    partitions = [
        MetadataResponse.MetadataResponsePartition(partition_index=number, replica_nodes=[1], isr_nodes=[1])
        for number in range(3)
    ]
    topics = [
        MetadataResponse.MetadataResponseTopic(name=f"topic-{number}", topic_id=UUID(int=number), partitions=partitions)
        for number in range(count)
    ]
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=1, host="localhost", port=9092)]
    return MetadataResponse(brokers=brokers, topics=topics)


def works() -> Iterator[Work]:
    yield Work("Decode a Produce request of 64 KiB", produce(1 << 16), 9, is_decoded=True)
    yield Work("Decode a Fetch request of 20 partitions", fetch(20), 16, is_decoded=True)
    yield Work("Decode an OffsetCommit request of 5 partitions", commit(5), 9, is_decoded=True)
    yield Work("Encode a Fetch answer of 20 partitions, 4 KiB each", fetched(20, 4096), 16, is_decoded=False)
    yield Work("Encode a Metadata answer of 100 topics", metadata(100), 12, is_decoded=False)


def repeated(function: Callable[[], object]) -> Callable[[], None]:
    def run_once() -> None:
        for _ in range(MESSAGES_PER_RUN):
            function()

    return run_once


def kio_functions(work: Work, data: bytes) -> tuple[Callable[[], object], bytes] | None:
    """Return what kio does for this work, and the bytes that it writes of the message; None without kio."""
    try:
        index, serial, constants = map(
            importlib.import_module, ("kio.schema.index", "kio.serial", "kio.static.constants")
        )
    except ImportError:
        print("kio left out: not installed")
        return None
    kind = constants.EntityType.request if work.is_decoded else constants.EntityType.response
    schema = type(work.message).schema
    path = index.schema_name_map[index.api_key_map[schema.api_keys[0]]][work.version][kind]
    module, _, name = path.partition(":")
    entity_type = getattr(importlib.import_module(module), name)
    read, write = serial.entity_reader(entity_type), serial.entity_writer(entity_type)
    entity, _ = read(data, 0)

    def written() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    return (lambda: read(data, 0)) if work.is_decoded else written, written()


def run(settings: Settings) -> Iterator[Case]:
    """Time each work by all three."""
    for work in works():
        schema: Any = type(work.message).schema
        of_version = codec(type(work.message), version=work.version)
        data = b"".join(of_version.encode(work.message))
        fields = decode_message(schema, data, version=work.version)
        functions: dict[str, Callable[[], object]] = {}
        if work.is_decoded:
            functions[COMPILED] = lambda codec=of_version, data=data: codec.decode(data)
            functions[INTERPRETER] = lambda work=work, data=data, schema=schema: decode_message(
                schema, data, version=work.version
            )
        else:
            functions[COMPILED] = lambda codec=of_version, work=work: codec.encode(work.message)
            functions[INTERPRETER] = lambda work=work, fields=fields, schema=schema: encode_message(
                schema, fields, version=work.version
            )
        made = {COMPILED: data, INTERPRETER: encode_message(schema, fields, version=work.version)}
        theirs = kio_functions(work, data)
        if theirs is not None:
            functions[KIO], made[KIO] = theirs
        require_equal("bytes of the message", made)
        case = Case(title=work.title, unit="message", bytes_per_unit=len(data))
        contestants = [Contestant(name, repeated(each), MESSAGES_PER_RUN) for name, each in functions.items()]
        case.samples = interleaved(contestants, settings)
        case.add_ratio(COMPILED, INTERPRETER)
        case.add_ratio(COMPILED, KIO)
        yield case
