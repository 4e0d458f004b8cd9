"""`kstore ls`, `offsets`, `topics`, `move`, `delete-records` and `delete-topic` beside Kafka's tools, and a broker of
two log directories, which starts on what they left.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.broker import Broker, Client, tool
from tests.interop.store import ISOLATIONS, Problems, read_alike, records_of
from tests.interop.tools.running import answers, differing, kstore, made_broker, objects

GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
BIG, SMALL, GONE, COMPACTED = "big", "small", "gone", "compacted"
PARTITIONS = {BIG: 2, SMALL: 1, GONE: 1, COMPACTED: 1}
BIG_RECORDS, VALUE_BYTES = 200, 20_000
BEFORE = 120
METADATA = "__cluster_metadata"
Place = tuple[str, int]


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    other = work / "other"
    other.mkdir()
    broker = made_broker(work, f"log.dirs={work / 'root'},{other}\n")
    roots = (broker.root, other)
    with broker.running() as client:
        fill(client)
        yield "kstore ls has the sizes of kafka-log-dirs", sizes(client, broker, roots)
        yield "kstore offsets has the offsets of kafka-get-offsets", offsets(client, broker, roots)
    yield "kstore topics has the ids that the broker's metadata has", known(roots)
    home = next(root for root in roots if (root / f"{BIG}-0").exists())
    target = next(root for root in roots if root != home)
    yield "move, delete-records and delete-topic, first as a dry run", changed(work, roots, home, target)
    with broker.running() as client:
        yield "the broker serves what is left", served(client, roots, target)
        yield "kstore ls has the sizes of kafka-log-dirs after that", sizes(client, broker, roots)
        yield "kstore offsets has the offsets of kafka-get-offsets after that", offsets(client, broker, roots)
    yield "the broker renamed no partition away", strays(roots)


def fill(client: Client) -> None:
    for topic, count in PARTITIONS.items():
        settings = ("cleanup.policy=compact",) if topic == COMPACTED else ("segment.bytes=1048576",)
        client.ask("create", topic, count, *settings)
    for number in range(PARTITIONS[BIG]):
        client.ask("produce", BIG, number, "none", BIG_RECORDS, "plain", 0, VALUE_BYTES)
    for topic in (SMALL, GONE, COMPACTED):
        client.ask("produce", topic, 0, "lz4", 10, "plain", 3)
    client.ask("produce", SMALL, 0, "zstd", 5, "commit")
    client.ask("produce", SMALL, 0, "zstd", 5, "abort")


def listed(roots: tuple[Path, ...]) -> dict[Place, dict[str, Any]]:
    return {
        (one["topic"], one["partition"]): one | {"root": str(root)}
        for root in roots
        if any(path.is_dir() for path in root.glob("*-[0-9]"))
        for one in objects("ls", root)
    }


def sizes(client: Client, broker: Broker, roots: tuple[Path, ...]) -> Problems:
    found = {
        f"{topic}-{number}": (one["root"], one["size_in_bytes"], 0, False)
        for (topic, number), one in listed(roots).items()
        if topic != METADATA
    }
    wanted = {
        one["partition"]: (one["directory"], one["size"], one["offset_lag"], one["is_future"])
        for one in answers(client, "log-dirs")
    }
    yield from differing("Admin", found, wanted)
    text = tool(LOG_DIRS, "--bootstrap-server", f"127.0.0.1:{broker.port}", "--describe")
    shown = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    told = {
        one["partition"]: (directory["logDir"], one["size"], one["offsetLag"], one["isFuture"])
        for directory in shown["brokers"][0]["logDirs"]
        for one in directory["partitions"]
    }
    yield from differing("kafka-log-dirs", found, told)


def offsets(client: Client, broker: Broker, roots: tuple[Path, ...]) -> Problems:
    here = listed(roots)
    stamps = {one["last_timestamp_ms"] for one in here.values() if one["topic"] == SMALL}
    times = [-2, -1, -3, 0, *stamps, *(stamp + 1 for stamp in stamps), *(stamp - 5 for stamp in stamps)]
    for isolation in ISOLATIONS:
        for query in times:
            more = () if isolation == ISOLATIONS[0] else ("--isolation", isolation)
            found = found_offsets(roots, query, more)
            for topic, number in sorted(here):
                if topic == METADATA:
                    continue
                (answer,) = client.ask("offsets", topic, number, isolation, query)
                wanted = (answer["offset"], answer["timestamp_ms"])
                yield from differing(f"{topic}-{number}, {isolation}, {query}", found.get((topic, number)), wanted)
    for query in (-1, -2, -3):
        arguments = ("--bootstrap-server", f"127.0.0.1:{broker.port}", "--time", str(query))
        lines = [line.split(":") for line in tool(GET_OFFSETS, *arguments).splitlines() if line.count(":") == 2]
        told = {(topic, int(number)): int(offset or -1) for topic, number, offset in lines}
        found_all = {
            place: offset for place, (offset, _) in found_offsets(roots, query, ()).items() if place[0] != METADATA
        }
        # The tool leaves a partition out of which it has no offset.
        yield from differing(f"kafka-get-offsets {query}", {one: found_all[one] for one in told}, told)


def found_offsets(roots: tuple[Path, ...], query: int, more: tuple[str, ...]) -> dict[Place, tuple[int, int]]:
    return {
        (one["topic"], one["partition"]): (one["offset"], one["timestamp"])
        for root in roots
        for one in objects("offsets", root, "--time", query, *more)
    }


def known(roots: tuple[Path, ...]) -> Problems:
    found = {one["topic"]: one["cluster"] for one in objects("topics", roots[0]) if one["topic"] in PARTITIONS}
    yield from differing("topics", set(found.values()), {"same"})
    state = json.loads(kstore("metadata", roots[0], "topics", "--json"))
    ids = {one["topic"]: one["id"] for root in roots for one in objects("topics", root)}
    yield from differing("ids", ids, {name: topic["id"] for name, topic in state.items()})
    settings = {one["name"]: one["value"] for one in objects("configs", roots[0], "--topic", topic_of(roots[0]))}
    yield from differing("settings", settings, {"segment.bytes": "1048576"})


def topic_of(root: Path) -> str:
    """Return one of the topics with a setting that the root has a partition of."""
    return next(name for name in (BIG, SMALL, GONE) if list(root.glob(f"{name}-*")))


def changed(work: Path, roots: tuple[Path, ...], home: Path, target: Path) -> Problems:
    kept = next(root for root in roots if (root / f"{BIG}-1").exists())
    small = next(root for root in roots if (root / f"{SMALL}-0").exists())
    gone = next(root for root in roots if (root / f"{GONE}-0").exists())
    wanted = work / "delete.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": SMALL, "partition": 0, "offset": 4}], "version": 1}))
    changes = (
        ("move", home, "--topic", BIG, "--partition", 0, "--to", target),
        ("delete-records", target, "--topic", BIG, "--partition", 0, "--before", BEFORE),
        ("delete-records", kept, "--topic", BIG, "--partition", 1, "--before", -1),
        ("delete-records", small, "--from-file", wanted),
        ("delete-topic", gone, "--topic", GONE, "--force"),
    )
    for change in changes:
        before = contents(roots) if change[0] != "delete-records" or change[1] != target else None
        if before is not None:
            tried = objects(*change, "--dry-run")
            yield from differing(f"{change[0]}, files after a dry run", contents(roots), before)
            yield from differing(f"{change[0]}, dry", {one.pop("dry_run") for one in tried}, {True})
        done = objects(*change)
        yield from differing(f"{change[0]}, done", {one.pop("dry_run") for one in done}, {False})
        if before is not None:
            yield from differing(str(change[0]), done, tried)
    text = kstore("delete-records", small, "--topic", "__consumer_offsets", "--partition", 0, "--before", 1, status=2)
    if "no partition __consumer_offsets-0" not in text and "cleanup policy" not in text:
        yield text


def contents(roots: tuple[Path, ...]) -> list[tuple[str, int, int]]:
    files = (path for root in roots for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)


def served(client: Client, roots: tuple[Path, ...], target: Path) -> Problems:
    starts = {(BIG, 0): BEFORE, (BIG, 1): BIG_RECORDS, (SMALL, 0): 4, (GONE, 0): 0, (COMPACTED, 0): 0}
    ends = {(BIG, 0): BIG_RECORDS, (BIG, 1): BIG_RECORDS, (SMALL, 0): 22, (GONE, 0): 0, (COMPACTED, 0): 10}
    for place, start in starts.items():
        found = [one["offset"] for one in client.ask("offsets", *place, ISOLATIONS[0], -2, -1)]
        yield from differing(str(place), found, [start, ends[place]])
    (big,) = (one for one in answers(client, "log-dirs") if one["partition"] == f"{BIG}-0")
    yield from differing("the moved partition is in", big["directory"], str(target))
    for root in roots:
        names = [topic for topic in PARTITIONS if (root / f"{topic}-0").exists() and topic != GONE]
        yield from read_alike(client, root, tuple(names))
    yield from differing("records", len(records_of(client, BIG, ISOLATIONS[1])), BIG_RECORDS - BEFORE)
    for topic, count in PARTITIONS.items():
        for number in range(count):
            client.ask("produce", topic, number, "none", 5, "plain", 2)


def strays(roots: tuple[Path, ...]) -> Problems:
    for root in roots:
        yield from (str(path) for path in root.iterdir() if path.name.endswith(("-stray", "-future", "-delete")))
