"""Groups that a real broker's consumers and kstore's go on with in turn, by what the other committed.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kstore.consumer import Consumer, read_groups
from kstore.producer import Producer
from kstore.store.opening import open_log
from kstore.store.store import WritableStore, open_store
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.interop.broker import NODE_ID, Broker, Client
from tests.interop.store import CLUSTER_ID, Problems, topic_id

TOPIC = "read"
T0 = TopicPartition(TOPIC, 0)
RECORDS = 100
# By the protocols of groups: its classic one, and that of KIP-848.
PROTOCOLS = {"old": "classic", "new": "consumer"}
LEFT = {"left-old": "classic", "left-new": "consumer"}
NONE = -1
SETTINGS = "\noffsets.topic.num.partitions=3\n"
TROUBLE = re.compile(
    r"(?:Failed to load|Error loading|Unknown record|Exception).*(?:consumer_offsets|Group|offset)", re.I
)


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work, SETTINGS)
    broker.format(CLUSTER_ID)
    expected: dict[str, int] = {}
    with broker.running() as client:
        topic_id(client, TOPIC, ())
        client.ask("produce", TOPIC, 0, "none", RECORDS, "plain")
        yield "a broker's consumers begin", begun(client, expected)
    yield "kstore reads the groups that the broker left", read(root, expected)
    with open_store(root, "a") as store:
        yield "kstore's consumers go on where the broker's committed", resumed(store, expected)
        yield "kstore commits offsets in transactions", transacted(store, expected)
        yield "kstore reads what it committed", read(root, expected)
    with broker.running() as client:
        yield "the broker has what kstore committed", committed(client, expected)
        yield "a broker's consumers go on where kstore committed", taken_back(client, expected)
    yield "the broker loaded kstore's records without complaint", complaints(broker)
    yield "kstore reads the groups once more", read(root, expected)


def begun(client: Client, expected: dict[str, int]) -> Problems:
    for number, (group, protocol) in enumerate((PROTOCOLS | LEFT).items(), 1):
        leaves = "leave" if group in LEFT else "close"
        (answer,) = client.ask("group", TOPIC, 0, group, protocol, 10 * number, leaves)
        expected[group] = answer["position"]
        yield from differing(group, answer["first"], 0)
    client.ask("group", TOPIC, 0, "forgotten", "classic", 5, "close")
    client.ask("forget", TOPIC, 0, "forgotten")
    for group, offset, end in (("decided", 7, "commit"), ("decided", 9, "abort"), ("dropped", 9, "abort")):
        client.ask("transact", TOPIC, 0, group, offset, end)
    expected |= {"decided": 7, "dropped": NONE, "forgotten": NONE}
    yield from committed(client, expected)


def committed(client: Client, expected: dict[str, int]) -> Problems:
    for group, offset in expected.items():
        (answer,) = client.ask("committed", TOPIC, 0, group)
        yield from differing(group, answer["offset"], offset)


def read(root: Path, expected: dict[str, int]) -> Problems:
    with open_log(root / str(T0)) as log:
        end = log.log_end_offset
    found = {group.group_id: group for group in read_groups(root)}
    offsets = {name: group.offsets[T0].committed.offset for name, group in found.items() if group.offsets}
    yield from differing("offsets", offsets, {name: offset for name, offset in expected.items() if offset != NONE})
    for name, protocol in LEFT.items():
        group = found.get(name)
        if group is None:
            yield f"{name} is missing"
            continue
        shown = (group.type, group.state, group.offsets[T0].lag, [member.assignment for member in group.members])
        kind = "Classic" if protocol == "classic" else "Consumer"
        is_left = bool(group.members)
        wanted = (kind, "Stable" if is_left else "Empty", end - expected[name], [(T0,)] if is_left else [])
        yield from differing(name, shown, wanted)
    kinds = {name: (found[name].type, found[name].state) for name in PROTOCOLS if name in found}
    yield from differing("types", kinds, {"old": ("Classic", "Empty"), "new": ("Consumer", "Empty")})


def resumed(store: WritableStore, expected: dict[str, int]) -> Problems:
    for group in PROTOCOLS:
        with Consumer(store, group=group, topics=[TOPIC], max_poll_records=15, auto_offset_reset="none") as consumer:
            records = consumer.poll()
            yield from differing(group, [one.offset for one in records], [expected[group] + n for n in range(15)])
            consumer.commit()
            expected[group] += 15
    with Consumer(store, group="kstore", topics=[TOPIC]) as consumer:
        consumer.commit({T0: OffsetAndMetadata(12, "of kstore")})
        expected["kstore"] = 12


def transacted(store: WritableStore, expected: dict[str, int]) -> Problems:
    with Producer(store, transactional_id="kstore") as producer:
        producer.init_transactions()
        for group, offset, is_commit in (
            ("kstore-decided", 21, True),
            ("kstore-dropped", 22, False),
            ("old", 1, False),
        ):
            producer.begin_transaction()
            producer.send(TOPIC, b"of kstore", partition=0)
            producer.send_offsets_to_transaction({T0: offset}, group)
            (producer.commit_transaction if is_commit else producer.abort_transaction)()
    expected |= {"kstore-decided": 21, "kstore-dropped": NONE}
    with Consumer(store, group="kstore-decided", topics=[TOPIC]) as consumer:
        yield from differing("kstore-decided", consumer.position(T0), 21)


def taken_back(client: Client, expected: dict[str, int]) -> Problems:
    going_on = PROTOCOLS | {"kstore": "classic", "kstore-decided": "consumer", "decided": "classic"}
    for group, protocol in going_on.items():
        (answer,) = client.ask("group", TOPIC, 0, group, protocol, 3, "close")
        yield from differing(group, answer["first"], expected[group])
        expected[group] = answer["position"]


def complaints(broker: Broker) -> Problems:
    yield from (line for line in broker.lines if TROUBLE.search(line))


def differing(what: str, found: object, wanted: object) -> Problems:
    if found != wanted:
        yield f"{what}: expected {wanted}, found {found}"
