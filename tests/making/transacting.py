"""What transactional producers of both versions ask a server, or a broker, and what they are told."""

from __future__ import annotations

import kstore
from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.types import TopicPartition
from kstore.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from tests.making.transactions import data

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOBODY = ProducerIdAndEpoch(12345, 0)
FOREVER_MS = 60_000
ADD_SEVERAL_VERSION = 4


def started(client, *, of="x", timeout_ms=FOREVER_MS, version=5, producer_id=-1, epoch=-1):
    """The answer to InitProducerId."""
    request = InitProducerIdRequest(
        transactional_id=of, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
    )
    return client.ask(request, version=version)


def producer_of(client, *, of="x", **arguments):
    answer = started(client, of=of, **arguments)
    assert answer.error_code == 0
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def added(client, producer, *places, of="x", version=3, verifies=False):
    """The code of each partition."""
    topics = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[number]) for topic, number in places
    ]
    if version < ADD_SEVERAL_VERSION:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=of,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
        results = client.ask(request, version=version).results_by_topic_v3_and_below
    else:
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=of,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verifies,
            topics=topics,
        )
        answer = client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version=version)
        assert answer.error_code == 0
        assert [one.transactional_id for one in answer.results_by_transaction] == [of]
        results = answer.results_by_transaction[0].topic_results
    return [one.partition_error_code for topic in results for one in topic.results_by_partition]


def offsets_added(client, producer, *, of="x", version=3, group="g"):
    request = AddOffsetsToTxnRequest(
        transactional_id=of, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id=group
    )
    return client.ask(request, version=version).error_code


def produced(client, producer, *places, of="x", version=11, sequence=0, value=b"v"):
    """The code of each partition."""
    parts = [
        ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[
                ProduceRequest.PartitionProduceData(
                    index=number, records=bytes(data(producer, sequence=sequence, count=1, value=value).buffer)
                )
            ],
        )
        for topic, number in places
    ]
    request = ProduceRequest(transactional_id=of, acks=-1, timeout_ms=1000, topic_data=parts)
    answer = client.ask(request, version=version)
    return [one.error_code for topic in answer.responses for one in topic.partition_responses]


def ended(client, producer, *, commits=True, of="x", version=4):
    """The answer to EndTxn."""
    request = EndTxnRequest(
        transactional_id=of, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=commits
    )
    return client.ask(request, version=version)


def next_of(client, producer, *, commits=True, of="x"):
    """The producer that goes on after a transaction of version 2."""
    answer = ended(client, producer, commits=commits, of=of, version=5)
    assert answer.error_code == 0
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def committed_offset(
    client, producer, *, of="x", version=5, place=T0, group="g", member="", generation=-1, metadata="", offset=7
):
    """The code of TxnOffsetCommit."""
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=place.partition, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id=of,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=generation,
        member_id=member,
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=place.topic, partitions=[part])],
    )
    (topic,) = client.ask(request, version=version).topics
    return topic.partitions[0].error_code


def plainly_committed(client, offset):
    """The code of OffsetCommit."""
    kinds = OffsetCommitRequest
    part = kinds.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [kinds.OffsetCommitRequestTopic(name="t", partitions=[part])]
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    (topic,) = client.ask(request, version=9).topics
    return topic.partitions[0].error_code


def fetched_offset(client, *, requires_stable):
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)
    (group,) = client.ask(OffsetFetchRequest(groups=[asked], require_stable=requires_stable), version=8).groups
    found = group.topics[0].partitions[0]
    return found.error_code, found.committed_offset


def read(client, place):
    """The values that a reader of committed records gets."""
    values, offset, stable = [], 0, 1
    while offset < stable:
        part = FetchRequest.FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic=place.topic, partitions=[part])]
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, isolation_level=1, topics=topics)
        found = client.ask(request, version=12).responses[0].partitions[0]
        aborted: dict[int, list[int]] = {}
        for one in found.aborted_transactions or ():
            aborted[one.producer_id] = sorted([*aborted.get(one.producer_id, ()), one.first_offset])
        stable = found.last_stable_offset
        assert found.records or offset == stable
        for batch in kstore.MemoryRecords(bytes(found.records or b"")).batches():
            header, offset = batch.header, batch.header.last_offset + 1
            firsts = aborted.get(header.producer_id, ())
            is_aborted = bool(firsts) and firsts[0] <= header.base_offset
            if header.is_control and is_aborted:
                firsts.pop(0)
            elif not header.is_control and not is_aborted:
                values += [record.value for record in batch.records()]
    return values
