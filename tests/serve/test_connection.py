"""Goal: whatever a client sends, the server answers as a broker does or closes the connection, and serves the others.
Method: bytes by a socket."""

from __future__ import annotations

import socket
import struct
import time

import pytest

import kstore
from kstore.serve.apis import HANDLERS
from kstore.serve.config import ServerConfig
from kstore.serve.connection import Budget
from kstore.serve.server import Server
from kstore.wire.frames import apis
from kstore.wire.messages import (
    ApiVersionsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from tests.making.serving import RawClient, frame_of, once_it_waits

API_VERSIONS, METADATA = 18, 3


def versions_request(correlation_id=1, *, version=4):
    return frame_of(
        ApiVersionsRequest(client_software_name="raw", client_software_version="1"),
        version=version,
        correlation_id=correlation_id,
    )


def test_transactions_before_kip_890_can_be_chosen(served):
    with Server(served, config=ServerConfig(port=0, transaction_version=0)) as server, RawClient(server) as client:
        answer = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), version=4)
    assert {one.name for one in answer.finalized_features} == {"metadata.version", "group.version"}
    assert "transaction.version" in {one.name for one in answer.supported_features}
    with pytest.raises(ValueError, match="transaction_version must be 0, 1 or 2, got 3"):
        ServerConfig(transaction_version=3)


@pytest.mark.parametrize("step", [1, 3, 4, 5, 1000])
def test_requests_that_come_in_pieces_are_answered_in_their_order(client, step):
    data = b"".join(versions_request(number) for number in range(3))
    for start in range(0, len(data), step):
        client.socket.sendall(data[start : start + step])
    assert [client.receive(API_VERSIONS, version=4)[0] for _ in range(3)] == [0, 1, 2]


def test_a_request_that_waits_holds_back_those_after_it(client):
    waiting = FetchRequest(
        max_wait_ms=300,
        min_bytes=1,
        topics=[
            FetchRequest.FetchTopic(
                topic="t", partitions=[FetchRequest.FetchPartition(partition=0, partition_max_bytes=9)]
            )
        ],
    )
    client.socket.sendall(frame_of(waiting, version=12, correlation_id=7) + versions_request(8))
    assert client.receive(1, version=12)[0] == 7
    assert client.receive(API_VERSIONS, version=4)[0] == 8


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative-size"),
        pytest.param(struct.pack(">i", 0), id="no-bytes"),
        pytest.param(struct.pack(">i", (1 << 20) + 1), id="too-large"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(struct.pack(">ihhi", 8, 200, 0, 1), id="unknown-api"),
        pytest.param(struct.pack(">ihhi", 8, METADATA, 77, 1), id="unknown-version"),
        pytest.param(struct.pack(">ihhih", 10, METADATA, 4, 1, -1), id="truncated-body"),
        pytest.param(struct.pack(">ihhi", 8, 0, 2, 1), id="produce-of-old-clients"),
    ],
)
def test_what_a_broker_does_not_answer_closes_the_connection_and_no_other(server, client, data):
    with RawClient(server) as other:
        client.socket.sendall(data)
        assert client.is_closed()
        assert other.ask(MetadataRequest(topics=[]), version=12).error_code == 0


def test_a_request_of_too_many_bytes_closes_the_connection_before_it_comes(client, caplog):
    client.socket.sendall(struct.pack(">i", (1 << 20) + 1))
    assert client.is_closed()
    assert "a request of 1048577 bytes; expected 1 to 1048576" in caplog.text


def test_an_api_that_is_not_served_closes_the_connection(client, monkeypatch):
    monkeypatch.delitem(HANDLERS, METADATA)
    client.send(MetadataRequest(topics=[]), version=12)
    assert client.is_closed()


def test_versions_of_an_unknown_version_are_answered_in_version_0(client):
    client.socket.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 99, 5, -1))
    correlation_id, answer = client.receive(API_VERSIONS, version=0)
    assert (correlation_id, answer.error_code) == (5, 35)
    assert [(one.api_key, one.max_version) for one in answer.api_keys] == [(API_VERSIONS, 4)]


