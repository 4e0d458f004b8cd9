"""Goal: transactional producers of both versions get what a broker gives them, and readers see what was committed.
Method: requests as objects, code by code as Kafka 4.1; librdkafka and aiokafka; servers and stores that start again."""

from __future__ import annotations

import pytest

import kstore
from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.coordinator.transaction.state import TransactionStatus
from kstore.errors import LogFailedError
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.types import TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    AddPartitionsToTxnRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from tests.fakes.failing_store import FailingStore
from tests.fakes.sending import ManualClock
from tests.fakes.waiting import wait_until
from tests.making.serving import RawClient
from tests.making.transacting import (
    FOREVER_MS,
    NOBODY,
    T0,
    T1,
    added,
    committed_offset,
    ended,
    fetched_offset,
    next_of,
    offsets_added,
    plainly_committed,
    produced,
    producer_of,
    read,
    started,
)
from tests.making.transactions import data


def test_a_client_of_version_1_adds_its_partitions_and_keeps_its_epoch(client):
    producer = producer_of(client)
    for number, commits in enumerate((True, False, True)):
        assert added(client, producer, T0, T1) == [0, 0]
        value = b"%d" % number
        assert produced(client, producer, T0, T1, sequence=number, value=value) == [0, 0]
        assert value not in read(client, T0)
        answer = ended(client, producer, commits=commits)
        assert (answer.error_code, answer.producer_id) == (0, -1)
        assert ended(client, producer, commits=commits).error_code == 0
    assert read(client, T0) == read(client, T1) == [b"0", b"2"]


def test_a_client_of_version_2_leaves_its_partitions_to_the_server_and_goes_on_with_the_next_epoch(client):
    producer = producer_of(client)
    for number, commits in enumerate((True, False, True)):
        value = b"%d" % number
        assert produced(client, producer, T0, T1, version=12, value=value) == [0, 0]
        assert value not in read(client, T0)
        following = next_of(client, producer, commits=commits)
        assert following == producer._replace(epoch=number + 1)
        assert next_of(client, producer, commits=commits) == following
        producer = following
    assert next_of(client, producer, commits=False).epoch == 4
    assert read(client, T0) == read(client, T1) == [b"0", b"2"]


def test_the_partitions_of_one_request_are_added_at_once(client, served):
    producer = producer_of(client)
    end = served.log("__transaction_state").log_end_offset
    assert produced(client, producer, T0, T1, version=12) == [0, 0]
    assert produced(client, producer, T1, version=12, sequence=1) == [0]
    assert served.log("__transaction_state").log_end_offset == end + 1


def test_plain_batches_of_a_transactional_producer_are_no_part_of_its_transaction(client):
    plain = kstore.MemoryRecordsBuilder()
    plain.append(timestamp_ms=1, key=None, value=b"plain")
    part = ProduceRequest.PartitionProduceData(index=0, records=bytes(plain.build().buffer))
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=[part])]
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=topics)
    assert client.ask(request, version=12).responses[0].partition_responses[0].error_code == 0
    assert read(client, T0) == [b"plain"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param({"of": ""}, 42, id="empty-id"),
        pytest.param({"timeout_ms": 0}, 50, id="no-time"),
        pytest.param({"timeout_ms": 900_001}, 50, id="too-long"),
        pytest.param({"producer_id": 5}, 42, id="id-without-epoch"),
        pytest.param({"epoch": 5}, 42, id="epoch-without-id"),
        pytest.param({"producer_id": 5, "epoch": 5}, 90, id="another-producer"),
        pytest.param({"producer_id": 5, "epoch": 5, "version": 3}, 47, id="another-producer-for-an-old-client"),
    ],
)
def test_a_producer_that_a_broker_does_not_start_is_not_started(client, arguments, code):
    producer_of(client)
    answer = started(client, **arguments)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_the_longest_transaction_is_a_setting(served):
    config = ServerConfig(port=0, max_transaction_timeout_ms=3_600_000)
    with Server(served, config=config) as server, RawClient(server) as client:
        assert started(client, timeout_ms=3_600_000).error_code == 0
        assert started(client, timeout_ms=3_600_001).error_code == 50
        resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
        (found,) = client.ask(DescribeConfigsRequest(resources=[resource]), version=4).results
    assert {one.name: one.value for one in found.configs}["transaction.max.timeout.ms"] == "3600000"
    with pytest.raises(ValueError, match="max_transaction_timeout_ms must be 1 at least"):
        ServerConfig(max_transaction_timeout_ms=0)


