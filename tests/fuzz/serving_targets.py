"""The invariant of a server: whatever a client sends, its request is answered, or refused by a typed error that closes
its connection; nothing is logged as a fault, and an ordinary request is answered afterwards."""

from __future__ import annotations

import asyncio
import atexit
import logging
import random
import shutil
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from kstore.errors import AuthenticationError, InvalidRequestError, UnsupportedVersionError
from kstore.serve.apis import HANDLERS, respond
from kstore.serve.calls import NoAnswerError, Peer
from kstore.serve.config import SecurityConfig, ServerConfig
from kstore.serve.security.logins import Logins
from kstore.serve.security.rules import Operation, Resource, Rule
from kstore.serve.security.sasl import Session
from kstore.serve.security.users import add_user, allow
from kstore.serve.server import Server
from kstore.wire.classes import Message
from kstore.wire.frames import apis, encode_request
from kstore.wire.messages import MetadataRequest, message_named
from tests.fuzz.agreement import Disagreement, agree
from tests.fuzz.message_mutator import MessageMutator
from tests.fuzz.wire_targets import WireMutator
from tests.making.batches import batch
from tests.making.serving import RawClient

REFUSALS = (AuthenticationError, InvalidRequestError, NoAnswerError, UnsupportedVersionError)
TOPICS = ("t", "t", "u", "missing", "no/name")
# A request that waits for longer is left, as by a client that closes its connection.
MOST_WAIT_S = 0.01
MOST_PARTITIONS = 3
NAMES = {"name", "topic", "resource_name"}
IDS = {"group_id", "transactional_id", "v3_and_below_transactional_id", "key", "member_id"}
COUNTS = {"num_partitions", "count"}
LOGGERS = ("kstore", "asyncio")


class Faults(logging.Handler):
    """Keeps what is logged as a fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


class Target:
    """A server, one that only reads its root, and sessions: of a superuser, a user with few rights, nobody yet."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        # Not a TemporaryDirectory, which would be gone at the end of the process before the server is stopped.
        self._directory = root = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        add_user(root / "users.json", "alice", "p", iterations=4096)
        allow(root / "users.json", "alice", Rule(Resource.TOPIC, "t", frozenset({Operation.READ, Operation.WRITE})))
        allow(root / "users.json", "alice", Rule(Resource.GROUP, "g", frozenset({Operation.READ})))
        self._users = SecurityConfig(users=root / "users.json", sasl_mechanisms=("PLAIN", "SCRAM-SHA-256"))
        self.server = Server(root / "root", config=ServerConfig(port=0)).start()
        self.reader = Server(root / "root", read_only=True, config=ServerConfig(port=0)).start()
        self.faults = Faults()
        for name in LOGGERS:
            logger = logging.getLogger(name)
            logger.addHandler(self.faults)
            logger.propagate = False
        self._make_topics()

    def close(self) -> None:
        self.reader.close()
        self.server.close()
        shutil.rmtree(self._directory)
        for name in LOGGERS:
            logger = logging.getLogger(name)
            logger.removeHandler(self.faults)
            logger.propagate = True

    def _make_topics(self) -> None:
        for topic in ("t", "u"):
            self.server.store.create_topic(topic, 2, exist_ok=True)  # type: ignore[union-attr]

    async def _session(self, kind: int) -> Session:
        if kind == 0:
            return Session(Logins(SecurityConfig(), failure_delay_s=0))
        session = Session(Logins(self._users, failure_delay_s=0))
        if kind == 1:
            session._become("alice")
        return session

    async def _asked(self, server: Server, frame: bytes, kind: int) -> None:
        broker = server._now()._server._broker
        session = await self._session(kind)
        answer = respond(broker, bytearray(frame), Peer("127.0.0.1", 9092), client_host="127.0.0.1", session=session)
        if answer is not None and not isinstance(answer, list):
            # Not shielded: who waits is cancelled, as when its connection is lost.
            await asyncio.wait_for(answer, MOST_WAIT_S)

    def respond(self, server: Server, frame: bytes, kind: int) -> None:
        """Have a request answered.  Raises: Disagreement if that ends in another way than it may."""
        try:
            server._now().in_loop(self._asked(server, frame, kind))
        except (*REFUSALS, asyncio.TimeoutError):
            pass
        except Exception as error:
            raise Disagreement("served", frame, repr(error), "an answer, or a typed refusal") from error

    def check(self, data: bytes) -> None:
        """Raise Disagreement if something was logged as a fault, or an ordinary request is not answered."""
        agree("served", data, found=self.faults.found, expected=[])
        with RawClient(self.server) as client:
            answer = client.ask(MetadataRequest(topics=[]), version=12)
        agree("served", data, found=len(answer.brokers), expected=1)
        self._make_topics()


