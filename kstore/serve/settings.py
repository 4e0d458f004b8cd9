"""The settings that a server shows of itself and its topics, by Kafka's names, types, defaults and sources."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from kstore.config import LogConfig
from kstore.coordinator.group.offsets import MAX_METADATA_BYTES
from kstore.serve.config import ServerConfig
from kstore.store.settings.kafka_names import TOPIC_SETTINGS_BY_NAME, parse_name, parse_setting, setting_text


class SettingType(IntEnum):
    """The type of a setting's value (Kafka: ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class SettingSource(IntEnum):
    """Who gives a value (Kafka: DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Definition(NamedTuple):
    """A setting, with the default of Kafka 4.1.

    broker_name: of the broker's setting by which the topics go that do not have their own, None if there is none.
    """

    name: str
    type: SettingType
    default: str
    broker_name: str | None
    documentation: str


class Synonym(NamedTuple):
    """A setting of the server or the topic that says a value, the first of several counts."""

    name: str
    value: str
    source: SettingSource


class Shown(NamedTuple):
    """A setting with its value and those that say one."""

    definition: Definition
    value: str
    source: SettingSource
    synonyms: tuple[Synonym, ...]


_NEVER = str(2**63 - 1)
_B, _S, _I, _L, _D, _LIST = SettingType
TOPIC_DEFINITIONS: tuple[Definition, ...] = (
    Definition("cleanup.policy", _LIST, "delete", "log.cleanup.policy", "Whether old records are deleted, compacted."),
    Definition("compression.gzip.level", _I, "-1", "compression.gzip.level", "The level of gzip."),
    Definition("compression.lz4.level", _I, "9", "compression.lz4.level", "The level of lz4."),
    Definition("compression.type", _S, "producer", "compression.type", "The codec of batches; the producer's own."),
    Definition("compression.zstd.level", _I, "3", "compression.zstd.level", "The level of zstd."),
    Definition(
        "delete.retention.ms",
        _L,
        "86400000",
        "log.cleaner.delete.retention.ms",
        "How long compaction keeps tombstones.",
    ),
    Definition(
        "file.delete.delay.ms", _L, "60000", "log.segment.delete.delay.ms", "How long a removed file stays on the disk."
    ),
    Definition("flush.messages", _L, _NEVER, "log.flush.interval.messages", "After how many records a log is synced."),
    Definition("flush.ms", _L, _NEVER, "log.flush.interval.ms", "After how long a log is synced."),
    Definition("follower.replication.throttled.replicas", _LIST, "", None, "Replicas that follow at a limited rate."),
    Definition(
        "index.interval.bytes", _I, "4096", "log.index.interval.bytes", "The bytes between entries of an index."
    ),
    Definition("leader.replication.throttled.replicas", _LIST, "", None, "Replicas that are fed at a limited rate."),
    Definition("local.retention.bytes", _L, "-2", "log.local.retention.bytes", "Of a topic in tiers: its local bytes."),
    Definition("local.retention.ms", _L, "-2", "log.local.retention.ms", "Of a topic in tiers: its local time."),
    Definition(
        "max.compaction.lag.ms", _L, _NEVER, "log.cleaner.max.compaction.lag.ms", "When a record is compacted at last."
    ),
    Definition("max.message.bytes", _I, "1048588", "message.max.bytes", "The largest batch of records."),
    Definition(
        "message.timestamp.after.max.ms",
        _L,
        "3600000",
        "log.message.timestamp.after.max.ms",
        "How far the time of a record may be ahead of the server's.",
    ),
    Definition(
        "message.timestamp.before.max.ms",
        _L,
        _NEVER,
        "log.message.timestamp.before.max.ms",
        "How far the time of a record may be behind the server's.",
    ),
    Definition("message.timestamp.type", _S, "CreateTime", "log.message.timestamp.type", "Whose time a record has."),
    Definition(
        "min.cleanable.dirty.ratio",
        _D,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        "The part of a log that is not compacted from which on it is.",
    ),
    Definition(
        "min.compaction.lag.ms", _L, "0", "log.cleaner.min.compaction.lag.ms", "How old a record is that is compacted."
    ),
    Definition("min.insync.replicas", _I, "1", "min.insync.replicas", "The replicas that acks=all waits for."),
    Definition("preallocate", _B, "false", "log.preallocate", "Whether a segment takes its whole size at once."),
    Definition("remote.log.copy.disable", _B, "false", None, "Whether nothing more is copied to remote storage."),
    Definition("remote.log.delete.on.disable", _B, "false", None, "Whether remote segments go with remote storage."),
    Definition("remote.storage.enable", _B, "false", None, "Whether segments are copied to remote storage."),
    Definition("retention.bytes", _L, "-1", "log.retention.bytes", "The bytes of a log, without limit if -1."),
    Definition("retention.ms", _L, "604800000", "log.retention.ms", "How long records are kept, always if -1."),
    Definition("segment.bytes", _I, "1073741824", "log.segment.bytes", "The size at which a segment is full."),
    Definition(
        "segment.index.bytes", _I, "10485760", "log.index.size.max.bytes", "The size at which an index is full."
    ),
    Definition("segment.jitter.ms", _L, "0", "log.roll.jitter.ms", "How much sooner a segment may end."),
    Definition("segment.ms", _L, "604800000", "log.roll.ms", "After how long a segment is full."),
    Definition(
        "unclean.leader.election.enable",
        _B,
        "false",
        "unclean.leader.election.enable",
        "Whether a replica may lead that does not have all records.",
    ),
)
# In Kafka another setting of the broker has the default, as log.retention.hours.
_WITHOUT_DEFAULT = frozenset(
    {
        "broker.id",
        "log.dirs",
        "log.flush.interval.ms",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "node.id",
    }
)
_BY_NAME = {definition.name: definition for definition in TOPIC_DEFINITIONS}


def shown_settings(
    config: LogConfig, *, default: LogConfig, given: Container[str], texts: Mapping[str, str] | None = None
) -> list[Shown]:
    """Return the settings of a topic, by their names.

    Args: default: of the server; given: the names of LogConfig of what is the topic's own also where it is the
        default; texts: settings by Kafka's names that count in place of those of config.
    Source: Kafka ConfigHelper.createTopicConfigEntry.
    """
    shown = []
    for definition in TOPIC_DEFINITIONS:
        field = TOPIC_SETTINGS_BY_NAME.get(definition.name)
        of_server, own = definition.default, (texts or {}).get(definition.name)
        if field is not None:
            of_server = setting_text(getattr(default, field))
            of_topic = setting_text(getattr(config, field))
            own = of_topic if own is None and (field in given or of_topic != of_server) else own
        shown.append(_shown(definition, own, of_server))
    return shown


def _shown(definition: Definition, own: str | None, of_server: str) -> Shown:
    name = definition.name
    synonyms = [] if own is None else [Synonym(name, own, SettingSource.TOPIC)]
    synonyms += _of_server(definition, of_server)
    return _first_of(definition, of_server if own is None else own, synonyms)


def _of_server(definition: Definition, value: str) -> Iterator[Synonym]:
    """Yield the settings of a broker that say a value."""
    name, default = definition.broker_name, definition.default
    if name is None:
        return
    if value != default:
        yield Synonym(name, value, SettingSource.STATIC_BROKER)
    if name not in _WITHOUT_DEFAULT:
        yield Synonym(name, default, SettingSource.DEFAULT)


def _first_of(definition: Definition, value: str, synonyms: Iterable[Synonym]) -> Shown:
    said_by = tuple(synonyms)
    return Shown(definition, value, said_by[0].source if said_by else SettingSource.DEFAULT, said_by)


def shown_server_settings(config: ServerConfig, *, default: LogConfig, node_id: int, root: str) -> list[Shown]:
    """Return the settings of a server, by the names of a broker's.

    Args: default: of topics that say nothing.
    Source: Kafka ConfigHelper.createBrokerConfigEntry.
    """
    groups, consumers = config.groups, config.consumer_groups
    own = [
        ("auto.create.topics.enable", _B, config.creates_topics, "true", "Whether asking for a topic makes it."),
        ("broker.id", _I, node_id, "", "The id of this node, by its older name."),
        ("default.replication.factor", _I, 1, "1", "The replicas of a topic that does not say it."),
        ("delete.topic.enable", _B, True, "true", "Whether topics can be deleted."),
        ("fetch.max.bytes", _I, config.most_fetch_bytes, "57671680", "The bytes of an answer with records."),
        (
            "group.consumer.heartbeat.interval.ms",
            _I,
            consumers.heartbeat_interval_ms,
            "5000",
            "How often a member of a group of KIP-848 says something.",
        ),
        ("group.consumer.max.size", _I, consumers.max_size, "2147483647", "The members of a group of KIP-848."),
        (
            "group.consumer.session.timeout.ms",
            _I,
            consumers.session_timeout_ms,
            "45000",
            "How long a member of a group of KIP-848 may say nothing.",
        ),
        (
            "group.initial.rebalance.delay.ms",
            _I,
            groups.initial_rebalance_delay_ms,
            "3000",
            "How long an empty group waits for more members.",
        ),
        ("group.max.session.timeout.ms", _I, groups.max_session_timeout_ms, "1800000", "The longest session."),
        ("group.max.size", _I, groups.max_size, "2147483647", "The members of a group."),
        ("group.min.session.timeout.ms", _I, groups.min_session_timeout_ms, "6000", "The shortest session."),
        ("log.dirs", _S, root, "", "The directory of the topics."),
        ("node.id", _I, node_id, "", "The id of this node."),
        ("num.partitions", _I, config.partitions, "1", "The partitions of a topic that does not say it."),
        ("offset.metadata.max.bytes", _I, MAX_METADATA_BYTES, "4096", "The text beside a committed offset."),
        ("queued.max.request.bytes", _L, config.most_held_bytes, "-1", "The bytes of requests that are held."),
        ("socket.request.max.bytes", _I, config.most_request_bytes, "104857600", "The bytes of a request."),
        ("transaction.max.timeout.ms", _I, config.max_transaction_timeout_ms, "900000", "The longest transaction."),
        (
            "transactional.id.expiration.ms",
            _I,
            config.transactional_id_expiration_ms,
            "604800000",
            "How long an unused transactional id is known.",
        ),
    ]
    shown = [(Definition(name, type_, said, name, text), setting_text(value)) for name, type_, value, said, text in own]
    for definition in TOPIC_DEFINITIONS:
        if definition.broker_name is not None:
            field = TOPIC_SETTINGS_BY_NAME.get(definition.name)
            value = definition.default if field is None else setting_text(getattr(default, field))
            shown.append((definition._replace(name=definition.broker_name), value))
    return sorted(_first_of(definition, value, _of_server(definition, value)) for definition, value in shown)


def is_list(name: str) -> bool:
    """Whether a value of the setting is a list, to which one can be appended."""
    definition = _BY_NAME.get(name)
    return definition is not None and definition.type is SettingType.LIST


def parsed_settings(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return settings of a topic by the names of LogConfig, of those by Kafka's names that are given.

    A setting that kstore has no use for may have Kafka's default, which is what holds.
    Raises: ValueError for another value of it, for an unknown name and a text that is no value of its type.
    """
    parsed = {}
    for name, text in texts.items():
        definition = _BY_NAME.get(name)
        is_default = definition is not None and text.strip() == definition.default
        if name in TOPIC_SETTINGS_BY_NAME:
            field, value = parse_setting(name, text)
            parsed[field] = value
        elif not is_default:
            parse_name(name)
    return parsed
