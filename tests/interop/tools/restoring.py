"""`kstore restore` of part of a topic and `kstore import`: what kafka-dump-log says of them, and what a broker serves.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from kstore.store.opening import open_log
from tests.interop.broker import Client
from tests.interop.comparison import hashed
from tests.interop.store import ISOLATIONS, Problems, dumped, read_alike, records_of
from tests.interop.tools.running import differing, kstore, made_broker, objects
from tests.reference.verdicts import as_reference

SOURCE, PART, SETTLED, LINES, KCAT = "source", "part", "settled", "lines", "kcat"
TARGETS = (PART, SETTLED, LINES, KCAT)
# Inside of a batch, and of the aborted transaction.
END = 37
COUNT = 500


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    broker = made_broker(work)
    root, copy = broker.root, work / "copy"
    with broker.running() as client:
        for topic in (SOURCE, *TARGETS):
            client.ask("create", topic, 1)
        fill(client)
    copy.mkdir()
    shutil.copytree(root / f"{SOURCE}-0", copy / f"{SOURCE}-0")
    yield "restore up to an offset inside of a batch and a transaction, and before it", restored(root, copy)
    yield "import of lines and of kcat's JSON", imported(work, root)
    yield "kafka-dump-log reads all of it", dumped(root)
    with broker.running() as client:
        yield "the broker serves it", served(client, root)
        yield "the broker goes on in it", gone_on(client)
    yield "kafka-dump-log reads what the broker added", dumped(root)


def fill(client: Client) -> None:
    client.ask("produce", SOURCE, 0, "none", 10, "plain", 3)
    client.ask("produce", SOURCE, 0, "lz4", 10, "commit", 3)
    client.ask("produce", SOURCE, 0, "zstd", 20, "abort", 3)
    client.ask("produce", SOURCE, 0, "gzip", 10, "plain", 3)


def restored(root: Path, copy: Path) -> Problems:
    arguments = ("restore", copy / f"{SOURCE}-0", root, "--to", END)
    before = sorted(path.stat().st_size for path in root.rglob("*.log"))
    (tried,) = objects(*arguments, "--topic-as", PART, "--dry-run")
    yield from differing("sizes", sorted(path.stat().st_size for path in root.rglob("*.log")), before)
    (done,) = objects(*arguments, "--topic-as", PART)
    yield from differing("what it did", done | {"is_dry_run": True}, tried)
    yield from differing("the end", (done["end_offset"], done["is_cut"]), (END, True))
    (settled,) = objects(*arguments, "--topic-as", SETTLED, "--open-transactions", "wait")
    yield from differing("the end without the transaction", settled["end_offset"], 21)
    with open_log(copy / f"{SOURCE}-0") as source, open_log(root / f"{PART}-0") as part:
        wanted = [as_reference(one) for one in source.read() if one.offset < END]
        yield from differing("records", [as_reference(one) for one in part.read()], wanted)


def imported(work: Path, root: Path) -> Problems:
    text = work / "values.txt"
    text.write_text("".join(f"key-{number}|value {number}\n" for number in range(COUNT)))
    (done,) = objects("import", text, root / f"{LINES}-0", "--lines", "--key-separator", "|", "--compression", "zstd")
    yield from differing("lines", (done["records"], done["log_end_offset"]), (COUNT, COUNT))
    lines = work / "kcat.json"
    lines.write_text(
        "".join(
            json.dumps(
                {
                    "topic": KCAT,
                    "partition": 0,
                    "offset": number,
                    "tstype": "create",
                    "ts": 1_700_000_000_000 + number,
                    "headers": ["h", str(number)],
                    "key": None if number % 2 else f"k{number}",
                    "payload": None if number % 7 == 0 else f"v{number}",
                }
            )
            + "\n"
            for number in range(COUNT)
        )
    )
    (done,) = objects("import", lines, root, "--format", "kcat", "--compression", "lz4")
    yield from differing("kcat", (done["records"], done["log_end_offset"]), (COUNT, COUNT))
    kstore("verify", root)


def served(client: Client, root: Path) -> Problems:
    yield from read_alike(client, root, TARGETS)
    values = [line["value"] for line in records_of(client, LINES, ISOLATIONS[0])]
    yield from differing("lines", values, [hashed(b"value %d" % number) for number in range(COUNT)])
    stamps = [line["timestamp_ms"] for line in records_of(client, KCAT, ISOLATIONS[0])]
    yield from differing("times", stamps, [1_700_000_000_000 + number for number in range(COUNT)])
    (committed,) = client.ask("offsets", PART, 0, ISOLATIONS[1], -1)
    # The transaction that is open there begins behind the first two appends and a marker.
    yield from differing("last stable offset", committed["offset"], 21)


def gone_on(client: Client) -> Problems:
    for topic in TARGETS:
        (end,) = client.ask("offsets", topic, 0, ISOLATIONS[0], -1)
        (answer,) = client.ask("produce", topic, 0, "none", 3, "plain")
        yield from differing(topic, answer["last_offset"], end["offset"] + 2)
