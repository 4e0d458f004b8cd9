"""`kstore metadata` beside a broker's Admin and kafka-metadata-shell: state of each kind, by the log, after a snapshot,
and at an offset.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kstore.cli.operating.metadata import REDACTED
from tests.interop.broker import Broker, Client, tool
from tests.interop.programs import Unavailable
from tests.interop.store import Problems
from tests.interop.tools.running import answers, differing, kstore, made_broker

SHELL = "org.apache.kafka.shell.MetadataShell"
METADATA = "__cluster_metadata-0"
SETTINGS = """
offsets.topic.num.partitions=2
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
"""
SNAPSHOTS = "metadata.log.max.snapshot.interval.ms=1000\nmetadata.log.max.record.bytes.between.snapshots=1\n"
WAIT_SECONDS = 60
# Kafka's numbers, of what CHANGES makes.
RESOURCE_TYPES = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID"}
PATTERN_TYPES = {3: "LITERAL", 4: "PREFIXED"}
OPERATIONS = {2: "ALL", 3: "READ", 4: "WRITE", 7: "ALTER", 8: "DESCRIBE"}
PERMISSIONS = {2: "DENY", 3: "ALLOW"}
CHANGES: tuple[tuple[object, ...], ...] = (
    ("create", "plain", 3),
    (
        "create",
        "with.dots_and-more",
        1,
        "cleanup.policy=compact,delete",
        "retention.ms=3600000",
        "segment.bytes=2097152",
    ),
    ("create", "deleted", 2),
    ("set-config", "TOPIC", "plain", "max.message.bytes=12345", "compression.type=zstd"),
    ("set-config", "BROKER", "1", "background.threads=8"),
    ("set-config", "BROKER", "", "log.cleaner.backoff.ms=20000"),
    ("set-config", "BROKER", "1", "listener.name.plaintext.ssl.keystore.password=hush"),
    (
        "set-config",
        "CLIENT_METRICS",
        "watched",
        "interval.ms=10000",
        "metrics=org.apache.kafka.",
        "match=client_id=a.*",
    ),
    ("set-config", "GROUP", "a-group", "consumer.session.timeout.ms=50000"),
    ("set-quota", "producer_byte_rate", "1024", "client-id=a(b)"),
    ("set-quota", "consumer_byte_rate", "2048", "user=u", "client-id=<default>"),
    ("set-quota", "request_percentage", "12.5", "user=<default>"),
    ("set-quota", "controller_mutation_rate", "0.5", "user=u"),
    ("set-quota", "connection_creation_rate", "10", "ip=127.0.0.9"),
    ("set-scram", "alice", "SCRAM-SHA-256", 4096, "secret"),
    ("set-scram", "alice", "SCRAM-SHA-512", 8192, "secret"),
    ("set-scram", "bob", "SCRAM-SHA-512", 4096, "other secret"),
    ("set-acl", "TOPIC", "plain", "LITERAL", "User:alice", "*", "READ", "ALLOW"),
    ("set-acl", "TOPIC", "pre", "PREFIXED", "User:bob", "127.0.0.1", "WRITE", "DENY"),
    ("set-acl", "GROUP", "*", "LITERAL", "User:*", "*", "DESCRIBE", "ALLOW"),
    ("set-acl", "TRANSACTIONAL_ID", "id", "LITERAL", "User:alice", "*", "ALL", "ALLOW"),
    ("set-acl", "CLUSTER", "kafka-cluster", "LITERAL", "User:alice", "*", "ALTER", "ALLOW"),
    ("delete", "deleted"),
    ("create", "deleted", 1),
)


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    broker = made_broker(work, SETTINGS)
    root = broker.root
    with broker.running() as client:
        for change in CHANGES:
            client.ask(*change)
        yield "kstore metadata beside a broker", compared(client, root)
        before = end_of(root)
        client.ask("set-config", "TOPIC", "plain", "max.message.bytes=54321")
        client.ask("set-feature", "transaction.version", 1)
        yield "kstore metadata after a change", compared(client, root)
        yield "kstore metadata --at an offset from before it", at_offset(root, before)
    yield "kstore metadata of a broker that has stopped", ended(root)
    again = Broker(root, work, f"metadata.log.dir={root}\n{SETTINGS}{SNAPSHOTS}")
    with again.running() as client:
        for number in range(3):
            client.ask("set-config", "TOPIC", "plain", f"max.message.bytes={60_000 + number}")
        snapshot = latest_snapshot(root, above=before)
        yield "kstore metadata after a snapshot", compared(client, root)
    yield "kafka-metadata-shell shows the snapshot as kstore does", shown(root, snapshot)


def read(root: Path, *arguments: object) -> dict[str, Any]:
    return json.loads(kstore("metadata", root, "--json", *arguments))


def end_of(root: Path) -> int:
    return int(read(root)["provenance"]["offset"]) + 1


def compared(client: Client, root: Path) -> Problems:
    found = read(root)
    for what, check in KINDS.items():
        for problem in check(client, found):
            yield f"{what}, {problem}"
    yield from differing("unknown", found["unknown"], [])


def topics(client: Client, found: dict[str, Any]) -> Problems:
    wanted: dict[str, Any] = {}
    for one in answers(client, "topics"):
        topic = wanted.setdefault(one.pop("topic"), {"id": one["id"]})
        one.pop("id")
        topic[str(one.pop("partition"))] = one
    mine = {
        name: {
            key: value
            if key == "id"
            else {field: value[field] for field in ("leader", "replicas", "isr", "elr", "lastKnownElr")}
            for key, value in topic.items()
        }
        for name, topic in found["topics"].items()
    }
    yield from differing("topics", mine, wanted)


def configs(client: Client, found: dict[str, Any]) -> Problems:
    wanted: dict[str, dict[str, Any]] = {}
    for one in answers(client, "configs"):
        resource = f"{one['type']}:{one['name']}" if one["name"] else one["type"]
        wanted.setdefault(resource, {})[one["key"]] = REDACTED if one["is_sensitive"] else one["value"]
    yield from differing("configs", found["configs"], wanted)


def features(client: Client, found: dict[str, Any]) -> Problems:
    wanted = {one["name"]: one["level"] for one in answers(client, "features")}
    mine = {name: level for name, level in found["features"].items() if name != "zkMigrationState"}
    kraft = mine.get("kraft.version", found["quorum"]["kraftVersion"])
    wanted_kraft = wanted.pop("kraft.version", 0)
    mine.pop("kraft.version", None)
    yield from differing("features", mine, wanted)
    # Without a record it is 0.
    yield from differing("kraft.version", kraft or 0, wanted_kraft)


def quotas(client: Client, found: dict[str, Any]) -> Problems:
    wanted = {}
    for one in answers(client, "quotas"):
        wanted[entity_name(one["entity"])] = one["values"]
    yield from differing("quotas", found["clientQuotas"], wanted)


def entity_name(entity: dict[str, str | None]) -> str:
    """Return the name that kafka-metadata-shell gives an entity."""
    kinds = (("client-id", "clientId"), ("ip", "ip"), ("user", "user"))
    parts = []
    for kind, shown_kind in kinds:
        if kind in entity:
            name = entity[kind]
            text = "<default>" if name is None else re.sub(r"([\\()])", r"\\\1", name)
            parts.append(f"{shown_kind}({text})")
    return "_".join(parts)


def scram(client: Client, found: dict[str, Any]) -> Problems:
    wanted: dict[str, dict[str, Any]] = {"SCRAM-SHA-256": {}, "SCRAM-SHA-512": {}}
    for one in answers(client, "scram"):
        wanted[one["mechanism"]][one["user"]] = {"iterations": one["iterations"]}
    yield from differing("scram", found["scram"], wanted)
    if "secret" in json.dumps(found) or "salt" in json.dumps(found["scram"]).lower():
        yield "a secret is shown"


def acls(client: Client, found: dict[str, Any]) -> Problems:
    wanted = answers(client, "acls")
    yield from differing("acls", sorted(found["acls"].values(), key=str), sorted(wanted, key=str))


def quorum(client: Client, found: dict[str, Any]) -> Problems:
    (wanted,) = answers(client, "quorum")
    mine = found["quorum"]
    yield from differing("leader", mine["leaderId"], wanted["leader"])
    yield from differing("epoch", mine["leaderEpoch"], wanted["epoch"])
    yield from differing("voters", [int(number) for number in mine["voters"]], [one["id"] for one in wanted["voters"]])
    # The controller writes records of its own all the time.
    if not 0 <= wanted["high_watermark"] - found["provenance"]["logEndOffset"] < 1000:
        yield f"log end {found['provenance']['logEndOffset']}, high watermark {wanted['high_watermark']}"


KINDS: dict[str, Callable[[Client, dict[str, Any]], Problems]] = {
    "topics": topics,
    "configs": configs,
    "features": features,
    "quotas": quotas,
    "scram": scram,
    "acls": acls,
    "quorum": quorum,
}


def at_offset(root: Path, before: int) -> Problems:
    then, now = read(root, "--at", before), read(root)
    yield from differing("offset", then["provenance"]["offset"], before - 1)
    sizes = [state["configs"]["TOPIC:plain"]["max.message.bytes"] for state in (then, now)]
    yield from differing("the setting", sizes, ["12345", "54321"])
    yield from differing("the feature", [state["features"].get("transaction.version") for state in (then, now)], [2, 1])


def ended(root: Path) -> Problems:
    found = read(root)
    yield from differing("brokers", list(found["cluster"]["brokers"]), ["1"])
    yield from differing("topics", sorted(found["topics"]), ["deleted", "plain", "with.dots_and-more"])


def latest_snapshot(root: Path, *, above: int) -> Path:
    """Wait for a snapshot of the records up to an offset, and return the latest."""
    for _ in range(WAIT_SECONDS * 5):
        found = sorted((root / METADATA).glob("*.checkpoint"))
        if found and int(found[-1].name.partition("-")[0]) > above:
            return found[-1]
        time.sleep(0.2)
    raise Unavailable("the broker took no snapshot")


def shown(root: Path, snapshot: Path) -> Problems:
    """What kafka-metadata-shell shows otherwise of a snapshot, of all that has a text of its own there."""
    snapshot = max((root / METADATA).glob("*.checkpoint"), default=snapshot)
    theirs = shell_leaves(tool(SHELL, "--snapshot", str(snapshot), "tree", "image"))
    state = json.loads(kstore("metadata", snapshot, "--json"))
    mine = {path: text for path, text in kstore_leaves(state) if text != REDACTED}
    parts = {path.partition("/")[0] for path in mine}
    yield from differing("parts", sorted(parts), sorted(("acls", "configs", "features", "scram", "topics")))
    yield from differing("shown", mine, {path: theirs.get(path) for path in mine})
    missing = {path for path in theirs if path.startswith(tuple(f"{part}/" for part in parts))} - mine.keys()
    known = ("topics/byId/", "features/metadataVersion", "features/zkMigrationState", "configs/BROKER:1/listener.name.")
    yield from (f"{path} is missing" for path in sorted(missing) if not path.startswith(known))


def shell_leaves(text: str) -> dict[str, str]:
    """Return the texts of a tree that the shell printed, by path; of SCRAM credentials only the iterations."""
    path: list[str] = []
    leaves = {}
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        del path[depth:]
        if line.endswith(":"):
            path.append(line.strip()[:-1])
        elif line.strip():
            secret = re.search(r"ScramCredentialData\(.*iterations=(\d+)\)", line)
            leaves["/".join(path)] = secret[1] if secret else line.strip()
    return leaves


def kstore_leaves(state: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the same texts from the state that kstore shows."""
    for name, acl in state["acls"].items():
        yield f"acls/byId/{name}", acl_text(acl)
    for resource, values in state["configs"].items():
        yield from ((f"configs/{resource}/{key}", value) for key, value in values.items())
    for name, level in state["features"].items():
        if name not in ("metadata.version", "zkMigrationState"):
            yield f"features/finalized_{name}", str(level)
    for mechanism, users in state["scram"].items():
        yield from ((f"scram/{mechanism}/{user}", str(fields["iterations"])) for user, fields in users.items())
    for topic, fields in state["topics"].items():
        yield f"topics/byName/{topic}/id", fields["id"]
        yield f"topics/byName/{topic}/name", topic
        for number, partition in fields.items():
            if number != "id":
                yield f"topics/byName/{topic}/{number}", partition_text(partition)


def acl_text(fields: dict[str, Any]) -> str:
    named = {
        "resourceType": RESOURCE_TYPES[fields["resourceType"]],
        "resourceName": fields["resourceName"],
        "patternType": PATTERN_TYPES[fields["patternType"]],
        "principal": fields["principal"],
        "host": fields["host"],
        "operation": OPERATIONS[fields["operation"]],
        "permissionType": PERMISSIONS[fields["permissionType"]],
    }
    return f"StandardAcl({', '.join(f'{name}={value}' for name, value in named.items())})"


def partition_text(fields: dict[str, Any]) -> str:
    shown_fields = {
        name: f"[{', '.join(map(str, value))}]" if isinstance(value, list) else value for name, value in fields.items()
    }
    return f"PartitionRegistration({', '.join(f'{name}={value}' for name, value in shown_fields.items())})"