@cache
def target() -> Target:
    return Target()


@atexit.register
def release() -> None:
    """Stop the server, if one was made; the next case makes another."""
    if target.cache_info().currsize:
        target().close()
        target.cache_clear()


def fitted(message: Message, rng: random.Random) -> None:
    """Have most names of a message be those of topics and groups that there are, and counts of partitions be small."""
    for field in message.__slots__:
        value = getattr(message, field)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Message):
                fitted(item, rng)
        # What has its default may be of another version.
        if not value or (rng.random() < 0.2 and field not in COUNTS):
            continue
        if isinstance(value, str) and field in NAMES:
            setattr(message, field, rng.choice(TOPICS))
        elif isinstance(value, str) and field in IDS:
            setattr(message, field, rng.choice(("g", "", "other")))
        elif field in ("index", "partition", "partition_index"):
            setattr(message, field, rng.choice((0, 1, 2)))
        elif field in COUNTS:
            setattr(message, field, min(value, MOST_PARTITIONS))
        elif field == "records":
            setattr(message, field, batch(0))


def request_of(mutator: MessageMutator) -> bytes:
    """Return a request of a served api, with its size, that fits the server or is damaged."""
    wire = WireMutator(mutator.random)
    wire.api = apis()[mutator.random.choice(sorted(HANDLERS))]
    wire.version = mutator.random.choice(wire.api.versions)
    body = wire.maker().message(message_named(f"{wire.api.name}Request"))
    fitted(body, mutator.random)
    parts = encode_request(body, version=wire.version, correlation_id=1, client_id="fuzz")
    data = b"".join(map(bytes, parts))
    return data[:4] + wire.damaged(data[4:]) if mutator.random.random() < 0.5 else data


def request_case(mutator: MessageMutator) -> None:
    """A request that is answered in the server's loop."""
    data = request_of(mutator)
    server = mutator.random.choice((target().server, target().server, target().reader))
    target().respond(server, data[4:], mutator.random.choice((0, 0, 0, 1, 1, 2)))
    agree("served", data, found=target().faults.found, expected=[])
    if mutator.random.random() < 0.02:
        target().check(data)


def connection_case(mutator: MessageMutator) -> None:
    """Requests on a connection, whole or not, that the client leaves without a word."""
    rng = mutator.random
    frames = [request_of(mutator) for _ in range(rng.choice((1, 1, 2, 3)))]
    data = b"".join(
        (struct.pack(">i", len(frame) - 4 + rng.choice((0, 0, 0, -1, 1, 2**30))) + frame[4:]) for frame in frames
    )
    cut = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data
    with RawClient(target().server) as client:
        step = rng.choice((1 << 20, 1 << 20, 7, 100))
        try:
            for start in range(0, len(cut), step):
                client.socket.sendall(cut[start : start + step])
        except ConnectionError:
            pass  # the server has closed it
    target().check(data)


SERVING_TARGETS: dict[str, Callable[[MessageMutator], None]] = {
    "served request": request_case,
    "served connection": connection_case,
}
