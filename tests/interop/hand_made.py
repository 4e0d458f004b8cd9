"""Kafka's error codes: of its protocol, and what a broker answers to the requests of making/hand_made.py.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kstore.store.store import open_store
from tests.interop.broker import NODE_ID, Broker, Client, build, tool
from tests.interop.programs import Unavailable
from tests.interop.store import CLUSTER_ID
from tests.making.hand_made import CASES, TOPICS, Produced
from tests.reference.kafka_errors import KAFKA_ERRORS

PRODUCE, VERSION = 0, 8
# UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER
NOT_YET = {3, 6}
TIMEOUT_S = 60
Problems = Iterator[str]


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    build()
    yield "the table of error codes is that of Kafka's protocol", unlike_kafkas_codes()
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        create_topics(client)
        yield "a broker answers hand-made requests with the codes of the table", unlike_the_table(broker.port)


def unlike_kafkas_codes() -> Problems:
    found = tool("ErrorCodes").splitlines()
    known = KAFKA_ERRORS.read_text().splitlines()
    yield from (f"only in the table: {line}" for line in known if line not in found)
    yield from (f"not in the table: {line}" for line in found if line not in known)


def create_topics(client: Client) -> None:
    for topic, settings in TOPICS.items():
        count = sum(case.topic == topic for case in CASES)
        client.ask("create", topic, count, *(f"{name}={value}" for name, value in settings.items()))


def unlike_the_table(port: int) -> Problems:
    partitions: dict[str, int] = {}
    for case in CASES:
        partition = partitions[case.topic] = partitions.get(case.topic, -1) + 1
        for records in case.before:
            code, _ = answer(port, Produced(case.name, records, 0, case.topic), partition)
            if code:
                yield f"{case.name}: a batch before it was refused with {code}"
        code, message = answer(port, case, partition)
        if code != case.broker:
            yield f"{case.name}: expected {case.broker}, found {code} ({message})"


def answer(port: int, case: Produced, partition: int) -> tuple[int, str | None]:
    """Send a Produce request until the broker leads the partition; return its code, and the broker's message."""
    for _ in range(TIMEOUT_S * 10):
        code, message = answer_at_once(port, case, partition)
        if code not in NOT_YET:
            return code, message
        time.sleep(0.1)
    raise Unavailable(f"the broker does not lead {case.topic}-{partition}")


def answer_at_once(port: int, case: Produced, partition: int) -> tuple[int, str | None]:
    with _connected(port) as connection:
        connection.sendall(request(case, partition))
        (size,) = struct.unpack(">i", _received(connection, 4))
        body = _received(connection, size)
    # correlation id, one topic, its name, one partition, its number
    (name_size,) = struct.unpack_from(">h", body, 8)
    at = 10 + name_size + 8
    code, _, _, _, error_count = struct.unpack_from(">hqqqi", body, at)
    at += struct.calcsize(">hqqqi")
    for _ in range(error_count):
        at += 4
        at = _after_text(body, at)
    (text_size,) = struct.unpack_from(">h", body, at)
    return code, None if text_size < 0 else body[at + 2 : at + 2 + text_size].decode()


def request(case: Produced, partition: int) -> bytes:
    """The frame of a Produce request with acks=1."""
    body = struct.pack(">hhi", PRODUCE, VERSION, partition) + _text("hand-made") + _text(case.transactional_id)
    body += struct.pack(">hii", 1, TIMEOUT_S * 1000, 1) + _text(case.topic)
    body += struct.pack(">iii", 1, partition, len(case.records)) + case.records
    return struct.pack(">i", len(body)) + body


@contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        yield connection


def _received(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionError(f"the broker closed the connection after {len(content)} of {size} bytes")
        content += part
    return content


def _text(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def _after_text(body: bytes, at: int) -> int:
    (size,) = struct.unpack_from(">h", body, at)
    return at + 2 + max(size, 0)
