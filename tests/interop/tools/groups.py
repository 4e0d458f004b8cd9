"""`kstore groups` beside kafka-consumer-groups: what it shows, and a broker that goes on with what it changed.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.broker import Broker, Client, tool
from tests.interop.store import Problems
from tests.interop.tools.running import answers, differing, kstore, made_broker, objects, table

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPIC, OTHER = "read", "other"
RECORDS = 40
CLOSED = {"old": "classic", "new": "consumer", "gone-old": "classic", "gone-new": "consumer", "less": "classic"}
LIVING = {"living-old": "classic", "living-new": "consumer"}
NONE = -1
SETTINGS = "offsets.topic.num.partitions=5\n"
UNKNOWN = "-"


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    broker = made_broker(work, SETTINGS)
    root = broker.root
    with broker.running() as client:
        for topic in (TOPIC, OTHER):
            client.ask("create", topic, 1)
            client.ask("produce", topic, 0, "none", RECORDS, "plain")
        for number, (group, protocol) in enumerate((CLOSED | LIVING).items(), 1):
            ends = "leave" if group in LIVING else "close"
            client.ask("group", TOPIC, 0, group, protocol, 3 * number, ends)
        client.ask("transact", OTHER, 0, "less", 7, "commit")
        yield "kstore groups beside a broker with living members", compared(client, root)
        yield (
            "kafka-consumer-groups --describe shows the same offsets and lags",
            described(broker, root, [*CLOSED, *LIVING]),
        )
    yield "kstore groups once the broker has stopped: the members are those that it would load", loaded(root)
    expected: dict[tuple[str, str], int] = {}
    yield "--reset, --delete and --delete-offsets, first as a dry run", changed(root, expected)
    with broker.running() as client:
        yield "the broker has the offsets that kstore set", committed(client, expected)
        yield (
            "kafka-consumer-groups --describe shows them too",
            described(broker, root, ["old", "new", "less", "fresh"]),
        )
        yield "kstore groups beside the broker after that", compared(client, root)
        yield "consumers go on there", resumed(client, expected)
        yield "kstore groups --reset chooses what kafka-consumer-groups --reset-offsets chooses", chosen(broker, root)
    yield "the broker loaded it without complaint", complaints(broker)


def compared(client: Client, root: Path) -> Problems:
    """What kstore says otherwise than Admin of the groups, their members and offsets."""
    wanted = sorted(answers(client, "groups"), key=lambda one: str(one["group"]))
    found = [
        {
            "group": one["group"],
            "type": one["type"],
            "state": one["state"],
            "members": sorted((member_of(member) for member in one["members"]), key=str),
            "offsets": {
                f"{offset['topic']}-{offset['partition']}": [
                    offset["offset"],
                    NONE if offset["leader_epoch"] is None else offset["leader_epoch"],
                    offset["metadata"],
                ]
                for offset in one["offsets"]
            },
        }
        for one in objects("groups", root)
    ]
    for group in wanted:
        for member in group["members"]:
            # Of a classic group Admin has no member epoch.
            member.pop("epoch")
        group["members"].sort(key=str)
        group.pop("protocol")
        group.pop("epoch")
    names = [one["group"] for one in wanted]
    yield from differing("groups", [one["group"] for one in found], names)
    for mine, theirs in zip(found, wanted, strict=False):
        yield from differing(str(theirs["group"]), mine, theirs)


def member_of(member: dict[str, Any]) -> dict[str, Any]:
    return {
        "member_id": member["member_id"],
        "client_id": member["client_id"],
        "instance_id": member["instance_id"],
        "host": member["host"],
        "assignment": sorted(f"{one['topic']}-{one['partition']}" for one in member["assignment"]),
    }


def described(broker: Broker, root: Path, groups: list[str]) -> Problems:
    """What the tool prints otherwise of offsets, log ends and lags than kstore."""
    address = f"127.0.0.1:{broker.port}"
    named = [word for group in groups for word in ("--group", group)]
    text = tool(COMMAND, "--bootstrap-server", address, "--describe", *named)
    wanted = {}
    for block in text.split("\n\n"):
        for row in table(block):
            if row.get("PARTITION", "").isdigit():
                numbers = (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"])
                wanted[row["GROUP"], row["TOPIC"], int(row["PARTITION"])] = numbers
    found = {
        (group["group"], offset["topic"], offset["partition"]): tuple(
            str(offset[name]) for name in ("offset", "log_end_offset", "lag")
        )
        for group in objects("groups", root, *named)
        for offset in group["offsets"]
    }
    yield from differing("offsets", found, wanted)
    states = tool(COMMAND, "--bootstrap-server", address, "--list", "--state")
    wanted_states = {row["GROUP"]: row["STATE"] for row in table(states)}
    listed = {one["group"]: one["state"] for one in objects("groups", root, "--list")}
    yield from differing("states", listed, wanted_states)


def loaded(root: Path) -> Problems:
    """A broker that stops tells no member to leave: they are still in its records."""
    found = {one["group"]: (one["type"], one["state"], len(one["members"])) for one in objects("groups", root)}
    kinds = {"classic": "Classic", "consumer": "Consumer"}
    wanted = {name: (kinds[protocol], "Empty", 0) for name, protocol in CLOSED.items()}
    wanted |= {name: (kinds[protocol], "Stable", 1) for name, protocol in LIVING.items()}
    yield from differing("groups", found, wanted)


def changed(root: Path, expected: dict[tuple[str, str], int]) -> Problems:
    changes = (
        ("--group", "old", "--reset", "--topic", TOPIC, "--to-offset", 11),
        ("--group", "new", "--reset", "--all-topics", "--shift-by", -2),
        ("--group", "fresh", "--reset", "--topic", f"{TOPIC}:0", "--to-latest"),
        ("--group", "gone-old", "--group", "gone-new", "--delete"),
        ("--group", "less", "--delete-offsets", "--topic", OTHER),
    )
    before = kstore("groups", root, "--json")
    for change in changes:
        tried = objects("groups", root, *change, "--dry-run")
        yield from differing(f"{change}, dry", {one.pop("written") for one in tried}, {False})
        yield from differing(f"{change}, groups after a dry run", kstore("groups", root, "--json"), before)
        done = objects("groups", root, *change)
        yield from differing(f"{change}, done", {one.pop("written") for one in done}, {True})
        yield from differing(str(change), done, tried)
        before = kstore("groups", root, "--json")
    text = kstore("groups", root, "--group", "living-old", "--reset", "--all-topics", "--to-latest", status=2)
    if "expected no members" not in text:
        yield f"a group with members: {text}"
    expected |= {
        ("old", TOPIC): 11,
        ("new", TOPIC): 4,
        ("fresh", TOPIC): RECORDS,
        ("gone-old", TOPIC): NONE,
        ("gone-new", TOPIC): NONE,
        ("less", TOPIC): 15,
        ("less", OTHER): NONE,
    }


def committed(client: Client, expected: dict[tuple[str, str], int]) -> Problems:
    for (group, topic), offset in expected.items():
        (answer,) = client.ask("committed", topic, 0, group)
        yield from differing(f"{group}, {topic}", answer["offset"], offset)
    names = {one["group"] for one in answers(client, "groups")}
    yield from differing("deleted groups", {"gone-old", "gone-new"} & names, set())


def resumed(client: Client, expected: dict[tuple[str, str], int]) -> Problems:
    for group, protocol in {"old": "classic", "new": "consumer", "gone-new": "consumer"}.items():
        (answer,) = client.ask("group", TOPIC, 0, group, protocol, 2, "close")
        yield from differing(group, answer["first"], max(expected[group, TOPIC], 0))


def chosen(broker: Broker, root: Path) -> Problems:
    """What a dry run of each tool chooses, for each way to choose."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(time.time() - 5))
    long_ago = "2001-01-01T00:00:00.000"
    ways = (
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-current",),
        ("--to-offset", 3),
        ("--to-offset", 4000),
        ("--shift-by", -1),
        ("--shift-by", 1000),
        ("--shift-by", -1000),
        ("--to-datetime", now),
        ("--to-datetime", long_ago),
        ("--by-duration", "P1D"),
        ("--by-duration", "PT0S"),
    )
    for way in ways:
        arguments = [str(part) for part in ("--group", "old", "--topic", TOPIC, *way)]
        text = tool(
            COMMAND, "--bootstrap-server", f"127.0.0.1:{broker.port}", "--reset-offsets", "--dry-run", *arguments
        )
        wanted = [int(row["NEW-OFFSET"]) for row in table(text[text.index("GROUP") :])]
        found = [one["offset"] for one in objects("groups", root, "--reset", "--dry-run", *arguments)]
        yield from differing(" ".join(map(str, way)), found, wanted)


def complaints(broker: Broker) -> Problems:
    for line in broker.lines:
        if line.startswith(("WARN", "ERROR")) and any(word in line for word in ("oordinator", "onsumer_offsets")):
            yield line