def test_versions_are_those_of_a_broker_for_what_is_served(client):
    answer = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), version=4)
    shown = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    expected = {key: (apis()[key].versions[0], apis()[key].versions[-1]) for key in HANDLERS}
    assert shown == expected | {0: (0, 13)}
    assert {one.name: one.max_version_level for one in answer.finalized_features} == {
        "metadata.version": 27,
        "group.version": 1,
        "transaction.version": 2,
    }


def test_features_that_may_be_0_are_told_to_clients_that_know_them(client):
    names = []
    for version in (3, 4):
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        names.append({feature.name for feature in client.ask(request, version=version).supported_features})
    assert names == [{"metadata.version"}, {"metadata.version", "group.version", "transaction.version"}]


def test_a_fault_in_the_server_closes_one_connection(server, client, monkeypatch, caplog):
    def broken(*_):
        raise AssertionError("a fault")

    monkeypatch.setitem(HANDLERS, METADATA, broken)
    client.send(MetadataRequest(topics=[]), version=12)
    assert client.is_closed()
    assert "a fault" in caplog.text
    with RawClient(server) as other:
        assert other.ask(ListOffsetsRequest(replica_id=-1, topics=[]), version=7).topics == []


def test_a_client_that_leaves_while_its_request_waits_costs_nothing(server):
    fetch = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=[
            FetchRequest.FetchTopic(
                topic="t", partitions=[FetchRequest.FetchPartition(partition=0, partition_max_bytes=9)]
            )
        ],
    )
    with RawClient(server) as leaving:
        leaving.send(fetch, version=12)
        once_it_waits(server)
    news = server._now()._server._news
    for _ in range(1000):
        if not news._waiting:
            break
        time.sleep(0.01)
    assert not news._waiting


def test_announced_bytes_take_no_memory(served):
    with Server(served, config=ServerConfig(port=0)) as server:
        clients = [RawClient(server) for _ in range(200)]
        for client in clients:
            client.socket.sendall(struct.pack(">i", 100 << 20) + b"x" * 10)
        with RawClient(server) as other:
            assert other.ask(MetadataRequest(topics=[]), version=12).error_code == 0
        while sum(len(connection._frame) for connection in server._now()._server._connections) < 200 * 10:
            time.sleep(0.001)
        assert all(len(connection._frame) <= 10 for connection in server._now()._server._connections)
        for client in clients:
            client.socket.close()


def test_one_of_many_large_requests_is_read_at_a_time_when_the_memory_is_spent(served):
    config = ServerConfig(port=0, most_held_bytes=1 << 20)
    with Server(served, config=config) as server:
        clients = [RawClient(server) for _ in range(8)]
        padding = b"\0" * (1 << 19)
        # Bytes after a request are passed over, as a broker does.
        body = frame_of(MetadataRequest(topics=[]), version=1, correlation_id=3)[4:]
        frame = struct.pack(">i", len(body) + len(padding)) + body + padding
        for client in clients:
            client.socket.sendall(frame[: len(frame) // 2])
        for client in clients:
            client.socket.sendall(frame[len(frame) // 2 :])
        for client in clients:
            assert client.receive(METADATA, version=1)[0] == 3
            client.socket.close()


def test_a_spent_budget_lets_one_connection_go_on_until_it_is_answered():
    class Reader:
        def __init__(self):
            self.woken = 0

        def read_or_wait(self):
            self.woken += 1

    budget, first, second, third = Budget(10), Reader(), Reader(), Reader()
    budget.take(12)
    assert [budget.lets_read(one) for one in (first, second, third, first)] == [True, False, False, True]
    budget.leave(first)
    assert [one.woken for one in (first, second, third)] == [0, 1, 1]
    assert [budget.lets_read(one) for one in (third, second)] == [True, False]
    budget.give_back(5)
    assert second.woken == 2
    assert budget.lets_read(second)


def test_a_server_stops_without_a_connection_that_was_accepted_and_never_made(served):
    # As asyncio leaves one that it accepts while the server stops.
    with Server(served, config=ServerConfig(port=0)) as server:
        never_made = server._now()._server._server._protocol_factory()
    assert never_made.session is None


def test_a_server_that_is_closed_leaves_the_store_open_that_it_was_given(served):
    with Server(served, config=ServerConfig(port=0)) as server:
        host, _, port = server.bootstrap_servers.rpartition(":")
    served.log("t", 0).append(kstore.Record(value=b"v"))
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)))
