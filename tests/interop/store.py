"""A root that kstore writes, before a real broker and behind it: what each makes of what the other left.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kstore.cli.offsets import LATEST, OffsetQuery, list_offset
from kstore.log.log import Log
from kstore.log.verify import verify
from kstore.store.store import WritableStore, open_store
from tests.interop.broker import NODE_ID, Broker, Client, build, tool
from tests.interop.comparison import Line, lines_of, records_difference
from tests.interop.store_topics import SMALL_SEGMENTS, TOPICS, Topic, Written, sent
from tests.reference.verdicts import as_reference

CLUSTER_ID = "a3N0b3JlLWludGVyb3AtMQ"
ISOLATIONS = ("read_uncommitted", "read_committed")
PARTITION_LINE = re.compile(r"\[LogLoader partition=(\S+),")
PRODUCER_STATE = re.compile(r"(?:till|state from|recovery from) offset (\d+)")
LOG_CLASSES = re.compile(r"^(?:WARN|ERROR) (?:kafka\.log|org\.apache\.kafka\.storage)")
RECOVERY = re.compile(r"recovering|recovered|rebuild(?:ing)? (?:index|the)|corrupt|truncat|invalid|not found", re.I)
DUMP_TROUBLE = re.compile(
    r"isvalid: false|mismatch|out of order|not found|Non-|trailing|Could not|exception|corrupt", re.I
)
KILLED_TOPIC = "killed"
PREALLOCATED_TOPIC = "killed-preallocated"
PREALLOCATED = replace(SMALL_SEGMENTS, preallocate=True)
ACKS_BEFORE_THE_KILL = 300
KILLED_WRITER = """
import sys
from dataclasses import replace
from kstore.store.store import open_store
from tests.interop.store_topics import SMALL_SEGMENTS, sent
store = open_store(sys.argv[1], "a", replace(SMALL_SEGMENTS, preallocate=sys.argv[3] == "True"))
log = store.log(sys.argv[2])
while True:
    print(log.append(sent(3)[1]).last_offset, flush=True)
