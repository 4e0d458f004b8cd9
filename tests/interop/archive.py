"""Directories that kstore exported, in the place of those of the broker that wrote them: what its consumers then find.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kstore.archive import export
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import TopicPartition
from tests.interop.broker import NODE_ID, Broker, Client, tool
from tests.interop.store import CLUSTER_ID, ISOLATIONS, clean_start, dumped, records_of, topic_id

TOPIC, GROUP, GROUP_OFFSET = "archived", "readers", 25
TRANSACTION_STATE, GROUP_OFFSETS = "__transaction_state", "__consumer_offsets"
TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
GROUPS_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONAL_ID = f"broker-{TOPIC}-0"

Problems = Iterator[str]


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work)
    broker.format(CLUSTER_ID)
    target = work / "exported"
    with broker.running() as client:
        topic_id(client, TOPIC, ("segment.bytes=1048576", "index.interval.bytes=500"))
        fill(client)
        group(broker, "--reset-offsets", "--to-earliest", "--topic", TOPIC, "--execute")
    export_all(root, target)
    with broker.running() as client:
        fill(client)
        group(broker, "--reset-offsets", "--to-offset", str(GROUP_OFFSET), "--topic", TOPIC, "--execute")
        before = answers(broker, client)
    export_all(root, target)
    with open_log(root / f"{TOPIC}-0") as log:
        bounds = [batch.base_offset for batch in log.batches()]
    end = bounds[len(bounds) // 2]
    restored = work / "restored"
    export(root, restored, "kstore", topics=TOPIC, end_offset={TopicPartition(TOPIC, 0): end}, last_batch="drop")
    yield "DumpLogSegments reads what two runs exported", dumped(target)
    yield "a broker loads it without recovery, and its consumers find what they found", loaded(broker, target, before)
    yield "DumpLogSegments reads a log that was restored to an offset", dumped(restored)
    yield "a broker loads it and goes on there", cut(broker, restored, before, end)


def export_all(root: Path, target: Path) -> None:
    export(root, target, "kstore", topics=[TOPIC, TRANSACTION_STATE, GROUP_OFFSETS])


def fill(client: Client) -> None:
    """Let the broker append records, committed and aborted ones too."""
    for codec in ("none", "lz4", "zstd"):
        client.ask("produce", TOPIC, 0, codec, 400, "plain", 3, 2000)
        for mode in ("commit", "abort"):
            client.ask("produce", TOPIC, 0, codec, 15, mode)


def group(broker: Broker, *arguments: str) -> str:
    return tool(GROUPS_COMMAND, "--bootstrap-server", f"127.0.0.1:{broker.port}", "--group", GROUP, *arguments)


def answers(broker: Broker, client: Client) -> dict[str, Any]:
    """Return what consumers, and those who ask for groups and transactions, are told."""
    found: dict[str, Any] = {one: records_of(client, TOPIC, one) for one in ISOLATIONS}
    stamps = sorted({line["timestamp_ms"] for line in found[ISOLATIONS[0]]})[::40]
    for isolation in ISOLATIONS:
        asked = client.ask("offsets", TOPIC, 0, isolation, -1, -2, -3, *stamps)
        # Each start of a broker begins a leader epoch.
        found[f"offsets, {isolation}"] = [(line["query"], line["offset"], line["timestamp_ms"]) for line in asked]
    lines = [line.split() for line in group(broker, "--describe", "--offsets").splitlines()]
    found["group"] = [line[:4] for line in lines if line[:1] == [GROUP]]
    address = f"127.0.0.1:{broker.port}"
    words = tool(
        TRANSACTIONS_COMMAND, "--bootstrap-server", address, "describe", "--transactional-id", TRANSACTIONAL_ID
    ).split()
    found["transaction"] = words[words.index(TRANSACTIONAL_ID) :][:4]
    return found


def at(broker: Broker, root: Path) -> Broker:
    """Return the broker with an exported root in the place of its own, which keeps what names the node."""
    shutil.copy(broker.root / "meta.properties", root)
    return Broker(root, broker.work)


def loaded(broker: Broker, root: Path, before: dict[str, Any]) -> Problems:
    moved = at(broker, root)
    with moved.running() as client:
        after = answers(moved, client)
    if before["group"] != [[GROUP, TOPIC, "0", str(GROUP_OFFSET)]]:
        yield f"the group was to stand at {GROUP_OFFSET}, found {before['group']}"
    for name, wanted in before.items():
        if after[name] != wanted:
            yield f"{name}: {str(after[name])[:200]} in place of {str(wanted)[:200]}"
    yield from clean_start(moved, {TOPIC})


def cut(broker: Broker, root: Path, before: dict[str, Any], end: int) -> Problems:
    moved = at(broker, root)
    with moved.running() as client:
        found = records_of(client, TOPIC, ISOLATIONS[0])
        wanted = [line for line in before[ISOLATIONS[0]] if line["offset"] < end]
        if found != wanted:
            yield f"{len(found)} records in place of {len(wanted)}"
        client.ask("produce", TOPIC, 0, "none", 10, "plain")
        (latest,) = client.ask("offsets", TOPIC, 0, ISOLATIONS[0], -1)
        if latest["offset"] != end + 10:
            yield f"after 10 records more the log ends at {latest['offset']} in place of {end + 10}"
    yield from clean_start(moved, {TOPIC})