def fenced(client):
    old = producer_of(client)
    producer_of(client)
    return old


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (3, 90)])
def test_a_producer_that_was_fenced_hears_it_as_it_knows_it(client, version, code):
    old = fenced(client)
    assert added(client, old, T0, version=version) == [code]
    assert offsets_added(client, old, version=version) == code
    assert ended(client, old, version=version).error_code == code


def test_an_id_or_a_producer_that_nobody_knows_is_refused(client):
    producer_of(client, of="other")
    for of in ("x", "other"):
        assert added(client, NOBODY, T0, of=of) == [49]
        assert offsets_added(client, NOBODY, of=of) == 49
        for version in (4, 5):
            assert ended(client, NOBODY, of=of, version=version).error_code == 49
        for version in (3, 4, 5):
            assert committed_offset(client, NOBODY, of=of, version=version) == 49
        for version in (10, 11, 12):
            assert produced(client, NOBODY, T0, of=of, version=version) == [49]
    assert added(client, NOBODY, T0, of="") == [42]
    assert offsets_added(client, NOBODY, of="") == 42
    assert ended(client, NOBODY, of="").error_code == 42
    listed = client.ask(ListTransactionsRequest(), version=0).transaction_states
    assert [one.transactional_id for one in listed] == ["other"]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_partitions_are_added_all_or_none(client, version):
    producer = producer_of(client)
    assert added(client, producer, T0, ("none", 0), ("t", 7), version=version) == [55, 3, 3]
    assert added(client, producer, T0, ("__consumer_offsets", 0), version=version) == [55, 29]
    assert ended(client, producer).error_code == 48
    assert added(client, producer, T0, T1, version=version) == [0, 0]
    assert produced(client, producer, T0) == [0]
    assert ended(client, producer).error_code == 0


def test_partitions_are_added_to_each_transaction_of_a_request(client):
    producers = {of: producer_of(client, of=of) for of in "ab"}
    transactions = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=of,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch + (of == "b"),
            topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
        )
        for of, producer in producers.items()
    ]
    found = client.ask(AddPartitionsToTxnRequest(transactions=transactions), version=5).results_by_transaction
    codes = {
        one.transactional_id: [part.partition_error_code for part in one.topic_results[0].results_by_partition]
        for one in found
    }
    assert codes == {"a": [0, 0], "b": [90, 90]}


@pytest.mark.parametrize("version", [4, 5])
def test_a_request_may_ask_which_partitions_are_in_a_transaction(client, version):
    def asked(producer, *places, of="x"):
        return added(client, producer, *places, of=of, version=version, verifies=True)

    producer = producer_of(client)
    assert asked(producer, T0) == [120]
    assert added(client, producer, T0) == [0]
    assert asked(producer, T0, T1) == [0, 120]
    assert asked(producer, T0, ("none", 0)) == [55, 3]
    assert asked(producer._replace(epoch=5), T0) == [90]
    assert asked(NOBODY, T0) == asked(producer, T0, of="nobody") == [49]
    assert asked(producer, T0, of="") == [42]
    assert ended(client, producer).error_code == 0
    assert asked(producer, T0) == [120]


def test_a_transaction_ends_only_as_it_can(client):
    producer = producer_of(client)
    for commits in (True, False):
        assert ended(client, producer, commits=commits).error_code == 48
    assert ended(client, producer, version=5).error_code == 48
    assert added(client, producer, T0) == [0]
    assert ended(client, producer).error_code == 0
    assert ended(client, producer, commits=False).error_code == 48
    following = next_of(client, producer, commits=False)
    assert ended(client, producer, version=5).error_code == 48
    assert ended(client, following, version=5).error_code == 48