"""

Problems = Iterator[str]


def run(steps: Iterable[tuple[str, Problems]], say: Any) -> int:
    """Take all steps; return the number of problems."""
    build()
    problems = 0
    for name, found in steps:
        count = 0
        for problem in found:
            count += 1
            say(f"  {problem[:500]}")
        say(f"{name}: {'all equal' if not count else f'{count} differ'}")
        problems += count
    return problems


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        ids = {topic.name: topic_id(client, topic.name, topic.settings) for topic in TOPICS}
        for name in (KILLED_TOPIC, PREALLOCATED_TOPIC):
            ids[name] = topic_id(client, name, ())
    yield "a broker loads the empty root that kstore made", clean_start(broker, set())
    for directory in root.glob("*-0"):
        shutil.rmtree(directory)
    written = fill(root, ids)
    yield "DumpLogSegments reads what kstore wrote", dumped(root)
    ends: dict[str, int] = {}
    with broker.running() as client:
        yield "a consumer reads what kstore wrote", consumed(client, written)
        yield "the broker answers ListOffsets as kstore does", listed(client, root, written)
        yield "the broker appends behind kstore", appended(client, written, ends)
    yield "the broker recovers and rebuilds nothing of a root that kstore closed", clean_start(broker, set(written))
    yield "kstore goes on after the broker", gone_on(root, ends)
    yield "DumpLogSegments reads what both wrote", dumped(root)
    acknowledged = kill_writer(root, PREALLOCATED_TOPIC, is_preallocated=True)
    yield "kstore recovers a preallocated log and leaves no zeros in it", recovered(root)
    with broker.running() as client:
        yield "a consumer gets all of it", after_kill(client, PREALLOCATED_TOPIC, acknowledged)
    acknowledged = kill_writer(root, KILLED_TOPIC, is_preallocated=False)
    with broker.running() as client:
        yield "a consumer gets what a killed kstore wrote", after_kill(client, KILLED_TOPIC, acknowledged)
        yield "a consumer reads what both wrote as kstore does", read_alike(client, root, tuple(written))
    yield "DumpLogSegments reads what the broker recovered", dumped(root)


def topic_id(client: Client, name: str, settings: tuple[str, ...]) -> str:
    (answer,) = client.ask("create", name, 1, *settings)
    return str(answer["topic_id"])


def fill(root: Path, ids: dict[str, str]) -> dict[str, Written]:
    configs = {topic.name: topic.config for topic in TOPICS}
    with open_store(root, "a", topic_configs=configs) as store:
        for name in (KILLED_TOPIC, PREALLOCATED_TOPIC):
            store.create_topic(name, topic_id=ids[name])
        return {topic.name: filled(store, topic, ids[topic.name]) for topic in TOPICS}


def filled(store: WritableStore, topic: Topic, topic_id: str) -> Written:
    store.create_topic(topic.name, topic_id=topic_id)
    return topic.write(store.log(topic.name))


def consumed(client: Client, written: dict[str, Written]) -> Problems:
    for name, expected in written.items():
        for isolation in ISOLATIONS:
            records = expected.visible if isolation == ISOLATIONS[0] else expected.committed()
            problem = records_difference(records_of(client, name, isolation), records)
            if problem is not None:
                yield f"{name}, {isolation}: {problem}"


def records_of(client: Client, topic: str, isolation: str) -> list[Line]:
    lines = client.ask("consume", topic, 0, isolation)
    return [line for line in lines if line["case"] == "record"]


def listed(client: Client, root: Path, written: dict[str, Written]) -> Problems:
    with open_store(root) as store:
        for name, expected in written.items():
            stamps = sorted({record.timestamp_ms for record in expected.visible})
            queries = [-1, -2, -3, 0, *stamps[:: max(len(stamps) // 20, 1)], *(stamp + 1 for stamp in stamps[-1:])]
            for isolation in ISOLATIONS:
                for answer in client.ask("offsets", name, 0, isolation, *queries):
                    found = answer["offset"], answer["timestamp_ms"]
                    wanted = wanted_offset(store.log(name), answer["query"], isolation, expected)
                    if found != wanted:
                        yield f"{name}, {isolation}, {answer['query']}: {found} in place of {wanted}"


def wanted_offset(log: Log, query: int, isolation: str, expected: Written) -> tuple[int, int]:
    answer = list_offset(log, OffsetQuery(query, only_committed=isolation == ISOLATIONS[1]))
    if query == LATEST and isolation == ISOLATIONS[0] and answer.offset != expected.log_end_offset:
        raise AssertionError(f"kstore ends at {answer.offset}, expected {expected.log_end_offset}")
    return tuple(answer)


def appended(client: Client, written: dict[str, Written], ends: dict[str, int]) -> Problems:
    """Let the broker append to each topic; note where it ends then."""
    for name, expected in written.items():
        client.ask("produce", name, 0, "zstd", 20, "plain")
        for mode in ("commit", "abort"):
            client.ask("produce", name, 0, "lz4", 5, mode)
        (end,) = client.ask("offsets", name, 0, ISOLATIONS[0], LATEST)
        # Two transactions of 5 records and their markers.
        if end["offset"] != expected.log_end_offset + 20 + 2 * 6:
            yield f"{name}: ends at {end['offset']} after {expected.log_end_offset} and 32 offsets of the broker"
        ends[name] = end["offset"]


def gone_on(root: Path, ends: dict[str, int]) -> Problems:
    """Open behind the broker, compare with where it stopped, append, read all."""
    with open_store(root, "a") as store:
        for topic_partition, report in store.recovery_reports.items():
            yield f"{topic_partition} was recovered: {report}"
        for name, end in ends.items():
            log = store.log(name)
            if log.log_end_offset != end:
                yield f"{name}: ends at {log.log_end_offset} for kstore, at {end} for the broker"
                continue
            rows, data = sent(7)
            base = log.append(data).base_offset
            expected = [row._replace(offset=base + number) for number, row in enumerate(rows)]
            found = [as_reference(record) for record in log.read(base)]
            if found != expected:
                yield f"{name}: read {found[:1]} behind the broker in place of {expected[:1]}"
            if sum(1 for _ in log.read()) < len(expected):
                yield f"{name}: has fewer records than were appended"


def clean_start(broker: Broker, names: set[str]) -> Problems:
    """The broker's last start loaded these topics and said nothing of recovery or rebuilding."""
    loaded = set()
    for line in broker.lines:
        partition = PARTITION_LINE.search(line)
        is_of_root = str(broker.root) in line
        if LOG_CLASSES.search(line) or (partition and is_of_root and RECOVERY.search(line)):
            yield line
        offsets = set(PRODUCER_STATE.findall(line))
        if partition and is_of_root and offsets:
            loaded.add((partition[1], *offsets))
    starts: dict[str, set[str]] = {}
    for name, *offsets in loaded:
        starts.setdefault(name, set()).update(offsets)
    for name, offsets in starts.items():
        if len(offsets) > 1:
            yield f"{name}: producer state rebuilt from {min(offsets, key=int)} to {max(offsets, key=int)}"
    missing = names - {name.rpartition("-")[0] for name in starts}
    if missing:
        yield f"not loaded: {', '.join(sorted(missing))}"


