"""Server: a store on a port."""

from __future__ import annotations

import asyncio
import threading

from kstore.config import KIB
from kstore.env import Closing, StrPath
from kstore.serve.apis import respond
from kstore.serve.broker import Broker, ServedStore
from kstore.serve.calls import Peer
from kstore.serve.config import ServerConfig
from kstore.serve.connection import Budget, Connection
from kstore.serve.news import News
from kstore.store.store import Store, WritableStore, open_store

_RECEIVED_BYTES = 64 * KIB
# How long a closed connection may take to send what was answered.
_GRACE_S = 1.0


class ServerLoop:
    """A server in a running loop: listens from start() on, until stop()."""

    def __init__(self, store: ServedStore, config: ServerConfig) -> None:
        self._store = store
        self._config = config
        self._connections: set[Connection] = set()

    async def start(self) -> Peer:
        """Listen; return where."""
        loop = asyncio.get_running_loop()
        self._news = News(self._store, loop)
        self._broker = broker = Broker(self._store, self._config, self._news)
        received, budget = memoryview(bytearray(_RECEIVED_BYTES)), Budget(self._config.most_held_bytes)

        def made() -> Connection:
            connection = Connection(
                lambda frame, own: respond(broker, frame, self._advertised(own), client_host=own.client_host),
                received=received,
                budget=budget,
                most_request_bytes=self._config.most_request_bytes,
                when_lost=self._connections.discard,
            )
            self._connections.add(connection)
            return connection

        self._server = await loop.create_server(made, self._config.host, self._config.port)
        host, port, *_ = self._server.sockets[0].getsockname()
        return Peer(host, port)

    def _advertised(self, connection: Connection) -> Peer:
        own = connection.own_address
        return Peer(self._config.advertised_host or own.host, self._config.advertised_port or own.port)

    async def stop(self) -> None:
        """Listen no more, close the connections, and end what is done for them."""
        self._server.close()
        await asyncio.gather(*(connection.close(grace_s=_GRACE_S) for connection in tuple(self._connections)))
        await asyncio.get_running_loop().shutdown_default_executor()
        if self._broker.groups is not None:
            self._broker.groups.close()
        self._news.close()


class Server(Closing):
    """Serves a root by Kafka's protocol, from a thread of its own, until close(); a context manager.

    Args: root: a directory, or a store that is open and stays so; read_only: take no lock, and write nothing.
    Attributes: bootstrap_servers (host:port).
    Raises: as open_store; OSError if the port is taken.
    """

    def __init__(
        self, root: StrPath | ServedStore, *, read_only: bool = False, config: ServerConfig | None = None
    ) -> None:
        self._owned: ServedStore | None = None
        if isinstance(root, (Store, WritableStore)):
            store: ServedStore = root
        else:
            self._owned = store = open_store(root, "r") if read_only else open_store(root, "a")
        self._loop = asyncio.new_event_loop()
        self._server = ServerLoop(store, config or ServerConfig())
        self._thread = threading.Thread(target=self._loop.run_forever, name="kstore-serve", daemon=True)
        self._thread.start()
        try:
            self._peer = asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()
        except BaseException:
            self._end()
            raise

    @property
    def bootstrap_servers(self) -> str:
        return f"{self._peer.host}:{self._peer.port}"

    def close(self) -> None:
        """Close the connections, and the store if the server opened it."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._owned is not None:
            self._owned.close()