@pytest.mark.parametrize(("version", "code"), [(9, 48), (10, 48), (11, 120)])
def test_data_that_is_not_in_the_transaction_is_refused(client, served, version, code):
    producer = producer_of(client)
    assert produced(client, producer, T0, version=version) == [code]
    assert added(client, producer, T0) == [0]
    assert produced(client, producer, T0, T1, version=version) == [0, code]
    assert ended(client, producer).error_code == 0
    assert produced(client, producer, T0, version=version, sequence=1) == [code]
    assert read(client, T0) == [b"v"]
    assert served.log(*T1).log_end_offset == 0


@pytest.mark.parametrize("version", [10, 11, 12])
def test_data_of_a_producer_that_was_fenced_is_refused(client, version):
    assert produced(client, fenced(client), T0, version=version) == [47]


@pytest.mark.parametrize("version", [10, 12])
def test_transactional_data_needs_a_transactional_id(client, version):
    producer = producer_of(client)
    assert produced(client, producer, T0, of=None, version=version) == [53]


def test_clients_write_to_no_internal_topic(client, served):
    producer = producer_of(client)
    end = served.log("__transaction_state").log_end_offset
    assert produced(client, producer, ("__transaction_state", 0), ("none", 0), T0, version=12) == [17, 3, 0]
    assert [one.partitions for one in served_states(served)] == [{T0}]
    assert served.log("__transaction_state").log_end_offset == end + 1


def served_states(store):
    return TransactionCoordinator(store).states()


@pytest.mark.parametrize(("version", "code"), [(0, 48), (3, 48), (4, 120)])
def test_offsets_that_are_not_in_the_transaction_are_refused(client, version, code):
    producer = producer_of(client)
    assert committed_offset(client, producer, version=version) == code
    assert offsets_added(client, producer) == 0
    assert committed_offset(client, producer, version=version) == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param({"place": TopicPartition("none", 0)}, 3, id="unknown-topic"),
        pytest.param({"place": TopicPartition("t", 7)}, 3, id="unknown-partition"),
        pytest.param({"metadata": "x" * 4097}, 12, id="metadata"),
        pytest.param({"generation": 1, "member": "nobody"}, 22, id="no-such-group"),
        pytest.param({"group": ""}, 24, id="no-group"),
    ],
)
def test_offsets_that_a_broker_refuses_are_refused_with_its_code(client, arguments, code):
    producer = producer_of(client)
    assert committed_offset(client, producer, **arguments) == code
    ended(client, producer, version=5)
    assert fetched_offset(client, requires_stable=True) == (0, -1)