def dumped(root: Path) -> Problems:
    """What DumpLogSegments complains of in any file of the root's partitions."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(path for path in root.glob("*-0/*") if path.suffix in suffixes)
    for start in range(0, len(files), 400):
        names = ",".join(map(str, files[start : start + 400]))
        text = tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names)
        current = ""
        for line in text.splitlines():
            current = line if line.startswith("Dumping") else current
            if DUMP_TROUBLE.search(line):
                yield f"{current}: {line}"


def read_alike(client: Client, root: Path, names: tuple[str, ...]) -> Problems:
    with open_store(root) as store:
        for name in names:
            for isolation in ISOLATIONS:
                expected = [as_reference(record) for record in store.log(name).read(isolation=isolation)]
                problem = records_difference(records_of(client, name, isolation), expected)
                if problem is not None:
                    yield f"{name}, {isolation}: {problem}"


def recovered(root: Path) -> Problems:
    """What is wrong once kstore has recovered the root, with zeros after each segment as a crash may leave them."""
    for path in sorted((root / f"{PREALLOCATED_TOPIC}-0").glob("*.log"))[:-1]:
        with path.open("ab") as file:
            file.write(bytes(max(PREALLOCATED.segment_bytes - path.stat().st_size, 0)))
    with open_store(root, "a", PREALLOCATED):
        pass
    with open_store(root) as store:
        for damage in verify(store.log(PREALLOCATED_TOPIC)):
            yield str(damage)


def kill_writer(root: Path, topic: str, *, is_preallocated: bool) -> int:
    """Kill a process that appends; return the last offset that it was told of."""
    command = (sys.executable, "-c", KILLED_WRITER, str(root), topic, str(is_preallocated))
    last = -1
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        if process.stdout is None:
            raise AssertionError("no pipe")
        for number, line in enumerate(process.stdout):
            last = int(line)
            if number == ACKS_BEFORE_THE_KILL:
                process.send_signal(signal.SIGKILL)
                break
        for line in process.stdout:
            last = int(line)
    return last


def after_kill(client: Client, topic: str, acknowledged: int) -> Problems:
    found = records_of(client, topic, ISOLATIONS[0])
    rows = sent(3)[0]
    expected = [rows[number % 3]._replace(offset=number) for number in range(max(len(found), acknowledged + 1))]
    wanted = lines_of(expected)
    for line, other in zip(found, wanted, strict=False):
        if any(line[name] != other[name] for name in ("offset", "key", "value")):
            yield f"{line} in place of {other}"
            return
    if len(found) <= acknowledged:
        yield f"{len(found)} records, {acknowledged + 1} were acknowledged"
