"""MetadataImage: the state of a KRaft cluster that the records of `__cluster_metadata` add up to.

Fields have the names of Kafka's records. Secrets are left out when a record is taken: the salt and keys of SCRAM
credentials are in no image. Settings may hold secrets: a caller that shows them has to leave those out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kstore.errors import InvalidRecordError
from kstore.record.control import ControlRecordValue
from kstore.record.kraft import KRaftVersionRecord, VotersRecord
from kstore.record.schemas.topics import DecodedMessage, UndecodedMessage

TOPIC_RESOURCE = 2
METADATA_VERSION = "metadata.version"
MOST_UNKNOWN = 1000
# A PartitionChangeRecord without a leader leaves the leader as it is.
_NO_LEADER_CHANGE = -2
_NO_RECOVERY_CHANGE = -1
# DirectoryId.MIGRATING: what replicas have whose record has no directories (before KIP-858).
_MIGRATING = UUID(int=0)
_SECRETS = ("salt", "storedKey", "serverKey")

ConfigResource = tuple[int, str]
QuotaEntity = tuple[tuple[str, str | None], ...]


@dataclass(kw_only=True)
class PartitionState:
    """What the controller says of a partition (Kafka: PartitionRegistration)."""

    replicas: list[int]
    directories: list[UUID]
    isr: list[int]
    removing_replicas: list[int]
    adding_replicas: list[int]
    elr: list[int]
    last_known_elr: list[int]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int


@dataclass
class TopicState:
    """A topic of the cluster and its partitions by number."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionState] = field(default_factory=dict)


class UnknownRecord(NamedTuple):
    """A record that this version of kstore does not know; data is its whole value."""

    offset: int
    type_id: int | None
    version: int | None
    data: bytes | None
    reason: str