def test_offsets_of_a_producer_that_was_fenced_are_refused(client):
    old = fenced(client)
    for version in (3, 4, 5):
        assert committed_offset(client, old, version=version) == 47


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_offsets_count_when_their_transaction_is_committed(client, commits):
    producer = producer_of(client)
    assert committed_offset(client, producer) == 0
    assert fetched_offset(client, requires_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetched_offset(client, requires_stable=False) == (0, -1)
    next_of(client, producer, commits=commits)
    assert fetched_offset(client, requires_stable=True) == (0, 7 if commits else -1)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_offsets_of_an_open_transaction_are_held_beside_those_that_are_committed_meanwhile(client, commits):
    producer = producer_of(client)
    assert committed_offset(client, producer) == 0
    everything = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = client.ask(everything, version=8).groups
    assert group.topics == [], "what is only held is not listed"
    assert plainly_committed(client, 3) == 0
    assert fetched_offset(client, requires_stable=False) == (0, 3)
    assert fetched_offset(client, requires_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    next_of(client, producer, commits=commits)
    assert fetched_offset(client, requires_stable=True) == (0, 3), "the later record counts"


def test_a_group_that_has_offsets_in_a_transaction_alone_is_one_after_a_restart(client, served):
    assert committed_offset(client, producer_of(client)) == 0
    with Server(served, config=ServerConfig(port=0)) as again, RawClient(again) as other:
        (group,) = other.ask(ListGroupsRequest(), version=4).groups
        assert (group.group_id, group.group_state) == ("g", "Empty")


def test_this_node_coordinates_transactions(client, served):
    for version in (1, 3):
        found = client.ask(FindCoordinatorRequest(key="x", key_type=1), version=version)
        assert (found.node_id, found.error_code) == (served.meta_properties.node_id, 0)
    (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=1), version=4).coordinators
    assert (found.key, found.error_code) == ("x", 0)
    assert client.ask(FindCoordinatorRequest(key="x", key_type=2), version=3).error_code == 15


def test_producers_and_transactions_are_shown(client):
    producer = producer_of(client, timeout_ms=1234)
    assert produced(client, producer, T0, T1, version=12) == [0, 0]
    asked = [DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 9])]
    (topic,) = client.ask(DescribeProducersRequest(topics=asked), version=0).topics
    there, missing = topic.partitions
    (found,) = there.active_producers
    shown = (found.producer_id, found.producer_epoch, found.last_sequence, found.current_txn_start_offset)
    assert shown == (*producer, 0, 0)
    assert (found.coordinator_epoch, missing.error_code) == (-1, 3)

    request = DescribeTransactionsRequest(transactional_ids=["x", "none", ""])
    open_one, unknown, empty = client.ask(request, version=0).transaction_states
    assert (open_one.transaction_state, open_one.transaction_timeout_ms) == ("Ongoing", 1234)
    assert (open_one.producer_id, open_one.producer_epoch) == producer
    assert open_one.transaction_start_time_ms > 0
    assert [(one.topic, one.partitions) for one in open_one.topics] == [("t", [0, 1])]
    assert (unknown.error_code, empty.error_code) == (105, 42)

    next_of(client, producer)
    (done, *_) = client.ask(request, version=0).transaction_states
    assert (done.transaction_state, done.topics, done.producer_epoch) == ("CompleteCommit", [], 1)
    (topic,) = client.ask(DescribeProducersRequest(topics=asked), version=0).topics
    (found,) = topic.partitions[0].active_producers
    assert (found.producer_epoch, found.coordinator_epoch, found.current_txn_start_offset) == (1, 0, -1)


