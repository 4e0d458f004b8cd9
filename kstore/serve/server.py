"""Server: a store on a port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from kstore.config import KIB
from kstore.env import Closing, StrPath
from kstore.env.process import SYSTEM_CLOCK
from kstore.serve.broker import Broker, ServedStore
from kstore.serve.calls import Peer
from kstore.serve.config import ServerConfig
from kstore.serve.connection import Budget, Connection
from kstore.serve.faults import Faults
from kstore.serve.metrics import ServerMetrics
from kstore.serve.news import News
from kstore.serve.security.door import Door, check_listening
from kstore.store.store import Store, WritableStore, open_store
from kstore.store.upkeep.maintenance import MaintenanceIntervals

if TYPE_CHECKING:
    from typing_extensions import Self

    from kstore.serve.connection import Answer
    from kstore.serve.security.sasl import Session

_RECEIVED_BYTES = 256 * KIB
# How long a closed connection may take to send what was answered.
_GRACE_S = 1.0
# How many may wait to be let in; clients of one that started again come all at once.
_BACKLOG = 1024
_TURNS_OF_AN_ACCEPT = 3
# How often it is seen which connections last too long, and whether the file of users has changed.
_CHECK_S = 1.0
# An interval of maintenance that no server lives to see.
_NEVER_MS = 2**62
Result = TypeVar("Result")


class ServerLoop:
    """A server in a running loop: listens from start() on, until stop()."""

    def __init__(self, store: ServedStore, config: ServerConfig, faults: Faults) -> None:
        self._store = store
        self._config = config
        self._faults = faults
        self._connections: set[Connection] = set()

    async def start(self) -> Peer:
        """Listen; return where."""
        loop = asyncio.get_running_loop()
        self._news = News(self._store, loop)
        self._broker = broker = Broker(self._store, self._config, self._news, self._faults)
        broker.metrics.open_connections = self._connections
        self._door = door = Door(self._config.security, self._config.limits)
        received, budget = memoryview(bytearray(_RECEIVED_BYTES)), Budget(self._config.most_held_bytes)

        def made() -> Connection:
            return Connection(
                self._answer,
                door=door,
                limits=self._config.limits,
                received=received,
                budget=budget,
                most_request_bytes=self._config.most_request_bytes,
                connections=self._connections,
            )

        self._server = await loop.create_server(made, self._config.host, self._config.port, backlog=_BACKLOG)
        self._checking = asyncio.ensure_future(self._check_again_and_again())
        host, port, *_ = self._server.sockets[0].getsockname()
        return Peer(host, port)

    def get_ready(self) -> None:
        """Load and begin what answers requests; called after start().

        In a new process this takes longer than all that is needed to listen: clients connect before it has ended. A
        request that arrives first imports the modules that answer it.
        """
        import kstore.log.write.writable_log
        import kstore.serve.apis  # noqa: F401

        _ = self._broker.groups
        if self._broker.transactions is not None:
            self._broker.transactions.start()

    def _answer(self, frame: bytearray, own: Connection, session: Session) -> Answer | Awaitable[Answer]:
        peer, host, port = own.own_address, self._config.advertised_host, self._config.advertised_port
        if host or port:
            peer = Peer(host or peer.host, port or peer.port)
        return self._respond(self._broker, frame, peer, client_host=own.client_host, session=session)

    @cached_property
    def _respond(self) -> Callable[..., Answer | Awaitable[Answer]]:
        from kstore.serve.apis import respond

        return respond

    async def _check_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            self._door.refresh()
            for connection in tuple(self._connections):
                connection.check(SYSTEM_CLOCK.monotonic_ms())

    @property
    def metrics(self) -> ServerMetrics:
        return self._broker.metrics

    async def expire_sessions(self, group_id: str, member_id: str | None) -> int:
        return await self._broker.groups.end_sessions(group_id, None if member_id is None else (member_id,))

    async def stop(self) -> None:
        """Listen no more, close the connections, and end what is done for them."""
        await self._accept_no_more()
        self._checking.cancel()
        if self._broker.transactions is not None:
            self._broker.transactions.close()
        self._news.end()
        await asyncio.gather(*(connection.close(grace_s=_GRACE_S) for connection in tuple(self._connections)))
        self._broker.groups.close()
        await asyncio.get_running_loop().shutdown_default_executor()
        self._news.close()

    async def _accept_no_more(self) -> None:
        """Close the listening sockets, after the loop has made the connections that it has accepted already.

        Server.close() alone loses these: their sockets stay open, and connection_made() is never called.
        """
        loop = asyncio.get_running_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        for _ in range(_TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)
        self._server.close()


class Server(Closing):
    """Serves a root by Kafka's protocol, from a thread of its own, between start() and close().

    A context manager does both, `with` or `async with`. After close() it can be started again, on the same port.
    Args: root: a directory or URL, which start() opens, or a store that is open and stays so; read_only: take no lock,
        write nothing, and serve a root that another process writes, or that is damaged.
    Attributes: faults (what it is to do wrong, for tests).
    A root that start() opens is maintained as by a broker (`WritableStore.start_maintenance`); records are
    only deleted in a root that kstore created, or where config.cleans says so.
    Threads: safe.  After a fork, the child has no server.
    """

    def __init__(
        self, root: StrPath | ServedStore, *, read_only: bool = False, config: ServerConfig | None = None
    ) -> None:
        if isinstance(root, WritableStore) and read_only:
            raise ValueError("the store is open for writing: read_only is for a root, or a store opened in mode r")
        self._root = root
        self._is_read_only = read_only
        self._config = config or ServerConfig()
        self.faults = Faults()
        self._changing = threading.Lock()
        self._running: _Running | None = None

    def start(self) -> Self:
        """Open the root if it is not a store, and listen; return the server.

        Raises: as open_store; OSError if the port is taken; ValueError if it runs already; SecurityError if others
            could reach a server that would not know them.
        """
        with self._changing:
            if self._running is not None:
                raise ValueError(f"the server runs already, on {self.bootstrap_servers}")
            self._running = _Running(self._root, self._config, self.faults, is_read_only=self._is_read_only)
            self._config = replace(self._config, port=self._running.peer.port)
        return self

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: host:port.  Raises: ValueError before start()."""
        peer = self._now().peer
        return f"{peer.host}:{peer.port}"

    @property
    def store(self) -> ServedStore:
        """The store that is served.  Raises: ValueError before start()."""
        return self._now().store

    @property
    def metrics(self) -> ServerMetrics:
        """What the server counts since it was started.  Raises: ValueError before start()."""
        return self._now().metrics

    def expire_sessions(self, group_id: str, member_id: str | None = None) -> int:
        """Let the session of a member of a group end now, None for those of all; return how many, for tests.

        Members of both protocols rejoin when they hear of it, as after a network that was cut.
        Raises: ValueError before start(); as reading `__consumer_offsets`.
        """
        return self._now().expire_sessions(group_id, member_id)

    def _now(self) -> _Running:
        if self._running is None:
            raise ValueError("the server is not started")
        return self._running

    def close(self) -> None:
        """Send what was answered, close the connections, and the store if start() opened it."""
        with self._changing:
            running, self._running = self._running, None
            if running is not None:
                running.close()

    def __enter__(self) -> Self:
        return self.start()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)


