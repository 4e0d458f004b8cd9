"""Cluster: what a replay asks a cluster that runs, by confluent-kafka, which is imported here and where it is used."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from kstore._core import Record
from kstore.env.process import SYSTEM_CLOCK, SystemClock
from kstore.errors import ReplayError
from kstore.types import TimestampType, TopicPartition

_Answer = TypeVar("_Answer")

# Messages of librdkafka; what ends a replay is in its error.
CLIENT_LOGGER = "kstore.replaying.client"
MOST_QUEUED_RECORDS = 100_000
_MOST_QUEUED_KBYTES = 64 << 10
_GROUP_OF_READS = "kstore-replay"
# No gaps: after a batch that was refused nothing of its partition is sent, and what was on its way is refused by its
# sequence. Records have no timeout of their own, which would leave a gap: the replay ends if nothing is acknowledged.
_OF_PRODUCER: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "message.timeout.ms": 0,
}
_DEFAULTS_OF_PRODUCER: Mapping[str, Any] = {
    # A record of any size is the brokers' to refuse; batches are at most batch.size.
    "message.max.bytes": _MOST_QUEUED_KBYTES << 10,
    "linger.ms": 5,
    "queue.buffering.max.messages": MOST_QUEUED_RECORDS,
    "queue.buffering.max.kbytes": _MOST_QUEUED_KBYTES,
}
# Other names of settings that a replay makes, and settings that would break its promises.
_RESERVED = frozenset(
    {
        *_OF_PRODUCER,
        "request.required.acks",
        "delivery.timeout.ms",
        "delivery.report.only.error",
        "transactional.id",
        "bootstrap.servers",
        "metadata.broker.list",
        "group.id",
    }
)
_SERVERS = re.compile(r"[!-+\--~]+:[0-9]{1,5}(, ?[!-+\--~]+:[0-9]{1,5})*")
_NO_TOPIC_ID = "A" * 22
_TIMESTAMP_TYPE = "message.timestamp.type"
# What MirrorMaker 2 does not carry over either (DefaultConfigPropertyFilter): bounds and types that would change
# timestamps or refuse them, and what is about the replicas of one cluster.
_NOT_CARRIED = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
    _TIMESTAMP_TYPE,
    "min.insync.replicas",
    "unclean.leader.election.enable",
)
_LOOK_AGAIN_MS = 50
# Kafka's codes of answers that may be others soon: no leader yet, or no longer; a coordinator that loads or moves.
_ANSWERED_LATER = frozenset({5, 6, 14, 15, 16, 74, 75, 76})
_IDLE_STATES = frozenset({"EMPTY", "DEAD", "UNKNOWN"})


class TargetTopic(NamedTuple):
    """A topic of a cluster. topic_id: as Kafka writes it, None of a broker that has no ids."""

    topic_id: str | None
    partition_count: int


def check_client(client: Mapping[str, Any]) -> None:
    """Raise ValueError for settings of librdkafka that a replay makes itself, and for what is no text."""
    for text in (text for pair in client.items() for text in pair if isinstance(text, str)):
        _check_text(text)
    if taken := sorted(_RESERVED & client.keys()):
        raise ValueError(f"a replay sets {', '.join(taken)} itself")


def check_bootstrap(bootstrap_servers: str) -> None:
    """Raise ValueError unless these are names of brokers with ports."""
    if _SERVERS.fullmatch(bootstrap_servers) is None:
        raise ValueError(f"bootstrap_servers must be HOST:PORT, several with commas, got {bootstrap_servers!r:.80}")


def _check_text(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" or character == "\0" for character in text):
        raise ValueError(f"settings of librdkafka must be text, got {text!r:.80}")


class Cluster:
    """A cluster, by its bootstrap servers.

    Args: client: settings of librdkafka for all of its clients, as those of security; timeout_s: of each request.
    Raises: ModuleNotFoundError without confluent-kafka; ValueError for settings that librdkafka refuses; from every
        method ReplayError if the cluster does not answer, or refuses.
    Attributes: client_error: the class of librdkafka's exceptions; last_error: what it said last of its connections.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client: Mapping[str, Any],
        *,
        timeout_s: float,
        clock: SystemClock = SYSTEM_CLOCK,
    ) -> None:
        try:
            import confluent_kafka
        except ModuleNotFoundError as error:
            message = f"a replay needs the package {error.name}: pip install 'kstore[replay]'"
            raise ModuleNotFoundError(message, name=None) from error
        self._client: Any = confluent_kafka
        self.client_error = confluent_kafka.KafkaException
        self.bootstrap_servers = bootstrap_servers
        self.last_error: str | None = None
        self._timeout_s = timeout_s
        self._clock = clock
        self._settings: dict[str, Any] = {**client, "bootstrap.servers": bootstrap_servers, "error_cb": self._note}
        self._logger = logging.getLogger(CLIENT_LOGGER)
        self._logger.addFilter(_is_no_remark)
        self._admin = self._made(self._new_admin)

    def _note(self, error: Any) -> None:
        self.last_error = error.str()

    def _made(self, make: Callable[[], _Answer]) -> _Answer:
        try:
            return make()
        except self._client.KafkaException as error:
            raise ValueError(f"librdkafka refuses its settings: {error.args[0].str()}") from error

    def _new_admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self._settings, logger=self._logger)

    def producer(self) -> Any:
        """Return a producer that is idempotent, writes with acks=all, and sends nothing after a batch that failed."""
        settings = {**_DEFAULTS_OF_PRODUCER, **self._settings, **_OF_PRODUCER}
        return self._made(lambda: self._client.Producer(settings, logger=self._logger))

    def cluster_id(self) -> str | None:
        """Return the id of the cluster."""
        described = self._answer(
            lambda: {None: self._admin.describe_cluster(request_timeout=self._timeout_s)}, "describe the cluster"
        )
        found: str | None = described.cluster_id
        return found

    def topics(self, names: Collection[str]) -> dict[str, TargetTopic]:
        """Return those of some topics that there are."""
        if not names:
            return {}
        asked = self._client.TopicCollection(sorted(names))
        found = {}
        for name, future in self._admin.describe_topics(asked, request_timeout=self._timeout_s).items():
            try:
                topic = future.result()
            except self._client.KafkaException as error:
                if error.args[0].code() == self._client.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self.error(error.args[0], f"describe topic {name}") from error
            topic_id = str(topic.topic_id)
            found[name] = TargetTopic(None if topic_id == _NO_TOPIC_ID else topic_id, len(topic.partitions))
        return found

    def topics_with(self, counts: Mapping[str, int]) -> dict[str, TargetTopic]:
        """Return topics that were just made once they have so many partitions, by all that the cluster shows.

        Raises: ReplayError if it takes longer than a request may.
        """
        until_ms = self._clock.monotonic_ms() + 1000 * self._timeout_s
        while self._clock.monotonic_ms() < until_ms:
            topics = self.topics(counts)
            if all(name in topics and topics[name].partition_count >= count for name, count in counts.items()):
                return topics
            self._clock.sleep_ms(_LOOK_AGAIN_MS)
        raise ReplayError(f"{self.bootstrap_servers} does not show {', '.join(counts)}, which it has made")

    def create_topic(self, name: str, partition_count: int, settings: Mapping[str, str]) -> None:
        """Create a topic with the brokers' replication factor, and those settings of a source that may be carried."""
        carried = {key: value for key, value in settings.items() if key not in _NOT_CARRIED}
        new = self._client.admin.NewTopic(name, partition_count, -1, config=carried)
        self._answer(
            lambda: self._admin.create_topics([new], operation_timeout=self._timeout_s), f"create topic {name}"
        )

    def add_partitions(self, name: str, partition_count: int) -> None:
        """Add partitions to a topic until there are so many."""
        new = self._client.admin.NewPartitions(name, partition_count)
        self._answer(
            lambda: self._admin.create_partitions([new], operation_timeout=self._timeout_s),
            f"add partitions to topic {name}",
        )

    def check_keeps_timestamps(self, names: Collection[str]) -> None:
        """Raise ReplayError for a topic whose brokers would replace the timestamps of records."""
        for name in sorted(names):
            self._check_keeps_timestamps(name)

    def _check_keeps_timestamps(self, name: str) -> None:
        resource = self._client.admin.ConfigResource("topic", name)
        settings = self._answer(lambda: self._admin.describe_configs([resource]), f"read the settings of topic {name}")
        entry = settings.get(_TIMESTAMP_TYPE)
        if entry is not None and entry.value == "LogAppendTime":
            raise ReplayError(
                f"topic {name} of {self.bootstrap_servers} has {_TIMESTAMP_TYPE} LogAppendTime: its brokers would "
                "replace the timestamps of the records by the time at which they arrive"
            )

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions end."""
        latest = self._client.admin.OffsetSpec.latest()
        return {place: self._end_offset(place, latest) for place in sorted(partitions)}

    def _end_offset(self, place: TopicPartition, latest: Any) -> int:
        asked = {self._client.TopicPartition(*place): latest}
        found = self._answer(
            lambda: self._admin.list_offsets(asked, request_timeout=self._timeout_s), f"find the end of {place}"
        )
        end: int = found.offset
        return end

    def records(self, place: TopicPartition, *, start_offset: int, end_offset: int) -> Iterator[Record]:
        """Yield the records of a partition with offsets of [start_offset, end_offset), those of transactions that were
        aborted too. What was deleted there since is left out.
        """
        if start_offset >= end_offset:
            return
        settings = {
            **self._settings,
            "group.id": _GROUP_OF_READS,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "earliest",
        }
        consumer = self._made(lambda: self._client.Consumer(settings, logger=self._logger))
        try:
            consumer.assign([self._client.TopicPartition(*place, start_offset)])
            yield from self._read(consumer, place, end_offset)
        finally:
            consumer.close()

    def _read(self, consumer: Any, place: TopicPartition, end_offset: int) -> Iterator[Record]:
        while True:
            message = consumer.poll(self._timeout_s)
            if message is None:
                raise ReplayError(f"{self.bootstrap_servers} gave no record of {place}{self.because()}")
            error = message.error()
            if error is not None and error.code() != self._client.KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name
                raise self.error(error, f"read {place}")
            offset = message.offset()
            if error is None and offset is not None and offset < end_offset:
                yield _record_of(message)
            if offset is None or offset >= end_offset - (error is None):
                return

    def idle_groups(self, groups: Collection[str]) -> set[str]:
        """Return those of some groups that have no members in the cluster, or are not there at all."""
        return {name for name in groups if self._is_idle(name)}

    def _is_idle(self, group: str) -> bool:
        try:
            found = self._answer(
                lambda: self._admin.describe_consumer_groups([group], request_timeout=self._timeout_s),
                f"describe group {group}",
            )
        except ReplayError as error:
            if error.kafka_code == self._client.KafkaError.GROUP_ID_NOT_FOUND:
                return True
            raise
        return found.state.name in _IDLE_STATES

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed in the cluster."""
        asked = self._client.ConsumerGroupTopicPartitions(group)
        try:
            found = self._answer(
                lambda: self._admin.list_consumer_group_offsets([asked], request_timeout=self._timeout_s),
                f"read the offsets of group {group}",
            )
        except ReplayError as error:
            if error.kafka_code == self._client.KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found.topic_partitions or ()
            if each.offset >= 0
        }

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Commit offsets of a group without members, without metadata, to which confluent-kafka would append a NUL;
        return why the cluster refused some of them.
        """
        places = [self._client.TopicPartition(*place, offset) for place, offset in offsets.items()]
        asked = self._client.ConsumerGroupTopicPartitions(group, places)
        done = self._answer(
            lambda: self._admin.alter_consumer_group_offsets([asked], request_timeout=self._timeout_s),
            f"commit the offsets of group {group}",
        )
        return {
            TopicPartition(each.topic, each.partition): each.error.str()
            for each in done.topic_partitions or ()
            if each.error is not None
        }

    def error(self, error: Any, action: str) -> ReplayError:
        """Return the error for one of librdkafka."""
        code = error.code()
        return ReplayError(
            f"{self.bootstrap_servers} did not {action}: {error.str()}{'' if code > 0 else self.because()}",
            kafka_code=code if code > 0 else None,
        )

    def because(self) -> str:
        """Return what librdkafka said last of its connections, for the end of a message."""
        return "" if self.last_error is None else f" ({self.last_error})"

    def _answer(self, ask: Callable[[], Mapping[Any, Any]], action: str) -> Any:
        """Return the answer to a request about one thing; ask again as long as a request may take, if the cluster says
        that it may have one later, as of a topic that has no leader yet. What the cluster said last is the error, not
        that the time for the next request was too short.
        """
        until_ms = self._clock.monotonic_ms() + 1000 * self._timeout_s
        answered = None
        while True:
            (future,) = ask().values()
            try:
                return future.result()
            except self._client.KafkaException as error:
                found = error.args[0]
                if found.code() not in _ANSWERED_LATER:
                    timed_out = found.code() == self._client.KafkaError._TIMED_OUT  # noqa: SLF001  # its name
                    raise self.error(answered if timed_out and answered else found, action) from error
                answered = found
                if self._clock.monotonic_ms() >= until_ms:
                    raise self.error(found, action) from error
            self._clock.sleep_ms(_LOOK_AGAIN_MS)


def _is_no_remark(record: logging.LogRecord) -> bool:
    """Whether a message of librdkafka is about more than settings that only one of its clients has."""
    return not record.getMessage().startswith("CONFWARN")


def _record_of(message: Any) -> Record:
    kind, timestamp_ms = message.timestamp()
    return Record(
        offset=message.offset(),
        timestamp_ms=timestamp_ms,
        timestamp_type=TimestampType.LOG_APPEND_TIME if kind == 2 else TimestampType.CREATE_TIME,
        key=message.key(),
        value=message.value(),
        headers=message.headers() or (),
    )
