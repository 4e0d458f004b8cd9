"""`kstore transactions` beside kafka-transactions: open transactions of killed producers, and ones that hang.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kstore.record import MemoryRecordsBuilder
from kstore.record.schemas.topics import DecodedMessage, decode_transaction_record
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import TRANSACTION_STATE_TOPIC
from tests.interop.broker import Broker, Client, tool
from tests.interop.store import Problems
from tests.interop.tools.running import answers, differing, kstore, made_broker, objects, opened_transactions, table

TOPIC = "held"
PARTITIONS = 5
COMMAND = "org.apache.kafka.tools.TransactionsCommand"
# TRANSACTIONAL_ID:RECORDS:PARTITIONS[:GROUP=OFFSET]
OPENED = (
    "one:3:held-0",
    "two:2:held-0,held-1",
    "again:1:held-2",
    "again:2:held-2",
    "with-offsets:1:held-1:readers=1",
)
IDS = ("again", "one", "two", "with-offsets")
HANGING = {3: 7001, 4: 7002}
HOURS_AGO_MS = 2 * 3_600_000
LATEST = -1
SETTINGS = """
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=3600000
log.retention.ms=-1
"""


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    broker = made_broker(work, SETTINGS)
    root = broker.root
    with broker.running() as client:
        client.ask("create", TOPIC, PARTITIONS)
        with opened_transactions(broker, *OPENED):
            yield "kstore transactions beside a broker with living producers", compared(client, root)
        yield "kstore transactions once the producers are killed", compared(client, root)
    hang(root)
    with broker.running() as client:
        yield "kstore transactions after a restart, with hanging ones", compared(client, root)
        yield "kafka-transactions find-hanging finds the ones that kstore does", hanging(broker, root)
        arguments = ("--topic", TOPIC, "--partition", "4", "--start-offset", "0")
        tool(COMMAND, "--bootstrap-server", f"127.0.0.1:{broker.port}", "abort", *arguments)
        yield "kstore sees what kafka-transactions abort aborted", compared(client, root)
    planned: list[dict[str, Any]] = []
    yield "a dry run of --abort changes nothing", tried(root, planned)
    yield "--abort writes what the dry run said", aborted(root, planned)
    yield "--abort of a hanging one writes the bytes of kafka-transactions abort", same_markers(root)
    yield "the states that --abort wrote have the version and fields of the broker's", state_versions(root)
    with broker.running() as client:
        yield "the broker goes on after --abort", gone_on(client, broker, root)
        yield "kstore transactions beside the broker after that", compared(client, root)


def hang(root: Path) -> None:
    """Write transactional data that no coordinator knows, hours ago."""
    with open_store(root, "a") as store:
        for partition, producer_id in HANGING.items():
            builder = MemoryRecordsBuilder(
                producer_id=producer_id, producer_epoch=3, base_sequence=0, is_transactional=True
            )
            for number in range(4):
                builder.append(timestamp_ms=now_ms() - HOURS_AGO_MS + number, value=b"hangs")
            store.log(TOPIC, partition).append(builder.build())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def compared(client: Client, root: Path) -> Problems:
    """What kstore says otherwise than the broker of transactional ids, producers and last stable offsets."""
    found = [
        {
            "transactional_id": one["transactional_id"],
            "state": one["state"].replace("_", "").lower(),
            "producer_id": one["producer_id"],
            "producer_epoch": one["producer_epoch"],
            "timeout_ms": one["timeout_ms"],
            "start_ms": one["start_timestamp"],
            "partitions": names_of(one["partitions"]),
        }
        for one in objects("transactions", root, "--ids")
    ]
    wanted = []
    for one in answers(client, "transactions"):
        state = one["state"].lower()
        yield from differing("list", [one["producer_id"], one["state"]], one.pop("listed"))
        # Admin has no start for a transaction that is over.
        wanted.append(one | {"state": state})
    for mine, theirs in zip(found, wanted, strict=False):
        if theirs["start_ms"] == -1:
            mine["start_ms"] = -1
    yield from differing("ids", found, sorted(wanted, key=lambda one: str(one["transactional_id"])))
    shown = objects("transactions", root)
    for partition in range(PARTITIONS):
        yield from producers_of(client, partition, [one for one in shown if one["partition"] == partition])
        yield from all_producers(client, root, partition)


def producers_of(client: Client, partition: int, shown: list[dict[str, Any]]) -> Problems:
    own = [one for one in shown if one["topic"] == TOPIC]
    found = [
        {
            "producer_id": one["producer_id"],
            "producer_epoch": one["producer_epoch"],
            "last_timestamp": one["last_timestamp"],
            "coordinator_epoch": one["coordinator_epoch"],
            "first_offset": one["first_offset"],
        }
        for one in own
    ]
    wanted = [one for one in answers(client, "producers", TOPIC, partition) if one["first_offset"] >= 0]
    for one in wanted:
        one.pop("last_sequence")
    yield from differing(f"{TOPIC}-{partition}", found, wanted)
    (committed,) = client.ask("offsets", TOPIC, partition, "read_committed", LATEST)
    (end,) = client.ask("offsets", TOPIC, partition, "read_uncommitted", LATEST)
    for one in own:
        offsets = [one["last_stable_offset"], one["log_end_offset"]]
        yield from differing(f"{TOPIC}-{partition}, offsets", offsets, [committed["offset"], end["offset"]])


def all_producers(client: Client, root: Path, partition: int) -> Problems:
    """What kstore says otherwise of all producers of a partition."""
    arguments = ("--producers", "--topic", TOPIC, "--partition", partition)
    found = [
        {name: -1 if value is None else value for name, value in one.items() if name not in ("topic", "partition")}
        for one in objects("transactions", root, *arguments)
    ]
    wanted = sorted(answers(client, "producers", TOPIC, partition), key=lambda one: int(one["producer_id"]))
    yield from differing(f"producers of {partition}", found, wanted)


def hanging(broker: Broker, root: Path) -> Problems:
    text = tool(COMMAND, "--bootstrap-server", f"127.0.0.1:{broker.port}", "find-hanging", "--broker-id", "1")
    wanted = [
        {
            "topic": row["Topic"],
            "partition": int(row["Partition"]),
            "producer_id": int(row["ProducerId"]),
            "producer_epoch": int(row["ProducerEpoch"]),
            "coordinator_epoch": int(row["CoordinatorEpoch"]),
            "first_offset": int(row["StartOffset"]),
            "last_timestamp": int(row["LastTimestamp"]),
            "minutes": int(row["Duration(min)"]),
        }
        for row in table(text)
    ]
    found = [
        {name: one[name] for name in wanted[0] if name != "minutes"}
        | {"minutes": (one["as_of"] - one["last_timestamp"]) // 60_000}
        for one in objects("transactions", root, "--hanging")
        if wanted
    ]
    yield from differing("hanging", found, wanted)
    yield from differing("their number", len(found), len(HANGING))


def tried(root: Path, planned: list[dict[str, Any]]) -> Problems:
    before = contents(root)
    ids = [word for name in IDS for word in ("--transactional-id", name)]
    planned += objects("transactions", root, "--abort", "--dry-run", *ids)
    planned += objects("transactions", root, "--abort", "--dry-run", "--hanging")
    yield from differing("files", sorted(contents(root).items()), sorted(before.items()))
    yield from differing("written", {one.pop("written") for one in planned}, {False})


def aborted(root: Path, planned: list[dict[str, Any]]) -> Problems:
    ids = [word for name in IDS for word in ("--transactional-id", name)]
    done = objects("transactions", root, "--abort", *ids)
    done += objects("transactions", root, "--abort", "--hanging")
    yield from differing("written", {one.pop("written") for one in done}, {True})
    # An offset in the plan is that of the first marker of a partition.
    places = [{name: value for name, value in one.items() if name != "offset"} for one in done]
    wanted = [{name: value for name, value in one.items() if name != "offset"} for one in planned]
    yield from differing("markers", places, wanted)
    yield from differing("open", objects("transactions", root), [])
    left = {one["state"] for one in objects("transactions", root, "--ids")}
    yield from differing("states", left, {"COMPLETE_ABORT"})
    kstore("verify", root)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}


def same_markers(root: Path) -> Problems:
    """What differs between the markers of the two hanging transactions besides their producer and their time."""
    found = []
    for partition in HANGING:
        with open_log(root / f"{TOPIC}-{partition}") as log:
            *_, marker = log.batches()
            (record,) = marker.records()
            header = {
                name: getattr(marker, name)
                for name in ("is_control", "is_transactional", "producer_epoch", "base_sequence", "compression")
            }
            found.append({**header, "key": record.key, "value": record.value, "size": len(bytes(marker))})
    yield from differing("the marker", found[0], found[1])


def state_versions(root: Path) -> Problems:
    by_id: dict[str, list[tuple[int, Any]]] = {}
    with open_store(root) as store:
        for topic, number in store.partitions:
            if topic != TRANSACTION_STATE_TOPIC:
                continue
            for record in store.log(topic, number).read():
                decoded = decode_transaction_record(record.key, record.value)
                if isinstance(decoded.value, DecodedMessage) and isinstance(decoded.key, DecodedMessage):
                    fields = decoded.value.fields
                    known = by_id.setdefault(decoded.key.fields["transactionalId"], [])
                    known.append((decoded.value.version, fields.get("clientTransactionVersion")))
    yield from differing("ids", sorted(by_id), list(IDS))
    for name, versions in by_id.items():
        yield from differing(name, versions[-2:], [versions[0]] * 2 if versions[0][1] == 2 else [(1, 2)] * 2)


def gone_on(client: Client, broker: Broker, root: Path) -> Problems:
    for partition in range(PARTITIONS):
        (committed,) = client.ask("offsets", TOPIC, partition, "read_committed", LATEST)
        (end,) = client.ask("offsets", TOPIC, partition, "read_uncommitted", LATEST)
        yield from differing(f"last stable offset of {partition}", committed["offset"], end["offset"])
        client.ask("produce", TOPIC, partition, "none", 3, "commit")
        lines = client.ask("consume", TOPIC, partition, "read_committed")
        count = sum(line["case"] == "record" for line in lines)
        # The first transaction of `again` was committed, with a record in partition 2.
        yield from differing(f"committed records of {partition}", count, 4 if partition == 2 else 3)
    epochs = {one["transactional_id"]: one["producer_epoch"] for one in answers(client, "transactions")}
    with opened_transactions(broker, *OPENED):
        after = {one["transactional_id"]: one for one in answers(client, "transactions")}
        for name in IDS:
            grown = after[name]["producer_epoch"] - epochs[name]
            yield from differing(f"{name} goes on with the next epoch", grown, 2 if name == "again" else 1)
            yield from differing(f"{name}, state", after[name]["state"], "Ongoing")
    (answer,) = client.ask("committed", TOPIC, 1, "readers")
    yield from differing("offset of the aborted transaction", answer["offset"], -1)


def names_of(partitions: list[dict[str, Any]]) -> list[str]:
    return sorted(f"{one['topic']}-{one['partition']}" for one in partitions)