class _Running:
    """A server between start() and close().

    Attributes: store; peer (where it listens).
    """

    def __init__(
        self, root: StrPath | ServedStore, config: ServerConfig, faults: Faults, *, is_read_only: bool
    ) -> None:
        check_listening(config)
        self._owned: ServedStore | None = None
        if isinstance(root, (Store, WritableStore)):
            self.store: ServedStore = root
        else:
            self._owned = self.store = open_store(root, "r") if is_read_only else _maintained(root, config)
        self._loop = asyncio.new_event_loop()
        self._server = ServerLoop(self.store, config, faults)
        self._thread = threading.Thread(target=self._loop.run_forever, name="kstore-serve", daemon=True)
        try:
            self._thread.start()
            self.peer = self.in_loop(self._server.start())
            self._loop.call_soon_threadsafe(self._server.get_ready)
        except BaseException:
            self._end()
            raise

    @property
    def metrics(self) -> ServerMetrics:
        return self._server.metrics

    def expire_sessions(self, group_id: str, member_id: str | None) -> int:
        return self.in_loop(self._server.expire_sessions(group_id, member_id))

    def in_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what a coroutine of the server returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        try:
            self.in_loop(self._server.stop())
        finally:
            self._end()

    def _end(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        if self._owned is not None:
            self._owned.close()


def _maintained(root: StrPath, config: ServerConfig) -> WritableStore:
    """Open a root for writing, with what a broker does in the background."""
    store = open_store(root, "a")
    cleans = store.cluster_facts().is_own if config.cleans is None else config.cleans
    intervals = MaintenanceIntervals()
    store.start_maintenance(intervals if cleans else intervals._replace(retain_ms=_NEVER_MS, compact_ms=_NEVER_MS))
    return store