@dataclass(kw_only=True)
class MetadataImage:
    """The state of a cluster (Kafka: MetadataImage, and what its log and snapshots say of the quorum).

    features: levels by name, with metadata.version. topics: by id. configs: by resource (type, name; name "" for the
    default of all) and name. brokers, controllers: fields of their registrations by id. quotas: values by entity, the
    sorted pairs of type and name (None for the default), and key. scram: iterations by (mechanism, user). acls: by id.
    tokens: delegation tokens by id. kraft_version: None if no record says it. voters: None if no record names them, as
    with controller.quorum.voters. unknown: the first MOST_UNKNOWN records of unknown type or version, and the first of
    each type; unknown_count: how many there were. problems: the first MOST_UNKNOWN records that did not fit the state
    before them, in words; they changed nothing.
    Threads: not safe.  Source: Kafka MetadataDelta and the deltas of its parts.
    """

    features: dict[str, int] = field(default_factory=dict)
    topics: dict[UUID, TopicState] = field(default_factory=dict)
    configs: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    brokers: dict[int, dict[str, Any]] = field(default_factory=dict)
    controllers: dict[int, dict[str, Any]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    scram: dict[tuple[int, str], int] = field(default_factory=dict)
    acls: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    next_producer_id: int = -1
    zk_migration_state: int = 0
    kraft_version: int | None = None
    voters: VotersRecord | None = None
    unknown: list[UnknownRecord] = field(default_factory=list)
    unknown_count: int = 0
    problems: list[str] = field(default_factory=list)
    _unknown_types: set[int | None] = field(default_factory=set)

    def topics_by_name(self) -> dict[str, TopicState]:
        """Return the topics by name, sorted."""
        return dict(sorted((topic.name, topic) for topic in self.topics.values()))

    def take_control(self, value: ControlRecordValue) -> None:
        """Apply a control record; those that say nothing of the voters are passed over."""
        if isinstance(value, KRaftVersionRecord):
            self.kraft_version = value.kraft_version
        elif isinstance(value, VotersRecord):
            self.voters = value

    def take_unknown(self, offset: int, message: UndecodedMessage) -> None:
        """Keep a record that could not be decoded, as it is."""
        self.unknown_count += 1
        if len(self.unknown) < MOST_UNKNOWN or message.type_id not in self._unknown_types:
            self._unknown_types.add(message.type_id)
            self.unknown.append(UnknownRecord(offset, message.type_id, message.version, message.data, message.reason))

    def note(self, problem: str) -> None:
        """Add to the problems."""
        if len(self.problems) < MOST_UNKNOWN:
            self.problems.append(problem)

    def take(self, offset: int, message: DecodedMessage) -> None:
        """Apply a record. One that is about something that the image does not have goes to the problems."""
        apply = _APPLY.get(message.name)
        try:
            if apply is not None:
                apply(self, message.fields)
        except InvalidRecordError as error:
            self.note(f"the {message.name} at offset {offset}: {error}")


def _topic_of(image: MetadataImage, fields: Mapping[str, Any]) -> TopicState:
    topic = image.topics.get(fields["topicId"])
    if topic is None:
        raise InvalidRecordError(f"expected a record of a topic that exists, found the topic id {fields['topicId']}")
    return topic


def _take_topic(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    image.topics[fields["topicId"]] = TopicState(fields["name"], fields["topicId"])


def _take_partition(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    replicas = fields["replicas"]
    _topic_of(image, fields).partitions[fields["partitionId"]] = PartitionState(
        replicas=replicas,
        directories=_directories(fields.get("directories"), replicas),
        isr=fields["isr"],
        removing_replicas=fields["removingReplicas"],
        adding_replicas=fields["addingReplicas"],
        elr=fields.get("eligibleLeaderReplicas") or [],
        last_known_elr=fields.get("lastKnownElr") or [],
        leader=fields["leader"],
        leader_recovery_state=fields.get("leaderRecoveryState", 0),
        leader_epoch=fields["leaderEpoch"],
        partition_epoch=fields["partitionEpoch"],
    )


def _directories(directories: list[UUID] | None, replicas: list[int]) -> list[UUID]:
    return directories or [_MIGRATING] * len(replicas)


def _change_partition(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    topic = _topic_of(image, fields)
    partition = topic.partitions.get(fields["partitionId"])
    if partition is None:
        raise InvalidRecordError(
            f"expected a change of a partition that exists, found partition {fields['partitionId']} of {topic.name!r}"
        )
    _merge(partition, fields)


def _merge(partition: PartitionState, fields: Mapping[str, Any]) -> None:
    changed = {
        "replicas": "replicas",
        "directories": "directories",
        "isr": "isr",
        "removing_replicas": "removingReplicas",
        "adding_replicas": "addingReplicas",
        "elr": "eligibleLeaderReplicas",
        "last_known_elr": "lastKnownElr",
    }
    for name, of_record in changed.items():
        if fields.get(of_record) is not None:
            setattr(partition, name, fields[of_record])
    partition.directories = _directories(partition.directories, partition.replicas)
    leader = fields.get("leader", _NO_LEADER_CHANGE)
    if leader != _NO_LEADER_CHANGE:
        partition.leader = leader
        partition.leader_epoch += 1
    recovery_state = fields.get("leaderRecoveryState", _NO_RECOVERY_CHANGE)
    if recovery_state != _NO_RECOVERY_CHANGE:
        partition.leader_recovery_state = recovery_state
    partition.partition_epoch += 1


def _clear_elr(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    for topic in image.topics.values():
        if fields["topicName"] in ("", topic.name):
            for partition in topic.partitions.values():
                if partition.elr or partition.last_known_elr:
                    _merge(partition, {"eligibleLeaderReplicas": [], "lastKnownElr": []})


def _remove_topic(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    topic = _topic_of(image, fields)
    del image.topics[topic.topic_id]
    image.configs.pop((TOPIC_RESOURCE, topic.name), None)


def _take_config(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    resource = fields["resourceType"], fields["resourceName"]
    _put(image.configs, resource, fields["name"], fields["value"])


def _take_quota(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    entity = tuple(sorted((part["entityType"], part["entityName"]) for part in fields["entity"]))
    _put(image.quotas, entity, fields["key"], None if fields["remove"] else fields["value"])


def _put(tables: dict[Any, dict[str, Any]], key: object, name: str, value: object) -> None:
    """Set a value in one of the tables, or remove it if it is None; a table that is empty goes."""
    table = tables.setdefault(key, {})
    if value is None:
        table.pop(name, None)
        if not table:
            del tables[key]
    else:
        table[name] = value


def _take_feature(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    if fields["featureLevel"] == 0 and fields["name"] != METADATA_VERSION:
        image.features.pop(fields["name"], None)
    else:
        image.features[fields["name"]] = fields["featureLevel"]


def _take_broker(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    image.brokers[fields["brokerId"]] = {
        "isMigratingZkBroker": False,
        "inControlledShutdown": False,
        "logDirs": [],
        "cordonedLogDirs": [],
        **{name: value for name, value in fields.items() if value is not None or name == "rack"},
    }


def _take_controller(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    image.controllers[fields["controllerId"]] = dict(fields)


def _broker_of(image: MetadataImage, broker_id: int, *, epoch: int) -> dict[str, Any]:
    broker = image.brokers.get(broker_id)
    if broker is None or broker["brokerEpoch"] != epoch:
        found = "none" if broker is None else f"epoch {broker['brokerEpoch']}"
        raise InvalidRecordError(f"expected the registration of broker {broker_id} with epoch {epoch}, found {found}")
    return broker


def _change_broker(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    broker = _broker_of(image, fields["brokerId"], epoch=fields["brokerEpoch"])
    # -1, 0 and 1: unset, unchanged, set. Of inControlledShutdown only 1 changes anything.
    if fields.get("fenced", 0):
        broker["fenced"] = fields["fenced"] > 0
    if fields.get("inControlledShutdown", 0):
        broker["inControlledShutdown"] = fields["inControlledShutdown"] > 0
    if fields.get("logDirs"):
        broker["logDirs"] = fields["logDirs"]
    if fields.get("cordonedLogDirs") is not None:
        broker["cordonedLogDirs"] = fields["cordonedLogDirs"]


def _fence(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    _broker_of(image, fields["id"], epoch=fields["epoch"])["fenced"] = True


def _unfence(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    _broker_of(image, fields["id"], epoch=fields["epoch"])["fenced"] = False


def _take_scram(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    image.scram[fields["mechanism"], fields["name"]] = fields["iterations"]


def _remove_scram(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    image.scram.pop((fields["mechanism"], fields["name"]), None)


def _take_token(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    image.tokens[fields["tokenId"]] = dict(fields)


def _take_producer_ids(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    image.next_producer_id = fields["nextProducerId"]


def _take_migration_state(image: MetadataImage, fields: Mapping[str, Any]) -> None:
    image.zk_migration_state = fields["zkMigrationState"]


# NO_OP_RECORD changes nothing; the records of transactions are the replay's.
_APPLY: Mapping[str, Callable[[MetadataImage, Mapping[str, Any]], object]] = {
    "REGISTER_BROKER_RECORD": _take_broker,
    "UNREGISTER_BROKER_RECORD": lambda image, fields: image.brokers.pop(fields["brokerId"], None),
    "TOPIC_RECORD": _take_topic,
    "PARTITION_RECORD": _take_partition,
    "CONFIG_RECORD": _take_config,
    "PARTITION_CHANGE_RECORD": _change_partition,
    "FENCE_BROKER_RECORD": _fence,
    "UNFENCE_BROKER_RECORD": _unfence,
    "REMOVE_TOPIC_RECORD": _remove_topic,
    "DELEGATION_TOKEN_RECORD": _take_token,
    "USER_SCRAM_CREDENTIAL_RECORD": _take_scram,
    "FEATURE_LEVEL_RECORD": _take_feature,
    "CLIENT_QUOTA_RECORD": _take_quota,
    "PRODUCER_IDS_RECORD": _take_producer_ids,
    "BROKER_REGISTRATION_CHANGE_RECORD": _change_broker,
    "ACCESS_CONTROL_ENTRY_RECORD": lambda image, fields: image.acls.update({fields["id"]: dict(fields)}),
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": lambda image, fields: image.acls.pop(fields["id"], None),
    "ZK_MIGRATION_STATE_RECORD": _take_migration_state,
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": _remove_scram,
    "REMOVE_DELEGATION_TOKEN_RECORD": lambda image, fields: image.tokens.pop(fields["tokenId"], None),
    "REGISTER_CONTROLLER_RECORD": _take_controller,
    "CLEAR_ELR_RECORD": _clear_elr,
    "UNREGISTER_CONTROLLER_RECORD": lambda image, fields: image.controllers.pop(fields["controllerId"], None),
}
