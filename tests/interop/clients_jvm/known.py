"""Where kstore answers Kafka's Java clients and tools otherwise than a broker, with the reason of each difference.

docs/serve.md has them for users.
"""

from __future__ import annotations

from typing import Any

from tests.interop.serving import Difference

NOT_OFFERED = {"error": "UNSUPPORTED_VERSION"}
ONE_NODE = "one node without controllers: nothing to elect, to move or to register"
NO_ELR = "one node keeps no eligible leader replicas, which set min.insync.replicas on a broker"
NO_OTHER_RESOURCES = "only topics and the node have settings"
LISTS = "a list is kept in an order of its own, and not as the topic's own where it is that of the server"
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
_RETENTION = {"retention.ms": "7200000"}
_INVALID_CONFIG, _INVALID_REQUEST = {"error": "INVALID_CONFIG"}, {"error": "INVALID_REQUEST"}
_TOPICS = ["TOPIC a.b", "TOPIC assigned", "TOPIC configured", "TOPIC defaults", "TOPIC t1", "TOPIC twice"]
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
    "configs: APPEND in a list": Difference(
        {"cleanup.policy": "delete,compact", **_RETENTION}, {"cleanup.policy": "compact,delete", **_RETENTION}, LISTS
    ),
    "configs: SUBTRACT in a list": Difference({"cleanup.policy": "delete", **_RETENTION}, _RETENTION, LISTS),
    "configs: set an empty list": Difference(
        {"cleanup.policy": "", "compression.type": "zstd"},
        _INVALID_CONFIG,
        "a topic of kstore has a policy; with retention.ms=-1 it keeps everything",
    ),
    "configs: set of GROUP": Difference(_INVALID_CONFIG, _INVALID_REQUEST, NO_OTHER_RESOURCES),
    "configs: set of CLIENT_METRICS": Difference(None, _INVALID_REQUEST, NO_OTHER_RESOURCES),
    "configs: set of BROKER_LOGGER": Difference(_INVALID_CONFIG, _INVALID_REQUEST, NO_OTHER_RESOURCES),
    "configs: list resources": Difference(
        ["BROKER 1", "BROKER_LOGGER 1", "CLIENT_METRICS of-CLIENT_METRICS", *_TOPICS],
        ["BROKER 1", "BROKER_LOGGER 1", *_TOPICS],
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
OF_TOOLS: dict[str, Difference] = {}
