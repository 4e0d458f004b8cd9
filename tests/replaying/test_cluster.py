"""Goal: librdkafka sends nothing of a partition after a batch that failed; answers that change soon are waited for.
Method: the producer alone, which nobody stops, against kstore's own server; answers that are errors."""

from __future__ import annotations

from contextlib import suppress

import confluent_kafka
import pytest

import kstore
from kstore.env.process import SYSTEM_CLOCK, SystemClock
from kstore.replaying.cluster import Cluster
from kstore.replaying.sending import Sender
from kstore.testing import KafkaServer
from kstore.types import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster(cluster: KafkaServer) -> KafkaServer:
    cluster.create_topic("t", 1)
    return cluster


def test_nothing_of_a_partition_is_written_after_a_batch_that_failed(cluster: KafkaServer) -> None:
    client = {"batch.num.messages": 3, "linger.ms": 50}
    producer = Cluster(cluster.bootstrap_servers, client, timeout_s=20).producer()
    codes: list[int | None] = []

    def report(error: confluent_kafka.KafkaError | None, _: object) -> None:
        codes.append(None if error is None else error.code())

    for first, end in ((0, 1), (1, 31)):
        for number in range(first, end):
            producer.produce("t", b"%d" % number, partition=0, on_delivery=report)
        while len(codes) < first + 1:
            with suppress(confluent_kafka.KafkaException):  # the fatal error; the reports come after it
                producer.poll(0.05)
        cluster.fail_next("Produce", "INVALID_RECORD")
    with pytest.raises(confluent_kafka.KafkaException, match="Fatal error"):
        producer.produce("t", b"after it", partition=0)
    producer.purge()
    assert [record.value for record in cluster.records("t")] == [b"0"]
    while len(codes) < 31:
        with suppress(confluent_kafka.KafkaException):
            producer.poll(0.05)
    # librdkafka may report the batch that failed after others, which it drops from its queue.
    assert codes[0] is None
    assert 87 in codes[1:]
    assert None not in codes[1:]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_an_answer_that_will_be_another_soon_is_waited_for(cluster: KafkaServer, api: str, code: str) -> None:
    asked = Cluster(cluster.bootstrap_servers, {}, timeout_s=20)
    cluster.fail_next(api, code, times=3)
    assert asked.end_offsets([T0]) == {T0: 0}
    assert asked.committed("g") == {}
    assert asked.idle_groups(["g"]) == {"g"}


class SleptClock(SystemClock):
    """Time passes only by sleeping, 100 times as fast."""

    def __init__(self) -> None:
        self._now_ms = 0.0

    def monotonic_ms(self) -> int:
        return int(self._now_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self._now_ms += 100 * duration_ms


def test_an_answer_that_stays_is_an_error(cluster: KafkaServer) -> None:
    """The first request of a client of librdkafka 2.16 may take 3 s: it can be lost with the bootstrap connection."""
    asked = Cluster(cluster.bootstrap_servers, {}, timeout_s=20, clock=SleptClock())
    cluster.fail_next("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=1000)
    with pytest.raises(kstore.ReplayError, match="did not find the end of t-0: Broker: Not leader") as caught:
        asked.end_offsets([T0])
    assert caught.value.kafka_code == 6


class Answering:
    """Futures of librdkafka whose errors are given: each request fails with the next one."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)

    def ask(self) -> dict[None, Answering]:
        return {None: self}

    def result(self) -> None:
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(self._codes.pop(0)))


@pytest.mark.parametrize(("codes", "reported"), [((6, 5, -185), 5), ((-185,), None), ((6, -195), None), ((5, 29), 29)])
def test_the_error_is_what_the_cluster_said_last_and_not_that_asking_again_took_too_long(
    cluster: KafkaServer, codes: tuple[int, ...], reported: int | None
) -> None:
    asked = Cluster(cluster.bootstrap_servers, {}, timeout_s=60)
    with pytest.raises(kstore.ReplayError) as caught:
        asked._answer(Answering(*codes).ask, "do it")
    assert caught.value.kafka_code == reported


class Losing:
    """A producer whose poll lost what a signal handler raised, as confluent-kafka 2.16 does now and then."""

    def poll(self, _: float) -> int:
        raise SystemError("returned NULL without setting an exception")


def test_an_interrupt_that_poll_loses_is_raised(cluster: KafkaServer) -> None:
    bounds = {"records_per_s": None, "bytes_per_s": None}
    sender = Sender(
        Cluster(cluster.bootstrap_servers, {}, timeout_s=20), [], **bounds, timeout_s=20, clock=SYSTEM_CLOCK
    )
    sender._producer = Losing()
    with pytest.raises(KeyboardInterrupt):
        sender.poll(0)