def test_producers_of_old_records_are_shown_while_their_log_knows_them(client, served):
    builder = kstore.MemoryRecordsBuilder(producer_id=7, producer_epoch=2, base_sequence=0)
    builder.append(timestamp_ms=1_000, value=b"of 1970")
    served.log("t", 0).append(builder.build())
    asked = [DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
    for wanted in ([(7, 2, 0, 1_000)], []):
        (topic,) = client.ask(DescribeProducersRequest(topics=asked), version=0).topics
        found = topic.partitions[0].active_producers
        assert [(one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp) for one in found] == wanted
        served.log("t", 0).remove_expired_producers()


def test_transactions_are_listed_by_state_producer_age_and_name(client):
    producers = {of: producer_of(client, of=of) for of in ("one", "two", "three")}
    assert produced(client, producers["two"], T0, of="two", version=12) == [0]

    def listed(version=2, **filters):
        answer = client.ask(ListTransactionsRequest(**filters), version=version)
        assert answer.error_code == 0
        return {one.transactional_id: one.transaction_state for one in answer.transaction_states}

    assert listed(version=0) == {"one": "Empty", "two": "Ongoing", "three": "Empty"}
    assert listed(state_filters=["Ongoing"]) == {"two": "Ongoing"}
    assert listed(producer_id_filters=[producers["one"].producer_id]) == {"one": "Empty"}
    assert "two" not in listed(duration_filter=FOREVER_MS)
    assert set(listed(transactional_id_pattern="t.*")) == {"two", "three"}
    assert set(listed(transactional_id_pattern="")) == set(producers)
    unknown = client.ask(ListTransactionsRequest(state_filters=["Nowhere"]), version=0)
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Nowhere"], [])
    assert client.ask(ListTransactionsRequest(transactional_id_pattern="("), version=2).error_code == 128


def test_a_transaction_ends_after_the_data_that_is_being_appended_and_holds_up_nobody_else(server, client, served):
    producer = producer_of(client)
    assert produced(client, producer, T0, version=12) == [0]
    coordinator = transactions_of(server).coordinator
    with coordinator.appending(producer, (T0,), transactional_id="x"), RawClient(server) as other:
        request = EndTxnRequest(
            transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
        )
        client.send(request, version=5)
        assert producer_of(other, of="other").epoch == 0
        assert coordinator.state("x").status is TransactionStatus.ONGOING
        served.log(*T0).append(data(producer, sequence=1))
    _, answer = client.receive(26, version=5)
    assert (answer.error_code, answer.producer_epoch) == (0, 1)
    assert read(client, T0) == [b"v", b"v", b"v"]


def test_a_server_that_only_reads_has_no_transactions_and_says_so(served, tmp_path):
    reader = Server(tmp_path / "root", read_only=True, config=ServerConfig(port=0))
    with reader as server, RawClient(server) as client:
        assert started(client).error_code == 15
        assert added(client, NOBODY, T0) == [15]
        assert offsets_added(client, NOBODY) == 15
        assert ended(client, NOBODY).error_code == 15
        assert committed_offset(client, NOBODY) == 15
        request = DescribeTransactionsRequest(transactional_ids=["x"])
        assert client.ask(request, version=0).transaction_states[0].error_code == 15
        assert client.ask(ListTransactionsRequest(), version=0).error_code == 15


def transactions_of(server):
    return server._now()._server._broker.transactions


def test_what_a_crash_left_decided_is_completed_when_the_server_starts(served):
    failing = FailingStore(served)
    coordinator = TransactionCoordinator(failing)
    producer = coordinator.init_producer_id("x")
    coordinator.add_partitions("x", producer, [T0])
    served.log(*T0).append(data(producer))
    failing.left = 1
    with pytest.raises(LogFailedError):
        coordinator.end_transaction("x", producer, is_commit=True, client_version=2)
    log = served.log(*T0)
    with Server(served, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        wait_until(lambda: log.last_stable_offset == log.log_end_offset)
        assert next_of(client, producer).epoch == 1
        assert read(client, T0) == [b"v", b"v"]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_goes_on_after_the_store_was_closed_and_opened(tmp_path, version, commits):
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", partitions=2)
    produce_version, end_version = (11, 4) if version == 1 else (12, 5)
    with Server(tmp_path / "root", config=ServerConfig(port=0)) as server, RawClient(server) as client:
        producer = producer_of(client)
        if version == 1:
            assert added(client, producer, T0) == [0]
        assert produced(client, producer, T0, version=produce_version) == [0]
        assert committed_offset(client, producer) == 0
    with Server(tmp_path / "root", config=ServerConfig(port=0)) as server, RawClient(server) as client:
        assert produced(client, producer, T0, version=produce_version, sequence=1) == [0]
        assert fetched_offset(client, requires_stable=True) == (88, -1)
        assert ended(client, producer, commits=commits, version=end_version).error_code == 0
        assert fetched_offset(client, requires_stable=True) == (0, 7 if commits else -1)
        assert read(client, T0) == ([b"v", b"v"] if commits else [])
    with Server(tmp_path / "root", config=ServerConfig(port=0)) as server, RawClient(server) as client:
        again = ended(client, producer, commits=commits, version=end_version)
        assert (again.error_code, again.producer_epoch) == (0, 1 if version == 2 else -1)


def test_transactions_that_are_open_for_too_long_are_aborted_and_unused_ids_forgotten(served):
    clock = ManualClock()
    with Server(served, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        transactions = transactions_of(server)
        transactions.coordinator._clock = clock
        producer_of(client, of="unused")
        producer = producer_of(client, timeout_ms=500)
        assert produced(client, producer, T0, version=12) == [0]
        clock.now_ms += 500
        transactions.look_after()
        assert transactions.coordinator.state("x").status is TransactionStatus.ONGOING
        clock.now_ms += 1
        transactions.look_after()
        assert produced(client, producer, T0, version=12, sequence=1) == [47]
        assert ended(client, producer).error_code == 90
        assert ended(client, producer, version=5).error_code == 48
        assert next_of(client, producer, commits=False).epoch == 1
        assert (read(client, T0), served.log(*T0).last_stable_offset) == ([], 2)
        clock.now_ms += 7 * 24 * 60 * 60 * 1000 - 501
        transactions.look_after()
        listed = client.ask(ListTransactionsRequest(), version=0).transaction_states
        assert [one.transactional_id for one in listed] == ["x"]
        assert producer_of(client, of="unused").epoch == 0
