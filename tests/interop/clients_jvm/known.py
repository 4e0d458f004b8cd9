"""Where kstore answers Kafka's Java clients and tools otherwise than a broker, with the reason of each difference.

docs/serve.md has them for users.
"""

from __future__ import annotations

from typing import Any

from tests.interop.serving import NOT_ASKED, Difference

NOT_OFFERED = {"error": "UNSUPPORTED_VERSION"}
ONE_NODE = "one node without controllers: nothing to elect, to move or to register"
NO_ELR = "one node keeps no eligible leader replicas, which set min.insync.replicas on a broker"
NO_OTHER_RESOURCES = "only topics and the node have settings"
MARKERS = "WriteTxnMarkers is the brokers' own request; `kstore transactions --abort` does it"


def not_offered(of_broker: Any, reason: str) -> Difference:
    return Difference(of_broker, NOT_OFFERED, reason)


def setting(value: str, source: str, *synonyms: str, type_: str) -> dict[str, Any]:
    """A setting of a topic as ConfigQuestions shows it."""
    shown = {"has_documentation": True, "is_read_only": False, "is_sensitive": False}
    return {**shown, "source": source, "synonyms": list(synonyms), "type": type_, "value": value}


_ELECTED = {"no-such-0": "UNKNOWN_TOPIC_OR_PARTITION", "of-cluster-0": "ELECTION_NOT_NEEDED"}
_NOT_ALLOWED = {"error": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"}
_OWN = "retention.ms=7200000 DYNAMIC_TOPIC_CONFIG"
_OF_SERVER = "log.retention.ms=-1 STATIC_BROKER_CONFIG"
_FEATURES = {
    "finalized group.version": 1,
    "finalized metadata.version": 27,
    "finalized transaction.version": 2,
    "supported group.version": "0 to 1",
    "supported metadata.version": "7 to 27",
    "supported transaction.version": "0 to 2",
}
_INVALID_CONFIG, _INVALID_REQUEST = {"error": "INVALID_CONFIG"}, {"error": "INVALID_REQUEST"}
KNOWN: dict[str, Difference] = {
    "configs: setting min.insync.replicas": Difference(
        setting(
            "1",
            "DYNAMIC_DEFAULT_BROKER_CONFIG",
            "min.insync.replicas=1 DYNAMIC_DEFAULT_BROKER_CONFIG",
            "min.insync.replicas=1 DEFAULT_CONFIG",
            type_="INT",
        ),
        setting("1", "DEFAULT_CONFIG", "min.insync.replicas=1 DEFAULT_CONFIG", type_="INT"),
        NO_ELR,
    ),
    "configs: setting retention.ms": Difference(
        setting(
            "7200000",
            "DYNAMIC_TOPIC_CONFIG",
            _OWN,
            _OF_SERVER,
            "log.retention.hours=168 DEFAULT_CONFIG",
            type_="LONG",
        ),
        setting("7200000", "DYNAMIC_TOPIC_CONFIG", _OWN, _OF_SERVER, type_="LONG"),
        "log.retention.hours, which has Kafka's default, is not a setting of kstore",
    ),
    "configs: setting message.timestamp.after.max.ms": Difference(
        setting("3600000", "DEFAULT_CONFIG", "log.message.timestamp.after.max.ms=3600000 DEFAULT_CONFIG", type_="LONG"),
        setting(
            "9223372036854775807",
            "STATIC_BROKER_CONFIG",
            "log.message.timestamp.after.max.ms=9223372036854775807 STATIC_BROKER_CONFIG",
            "log.message.timestamp.after.max.ms=3600000 DEFAULT_CONFIG",
            type_="LONG",
        ),
        "kstore takes records of any time, see docs/config.md",
    ),
    **{
        f"configs: settings of {what}": Difference("some", "none", NO_OTHER_RESOURCES)
        for what in ("client metrics", "a group", "loggers")
    },
    "configs: settings of all nodes": Difference("some", "none", NO_ELR),
    "configs: set an empty list": Difference(
        {"cleanup.policy": "", "compression.type": "zstd"},
        _INVALID_CONFIG,
        "a topic of kstore has a policy; with retention.ms=-1 it keeps everything",
    ),
    "configs: set of GROUP": Difference(_INVALID_CONFIG, _INVALID_REQUEST, NO_OTHER_RESOURCES),
    "configs: set of CLIENT_METRICS": Difference(None, _INVALID_REQUEST, NO_OTHER_RESOURCES),
    "configs: set of BROKER_LOGGER": Difference(_INVALID_CONFIG, _INVALID_REQUEST, NO_OTHER_RESOURCES),
    "configs: list resources": Difference(
        ["BROKER 1", "BROKER_LOGGER 1", "CLIENT_METRICS of-CLIENT_METRICS", "TOPIC configured"],
        ["BROKER 1", "BROKER_LOGGER 1", "TOPIC configured"],
        NO_OTHER_RESOURCES,
    ),
    "configs: list client metrics": Difference(1, 0, NO_OTHER_RESOURCES),
    "cluster: features": Difference(
        {
            **_FEATURES,
            "finalized eligible.leader.replicas.version": 1,
            "supported eligible.leader.replicas.version": "0 to 1",
            "supported kraft.version": "0 to 1",
            "supported share.version": "0 to 1",
        },
        _FEATURES,
        "no eligible leader replicas, no quorum of controllers and no share groups",
    ),
    "cluster: abort no transaction": not_offered(None, MARKERS),
    "cluster: elect leaders": not_offered(_ELECTED, ONE_NODE),
    "cluster: elect unclean leaders": not_offered(_ELECTED, ONE_NODE),
    "cluster: reassign": Difference(
        {"no-such-0": "UNKNOWN_TOPIC_OR_PARTITION", "of-cluster-0": "null"},
        {"no-such-0": "UNSUPPORTED_VERSION", "of-cluster-0": "UNSUPPORTED_VERSION"},
        ONE_NODE,
    ),
    "cluster: reassignments": not_offered(0, ONE_NODE),
    "cluster: move to a directory": Difference(
        {"of-cluster-0-1": "LOG_DIR_NOT_FOUND"}, {"of-cluster-0-1": "UNSUPPORTED_VERSION"}, ONE_NODE
    ),
    "cluster: quotas": not_offered(0, "no quotas"),
    "cluster: set a quota": not_offered(None, "no quotas"),
    "cluster: SCRAM users": not_offered(0, "`kstore serve-users` makes users"),
    "cluster: set a SCRAM user": not_offered(None, "`kstore serve-users` makes users"),
    "cluster: delegation tokens": not_offered(_NOT_ALLOWED, "no delegation tokens"),
    "cluster: create a delegation token": not_offered(_NOT_ALLOWED, "no delegation tokens"),
    "cluster: quorum": not_offered(1, ONE_NODE),
    "cluster: set a feature": not_offered({"error": "INVALID_UPDATE_VERSION"}, "features are those of the release"),
    "cluster: unregister a node": not_offered({"error": "BROKER_ID_NOT_REGISTERED"}, ONE_NODE),
    **{
        f"producing: a record two hours ahead, idempotence {is_idempotent}": Difference(
            {"error": "INVALID_TIMESTAMP"}, "taken", "kstore takes records of any time, see docs/config.md"
        )
        for is_idempotent in ("true", "false")
    },
    "transactions: abort as an operator": not_offered("aborted", MARKERS),
}
OF_VERSION_1 = {"transactions: abort as an operator": not_offered("aborted", MARKERS)}


def _topic(name: str, partitions: int, configs: str) -> list[str]:
    """The lines of a topic as kafka-topics --describe has them."""
    first = f"Topic: {name} TopicId: ID PartitionCount: {partitions} ReplicationFactor: 1 Configs: {configs}"
    rest = (f"Topic: {name} Partition: {n} Leader: 1 Replicas: 1 Isr: 1 Elr: LastKnownElr:" for n in range(partitions))
    return [first, *rest]


def _said(*lines: str, err: tuple[str, ...] = (), status: int = 0) -> dict[str, Any]:
    return {"status": status, "out": list(lines), "err": list(err)}


_ELR, _AHEAD = "min.insync.replicas=1", "message.timestamp.after.max.ms=9223372036854775807"
_SEVEN, _KEPT = "retention.ms=7200000", "retention.ms=-1"
_SHOWN = f"{NO_ELR}; kstore takes records of any time, see docs/config.md"
_CONFIGS = "kafka-configs --describe --entity-type"
_SYNONYMS = "retention.ms=7200000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7200000, "
_UNSUPPORTED = "org.apache.kafka.common.errors.UnsupportedVersionException: TEXT"
_EXECUTION = "java.util.concurrent.ExecutionException: TEXT"
_USERS = "Error while executing config command with args '--bootstrap-server ADDRESS --describe --entity-type users'"
_OF_THREE = "Dynamic configs for topic three are:"
_OF_NODES = "Default configs for brokers in the cluster are:"
_NOT_SERVED = {
    "WriteTxnMarkers(27)": "1 [usable: 1]",
    "AlterReplicaLogDirs(34)": "1 to 2 [usable: 2]",
    "CreateDelegationToken(38)": "1 to 3 [usable: 3]",
    "RenewDelegationToken(39)": "1 to 2 [usable: 2]",
    "ExpireDelegationToken(40)": "1 to 2 [usable: 2]",
    "DescribeDelegationToken(41)": "1 to 3 [usable: 3]",
    "ElectLeaders(43)": "0 to 2 [usable: 2]",
    "AlterPartitionReassignments(45)": "0 to 1 [usable: 1]",
    "ListPartitionReassignments(46)": "0 [usable: 0]",
    "DescribeClientQuotas(48)": "0 to 1 [usable: 1]",
    "AlterClientQuotas(49)": "0 to 1 [usable: 1]",
    "DescribeUserScramCredentials(50)": "0 [usable: 0]",
    "AlterUserScramCredentials(51)": "0 [usable: 0]",
    "DescribeQuorum(55)": "0 to 2 [usable: 2]",
    "UpdateFeatures(57)": "0 to 2 [usable: 2]",
    "UnregisterBroker(64)": "0 [usable: 0]",
    "ShareGroupHeartbeat(76)": "1 [usable: 1]",
    "ShareGroupDescribe(77)": "1 [usable: 1]",
    "ShareFetch(78)": "1 [usable: 1]",
    "ShareAcknowledge(79)": "1 [usable: 1]",
    "AddRaftVoter(80)": "0 [usable: 0]",
    "RemoveRaftVoter(81)": "0 [usable: 0]",
    "InitializeShareGroupState(83)": "0 [usable: 0]",
    "ReadShareGroupState(84)": "0 [usable: 0]",
    "WriteShareGroupState(85)": "0 [usable: 0]",
    "DeleteShareGroupState(86)": "0 [usable: 0]",
    "ReadShareGroupStateSummary(87)": "0 [usable: 0]",
    "DescribeShareGroupOffsets(90)": "0 [usable: 0]",
    "AlterShareGroupOffsets(91)": "0 [usable: 0]",
    "DeleteShareGroupOffsets(92)": "0 [usable: 0]",
}
OF_TOOLS: dict[str, Difference] = {
    "kafka-topics --describe --exclude-internal": Difference(
        _said(*_topic("three", 3, f"{_ELR},{_SEVEN}"), *_topic("one", 1, f"{_ELR},{_KEPT}")),
        _said(*_topic("three", 3, f"{_SEVEN},{_AHEAD}"), *_topic("one", 1, f"{_KEPT},{_AHEAD}")),
        _SHOWN,
    ),
    "kafka-topics --describe --topic three": Difference(
        _said(*_topic("three", 3, f"{_ELR},{_SEVEN}")), _said(*_topic("three", 3, f"{_SEVEN},{_AHEAD}")), _SHOWN
    ),
    "kafka-topics --describe --topics-with-overrides --exclude-internal": Difference(
        _said(_topic("three", 3, f"{_ELR},{_SEVEN}")[0], _topic("one", 1, f"{_ELR},{_KEPT}")[0]),
        _said(_topic("three", 3, f"{_SEVEN},{_AHEAD}")[0], _topic("one", 1, f"{_KEPT},{_AHEAD}")[0]),
        _SHOWN,
    ),
    f"{_CONFIGS} topics --entity-name three": Difference(
        _said(
            _OF_THREE,
            _SYNONYMS + "STATIC_BROKER_CONFIG:log.retention.ms=-1, DEFAULT_CONFIG:log.retention.hours=168}",
        ),
        _said(_OF_THREE, _SYNONYMS + "STATIC_BROKER_CONFIG:log.retention.ms=-1}"),
        "log.retention.hours, which has Kafka's default, is not a setting of kstore",
    ),
    f"{_CONFIGS} brokers --entity-default": Difference(
        _said(_OF_NODES, f"{_ELR} sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{_ELR}}}"),
        _said(_OF_NODES),
        NO_ELR,
    ),
    f"{_CONFIGS} users": Difference(
        _said(), _said(err=(_USERS, _EXECUTION, f"Caused by: {_UNSUPPORTED}"), status=1), "no quotas"
    ),
    "kafka-quorum describe --status": Difference({"status": 0, "lines": 0}, {"status": 1, "lines": 0}, ONE_NODE),
    "kafka-leader-election --election-type preferred --topic one --partition 0": Difference(
        _said("Valid replica already elected for partitions one-0"),
        _said(
            err=(
                _EXECUTION,
                "java.lang.RuntimeException: TEXT",
                f"Caused by: {_EXECUTION}",
                f"Caused by: {_UNSUPPORTED}",
            ),
            status=1,
        ),
        ONE_NODE,
    ),
    **{
        f"kafka-api-versions: {api}": Difference(
            f"{api}: {versions}", f"{api}: UNSUPPORTED", "an api of clusters, or of share groups"
        )
        for api, versions in _NOT_SERVED.items()
    },
    **{
        f"kafka-features describe: {name}": Difference(
            f"Feature: {name} SupportedMinVersion: 0 SupportedMaxVersion: 1 FinalizedVersionLevel: {level} Epoch: N",
            NOT_ASKED,
            "no eligible leader replicas, no quorum of controllers and no share groups",
        )
        for name, level in {"eligible.leader.replicas.version": 1, "kraft.version": 0, "share.version": 0}.items()
    },
}
