"""KafkaServer: a server for tests."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, cast
from uuid import UUID

from kstore._core import Record
from kstore.env import Closing, StrPath
from kstore.env.process import TemporaryDirectory
from kstore.errors import KStoreError, UnknownTopicOrPartitionError, checked_int
from kstore.serve.config import ServerConfig
from kstore.serve.faults import Fault, code_named
from kstore.serve.server import Server

if TYPE_CHECKING:
    from typing_extensions import Self

    from kstore.log.reads import Isolation
    from kstore.store.store import WritableStore


class KafkaServer(Closing):
    """A broker for tests, in this process: any client of Kafka connects to bootstrap_servers; a context manager.

    Args: root: where the records are, and stay; None for a new directory, in memory where there is such a place, which
        close() removes; config: by default a free port, and topics that clients ask for are created with one partition;
        topics: by name, how many partitions are created; those that a given root has already stay as they are.
    It runs in a thread of its own, so that a client that blocks does not stop it. Faults happen to the next requests of
    an api, by Kafka's name of it (Produce, Fetch, Metadata, JoinGroup), from any client, in the order in which they
    were planned.
    Raises: as open_store; OSError if a port is taken.
    Threads: safe.
    """

    def __init__(
        self,
        root: StrPath | None = None,
        *,
        config: ServerConfig | None = None,
        topics: Mapping[str, int] | None = None,
    ) -> None:
        self._temporary: TemporaryDirectory | None = None
        if root is None:
            self._temporary = TemporaryDirectory()
            root = f"{self._temporary.path}/root"
        self._server = Server(root, config=config or ServerConfig(port=0))
        try:
            self._server.start()
            self._bootstrap_servers = self._server.bootstrap_servers
            for topic, partitions in (topics or {}).items():
                self.store.create_topic(topic, partitions, exist_ok=True)
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: host:port; the same after a restart."""
        return self._bootstrap_servers

    @property
    def store(self) -> WritableStore:
        """The store that is served; another object after a restart.  Raises: ValueError after stop()."""
        return cast("WritableStore", self._server.store)

    @property
    def root(self) -> str:
        """The directory of the store."""
        return self.store.root

    def create_topic(self, topic: str, partitions: int = 1, *, config: Mapping[str, object] | None = None) -> UUID:
        """Create a topic, with settings of a LogConfig; return its id.  Raises: as WritableStore.create_topic."""
        return self.store.create_topic(topic, partitions, config=config)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic.  Raises: as WritableStore.delete_topic."""
        self.store.delete_topic(topic)

    def records(
        self, topic: str, partition: int | None = None, *, isolation: Isolation = "read_uncommitted"
    ) -> list[Record]:
        """Return the records of a topic, or of one partition of it, without a client: by partition and offset.

        Args: isolation: "read_committed" leaves out the records of open and of aborted transactions. Control records
            are left out always.
        Raises: UnknownTopicOrPartitionError, as for a topic that is not there.
        """
        numbers = [number for name, number in self.store.partitions if name == topic]
        if not numbers:
            raise UnknownTopicOrPartitionError(f"the server has no topic {topic}")
        wanted = sorted(numbers) if partition is None else [partition]
        return [record for number in wanted for record in self.store.log(topic, number).read(isolation=isolation)]

    def wait_for_records(
        self, topic: str, count: int, *, timeout: float | None = 10.0, isolation: Isolation = "read_uncommitted"
    ) -> list[Record]:
        """Wait until a topic, which need not exist yet, has so many records; return all that it has then, as records().

        Args: timeout: in seconds without another record; None for no end.
        Raises: TimeoutError, with how many there are; LogClosedError if the server stops during the wait.
        """
        wanted = checked_int("count", count, least=1)
        follow = self.store.follow
        with follow([topic], timeout=timeout, isolation=isolation, auto_offset_reset="earliest") as follower:
            found = sum(1 for _ in islice(follower, wanted))
        if found < wanted:
            raise TimeoutError(f"topic {topic} has {found} of {wanted} records, and got no other in {timeout:g} s")
        return self.records(topic, isolation=isolation)

    def fail_next(
        self, api: str, error: str | int | type[KStoreError], *, times: int = 1, is_done: bool = False
    ) -> None:
        """Answer the next requests of an api with an error, by Kafka's name, its number, or a class of kstore.

        Args: is_done: the work is done although the answer says otherwise, as after a timeout.
        Raises: ValueError for an unknown api or error, and unless `times` is from 1 to 1,000,000.
        """
        self._server.faults.plan(api, Fault(code=code_named(error), is_done=is_done), times=times)

    def disconnect_next(self, api: str, *, times: int = 1, is_done: bool = False) -> None:
        """Close the connection in place of the next answers of an api.

        Args: is_done: the work is done, and only the answer is lost.
        Raises: ValueError for an unknown api or number of times.
        """
        self._server.faults.plan(api, Fault(is_lost=True, is_done=is_done), times=times)

    def delay_next(self, api: str, seconds: float, *, times: int = 1) -> None:
        """Wait before the next requests of an api are worked on; other connections are answered meanwhile.

        Raises: ValueError for an unknown api or number of times, and for less than 0 seconds.
        """
        if not 0 <= seconds < inf:
            raise ValueError(f"seconds must be 0 or more, got {seconds!r}")
        self._server.faults.plan(api, Fault(delay_s=seconds), times=times)

    def expire_session(self, group_id: str, member_id: str | None = None) -> None:
        """End the session of a member of a group, or of all, as if it had not sent a heartbeat: the others take over.

        A member that is alive joins again.
        Raises: ValueError if there is no such member.
        """
        if not self._server.expire_sessions(group_id, member_id):
            who = "no members" if member_id is None else f"no member {member_id}"
            raise ValueError(f"group {group_id} has {who}")

    def clear_faults(self) -> int:
        """Forget the faults that did not happen yet; return how many there were."""
        return self._server.faults.clear()

    def stop(self) -> None:
        """Close all connections and the store, and refuse new ones until start(); a second call does nothing."""
        self._server.close()

    def start(self) -> Self:
        """Start again after stop(), with the same root and port; return the server.

        Raises: ValueError if it runs; OSError if another process has taken the port.
        """
        self._server.start()
        return self

    def restart(self) -> Self:
        """Stop and start again; return the server."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Close all connections, and remove the directory if it is a new one."""
        self._server.close()
        if self._temporary is not None:
            self._temporary.close()
