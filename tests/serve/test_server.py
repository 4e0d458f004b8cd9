"""Goal: a server starts and stops as one object, leaves nothing behind, and deletes nothing that is not its to delete.
Method: servers of new roots, and of one that a broker formatted."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import pytest

import kstore
from kstore.record import with_records
from kstore.serve import Server, ServerConfig
from kstore.serve.answers import writing
from kstore.serve.coordination.transactions import Transactions
from kstore.serve.faults import Faults
from kstore.serve.server import ServerLoop
from kstore.types import TRANSACTION_STATE_TOPIC
from kstore.wire.messages import ApiVersionsRequest, FetchRequest, ProduceRequest
from tests.fakes.waiting import wait_until
from tests.making.serving import RawClient, once_it_waits


def test_a_server_listens_between_start_and_close_and_again_on_the_same_port(tmp_path):
    server = Server(tmp_path / "root", config=ServerConfig(port=0))
    with pytest.raises(ValueError, match="not started"):
        assert server.bootstrap_servers
    server.start()
    address = server.bootstrap_servers
    with pytest.raises(ValueError, match="runs already"):
        server.start()
    with RawClient(server) as client:
        assert client.ask(ApiVersionsRequest(), version=0).error_code == 0
    server.close()
    server.close()
    with server:
        assert server.bootstrap_servers == address
        with pytest.raises(kstore.LogLockedError):
            kstore.open_store(tmp_path / "root", "a")
    kstore.open_store(tmp_path / "root", "a").close()


def test_a_server_gets_ready_without_a_request(tmp_path, monkeypatch):
    ready = []
    monkeypatch.setattr(Transactions, "look_after", lambda _: ready.append(True))
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic(TRANSACTION_STATE_TOPIC)
        with Server(store, config=ServerConfig(port=0)):
            wait_until(lambda: ready)


def test_a_request_is_answered_by_a_server_that_is_not_ready_yet(tmp_path, monkeypatch):
    monkeypatch.setattr(ServerLoop, "get_ready", lambda _: None)
    with Server(tmp_path / "root", config=ServerConfig(port=0)) as server, RawClient(server) as client:
        assert client.ask(ApiVersionsRequest(), version=0).error_code == 0


def test_a_server_that_cannot_listen_leaves_no_lock(tmp_path):
    with Server(tmp_path / "one", config=ServerConfig(port=0)) as server:
        port = int(server.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"):
            Server(tmp_path / "two", config=ServerConfig(port=port)).start()
    kstore.open_store(tmp_path / "two", "a").close()


def test_a_server_is_an_asynchronous_context_manager_too(tmp_path):
    async def served():
        async with Server(tmp_path / "root", config=ServerConfig(port=0)) as server:
            return isinstance(server.store, kstore.WritableStore), server
        raise AssertionError

    is_writable, server = asyncio.run(served())
    assert is_writable
    with pytest.raises(ValueError, match="not started"):
        assert server.store


def test_maintenance_deletes_records_only_in_a_root_that_kstore_created(tmp_path):
    broker = tmp_path / "broker"
    broker.mkdir()
    (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=0123456789012345678901\n")
    for root, config, deletes in (
        (tmp_path / "own", ServerConfig(port=0), True),
        (broker, ServerConfig(port=0), False),
        (broker, ServerConfig(port=0, cleans=True), True),
        (tmp_path / "own", ServerConfig(port=0, cleans=False), False),
    ):
        with Server(root, config=config) as server:
            every = server.store._maintenance._background._every
            assert [every[task] < 10**9 for task in ("flush", "retain", "compact", "checkpoint")] == [
                True,
                deletes,
                deletes,
                True,
            ]


@pytest.mark.parametrize("turns", range(5))
def test_a_server_that_stops_while_clients_connect_closes_all_of_them(served, turns):
    async def stopped():
        server = ServerLoop(served, ServerConfig(port=0), Faults())
        peer = await server.start()
        clients = [socket.create_connection(peer) for _ in range(5)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        return clients

    for client in asyncio.run(stopped()):
        with client:
            client.settimeout(20)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""


def test_a_server_that_stops_answers_the_append_that_is_under_way(served, monkeypatch):
    begun, may_end, answered = threading.Event(), threading.Event(), writing._answer

    def held(*arguments, **options):
        begun.set()
        assert may_end.wait(20)
        return answered(*arguments, **options)

    monkeypatch.setattr(writing, "_answer", held)
    records = bytes(with_records([kstore.Record(value=bytes(100_000))]).buffer)
    data = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)]
    )
    server = Server(served, config=ServerConfig(port=0)).start()
    with RawClient(server) as client:
        for _ in range(2):
            client.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), version=9)
        assert begun.wait(20)
        [connection] = server._now()._server._connections
        stopping = threading.Thread(target=server.close)
        stopping.start()
        wait_until(lambda: connection._is_ending)
        may_end.set()
        number, answer = client.receive(0, version=9)
        assert (number, answer.responses[0].partition_responses[0].error_code) == (1, 0)
        assert client.is_closed()
        stopping.join()
    assert served.log("t", 0).log_end_offset == 1


def test_a_fetch_that_waits_does_not_hold_up_the_end_of_a_server(served):
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchRequest.FetchTopic(topic="t", partitions=[part])]
    server = Server(served, config=ServerConfig(port=0)).start()
    with RawClient(server) as client:
        client.send(FetchRequest(replica_id=-1, max_wait_ms=600_000, min_bytes=1, topics=topics), version=12)
        once_it_waits(server)
        server.close()
        assert client.receive(1, version=12)[1].error_code == 0
        assert client.is_closed()


def test_a_server_that_stops_while_groups_are_read_leaves_no_task(served, caplog):
    served.create_topic("__consumer_offsets", partitions=50)

    async def stopped():
        server = ServerLoop(served, ServerConfig(port=0), Faults())
        await server.start()
        waiting = asyncio.ensure_future(server._broker.groups.ready())
        await asyncio.sleep(0)
        await server.stop()
        return await asyncio.gather(waiting, return_exceptions=True)

    [ended] = asyncio.run(stopped())
    assert isinstance(ended, asyncio.CancelledError)
    assert caplog.records == []
