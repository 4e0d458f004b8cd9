"""Kafka's command line tools and its verifiable producer and consumer, on `kstore serve` and on a broker.

Each command is run by its main class against both; its status and what it prints are the same, but for addresses, ids,
times and directories, or a known difference.
Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.broker import SMALL_JVM, java
from tests.interop.clients_jvm.java_clients import pair, stopped
from tests.interop.clients_jvm.known import OF_TOOLS
from tests.interop.programs import Unavailable
from tests.interop.serving import compared
from tests.interop.store import Problems

TOOLS = "org.apache.kafka.tools"
MAIN = {
    "topics": f"{TOOLS}.TopicCommand",
    "producer": f"{TOOLS}.ConsoleProducer",
    "consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "verifiable producer": f"{TOOLS}.VerifiableProducer",
    "verifiable consumer": f"{TOOLS}.VerifiableConsumer",
    "get offsets": f"{TOOLS}.GetOffsetShell",
    "consumer groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "groups": f"{TOOLS}.GroupsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "delete records": f"{TOOLS}.DeleteRecordsCommand",
    "log dirs": f"{TOOLS}.LogDirsCommand",
    "transactions": f"{TOOLS}.TransactionsCommand",
    "features": f"{TOOLS}.FeatureCommand",
    "api versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "quorum": f"{TOOLS}.MetadataQuorumCommand",
    "cluster": f"{TOOLS}.ClusterTool",
    "acls": f"{TOOLS}.AclCommand",
    "leader election": f"{TOOLS}.LeaderElectionCommand",
    "client metrics": f"{TOOLS}.ClientMetricsCommand",
    "producer performance": f"{TOOLS}.ProducerPerformance",
    "consumer performance": f"{TOOLS}.ConsumerPerformance",
}
# These want the address under another name, or in their own place.
OPTION = {"cluster": "", "leader election": "--bootstrap-server", "producer performance": ""}
# It closes its producer when its process ends.
ALONE = "verifiable producer"
LISTS = ("consumer groups", "groups", "get offsets", "transactions")
# Tools of which each line is an answer of its own, and the name that it has.
NAMED_LINES: dict[str, Callable[[str], str]] = {
    "api versions": lambda line: line.split(":")[0],
    "features": lambda line: line.split()[1],
}
MESSAGES = 200
MASKS = (
    (re.compile(r"127\.0\.0\.1:\d+|localhost:\d+"), "ADDRESS"),
    (re.compile(r"127\.0\.0\.1\s+\d+"), "HOST PORT"),
    (re.compile(r"127\.0\.0\.1"), "HOST"),
    (re.compile(r"\bEpoch: \d+"), "Epoch: N"),
    (re.compile(r'"size":\d+'), '"size":N'),
    (re.compile(r"^\d+(?=\s+0\s+-1\s+\d+\s+\d{13})", re.M), "PRODUCER"),
    (re.compile(r'"/[^"]*/root"'), '"ROOT"'),
    (re.compile(r"\b(TopicId: |--topic-id )[\w-]{22}"), r"\1ID"),
    (re.compile(r"\b[\w-]*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "MEMBER"),
    (re.compile(r"\bconsole-consumer-\d+"), "console-consumer-N"),
    # What is wrong is told in words of kstore's own.
    (re.compile(r"(Error while executing [\w ]+ : |\.\w+Exception: ).*"), r"\1TEXT"),
    (re.compile(r"\b\d{13}\b"), "MS"),
    (re.compile(r"\b\d+\.\d+\b"), "N.N"),
    (re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.:\d]*\]?"), "TIME"),
)
UNTOLD = re.compile(r"^\s+at |^SLF4J|^\s*\.\.\. \d+ more")


class Command(NamedTuple):
    """A tool, its words, what it reads, and how many lines it prints where their figures are not compared."""

    tool: str
    arguments: str
    input: str = ""
    lines: int | None = None


GROUP = "--describe --group g"
COMMANDS = (
    Command("topics", "--create --topic one --partitions 1 --replication-factor 1"),
    Command("topics", "--create --topic three --partitions 3 --config retention.ms=7200000"),
    Command("topics", "--create --topic one --partitions 1"),
    Command("topics", "--create --topic one --if-not-exists"),
    Command("topics", "--create --topic two --replication-factor 2"),
    Command("topics", "--create --topic bad --config no.such=1"),
    Command("topics", "--list"),
    Command("topics", "--describe --exclude-internal"),
    Command("topics", "--describe --topic three"),
    Command("topics", "--describe --topic no-such"),
    Command("topics", "--describe --topics-with-overrides --exclude-internal"),
    Command("topics", "--describe --under-replicated-partitions"),
    Command("topics", "--alter --topic three --partitions 5"),
    Command("topics", "--alter --topic three --partitions 2"),
    Command("producer", "--topic one", "a\nb\nc\n"),
    Command(
        "producer",
        "--topic one --compression-codec zstd --property parse.key=true --property parse.headers=true "
        "--property headers.delimiter=| --property key.separator=:",
        "h:1,i:2|key:value\nh:3|other:more\n",
    ),
    Command("producer", "--topic one --sync --request-required-acks all --compression-codec gzip", "sync\n"),
    Command("consumer", "--topic one --from-beginning --max-messages 6 --group g"),
    Command(
        "consumer",
        "--topic one --partition 0 --offset 2 --max-messages 4 --isolation-level read_committed "
        "--property print.key=true --property print.headers=true --property print.offset=true "
        "--property print.partition=true",
    ),
    Command("consumer", "--topic one --partition 0 --offset latest --timeout-ms 1500"),
    Command("consumer", "--topic __consumer_offsets --from-beginning --timeout-ms 3000", lines=0),
    Command(
        "verifiable producer", f"--topic three --max-messages {MESSAGES} --acks -1 --repeating-keys 7", lines=MESSAGES
    ),
    Command(
        "verifiable consumer", f"--topic three --group-id v --max-messages {MESSAGES} --reset-policy earliest", lines=0
    ),
    Command(
        "verifiable consumer",
        f"--topic three --group-id w --max-messages {MESSAGES} --reset-policy earliest --group-protocol consumer",
    ),
    *(Command("get offsets", f"--topic one --time {time}") for time in ("-1", "-2", "-3", "0", "latest", "earliest")),
    Command("get offsets", "--topic-partitions one:0,three:0-9"),
    Command("get offsets", "--exclude-internal-topics"),
    Command("get offsets", "--topic no-such"),
    Command("consumer groups", "--list"),
    Command("consumer groups", "--list --state"),
    Command("consumer groups", "--list --type"),
    Command("groups", "--list"),
    Command("groups", "--list --consumer"),
    Command("consumer groups", GROUP),
    Command("consumer groups", f"{GROUP} --state"),
    Command("consumer groups", f"{GROUP} --members --verbose"),
    Command("consumer groups", f"{GROUP} --offsets --verbose"),
    Command("consumer groups", "--describe --group no-such"),
    *(
        Command("consumer groups", f"--reset-offsets --group g --topic one {how}")
        for how in (
            "--to-earliest --dry-run",
            "--to-latest --dry-run",
            "--to-offset 3 --execute",
            "--shift-by -1 --execute",
            "--shift-by 99 --execute",
            "--to-datetime 2020-01-01T00:00:00.000 --dry-run",
            "--by-duration PT0S --dry-run",
            "--to-current --export --dry-run",
        )
    ),
    Command("consumer groups", "--reset-offsets --group fresh --topic three --to-earliest --execute"),
    Command("consumer groups", GROUP),
    Command("consumer groups", "--delete-offsets --group g --topic one"),
    Command("consumer groups", "--delete-offsets --group g --topic no-such"),
    Command("consumer groups", "--delete --group fresh --group no-such"),
    Command("configs", "--describe --entity-type topics --entity-name three"),
    Command(
        "configs",
        "--alter --entity-type topics --entity-name three --add-config max.message.bytes=2000,segment.ms=9000",
    ),
    Command("configs", "--alter --entity-type topics --entity-name three --delete-config retention.ms"),
    Command("configs", "--alter --entity-type topics --entity-name three --add-config no.such=1"),
    Command("configs", "--alter --entity-type topics --entity-name no-such --add-config segment.ms=9000"),
    Command("configs", "--describe --entity-type topics --entity-name three"),
    Command("configs", "--describe --entity-type brokers --entity-default"),
    Command("configs", "--describe --entity-type users"),
    Command("configs", "--describe --entity-type groups --entity-name g"),
    Command("producer", "--topic three", "too long " * 500 + "\n"),
    Command("delete records", "--offset-json-file DELETIONS"),
    Command("get offsets", "--topic one --time -2"),
    Command("log dirs", "--describe --topic-list one"),
    Command("transactions", "list"),
    Command("transactions", "describe --transactional-id no-such"),
    Command("transactions", "describe-producers --topic one --partition 0"),
    Command("transactions", "find-hanging --broker-id 1"),
    Command("features", "describe"),
    Command("api versions", ""),
    Command("quorum", "describe --status", lines=0),
    Command("cluster", "cluster-id --bootstrap-server ADDRESS"),
    Command("cluster", "list-endpoints --bootstrap-server ADDRESS"),
    Command("acls", "--list"),
    Command("leader election", "--election-type preferred --topic one --partition 0"),
    Command("client metrics", "--list"),
    Command(
        "producer performance",
        "--topic one --num-records 500 --record-size 100 --throughput -1 --producer-props bootstrap.servers=ADDRESS",
        lines=1,
    ),
    Command("consumer performance", "--topic one --messages 400", lines=2),
    Command("topics", "--delete --topic three"),
    Command("topics", "--delete --topic no-such"),
)


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    servers = pair(work)
    with ThreadPoolExecutor(len(servers)) as pool:
        of_broker, of_kstore = pool.map(lambda server: answers(server.address, work), servers)
    yield f"Kafka's tools, {len(COMMANDS)} commands", compared(of_broker, of_kstore, OF_TOOLS)
    yield "the server has no fault", stopped(servers)


def answers(address: str, work: Path) -> dict[str, Any]:
    """Run all commands; return what each said, by its words; of one that is run twice, the second one with a number."""
    deletions = work / "deletions.json"
    deletions.write_text(json.dumps({"version": 1, "partitions": [{"topic": "one", "partition": 0, "offset": 2}]}))
    found: dict[str, Any] = {}
    quiet = tuple(part.replace("LogLevel=info", "LogLevel=off") for part in java("ToolRunner", jvm=SMALL_JVM))
    with subprocess.Popen(quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise Unavailable("java has no pipes")
        for command in COMMANDS:
            words = [
                word.replace("ADDRESS", address).replace("DELETIONS", str(deletions))
                for word in command.arguments.split()
            ]
            name = OPTION.get(command.tool, "--bootstrap-server")
            asked = {"main": MAIN[command.tool], "arguments": [*((name, address) if name else ()), *words]}
            if command.tool == ALONE:
                said = alone(asked["main"], asked["arguments"])
            else:
                process.stdin.write(json.dumps({**asked, "input": command.input}) + "\n")
                process.stdin.flush()
                said = json.loads(process.stdout.readline())
            question = f"kafka-{command.tool.replace(' ', '-')} {command.arguments}".strip()
            while question in found:
                question += " again"
            if command.tool in NAMED_LINES:
                lines = told(said["out"])
                found.update((f"{question}: {NAMED_LINES[command.tool](line)}", line.rstrip(",")) for line in lines)
            else:
                found[question] = answered(command, said)
        process.stdin.close()
    return found


def alone(main: str, arguments: list[str]) -> dict[str, Any]:
    """Run a tool in a process of its own."""
    quiet = [part.replace("LogLevel=info", "LogLevel=off") for part in java(main, *arguments)]
    done = subprocess.run(quiet, capture_output=True, text=True, check=False)
    return {"status": done.returncode, "out": done.stdout, "err": done.stderr}


def events(text: str) -> dict[str, int]:
    """Return how often each event is in the lines of a verifiable client, and how many records they count."""
    found: Counter[str] = Counter()
    for event in map(json.loads, text.splitlines()):
        if event["name"] in ("producer_send_success", "producer_send_error"):
            found[event["name"]] += 1
        elif event["name"] == "records_consumed":
            found["records"] += event["count"]
    return dict(found)


def answered(command: Command, said: dict[str, Any]) -> dict[str, Any]:
    if command.tool.startswith("verifiable"):
        return {"status": said["status"], **events(said["out"])}
    # Groups and partitions are listed in the order of no rule.
    out, err = told(said["out"], is_sorted=command.tool in LISTS), told(said["err"])
    if command.lines is None:
        return {"status": said["status"], "out": out, "err": err}
    return {"status": said["status"], "lines": min(len(out), command.lines)}


def told(text: str, *, is_sorted: bool = False) -> list[str]:
    """Return the lines of an output without what is of one server alone, and without stack traces."""
    for mask, word in MASKS:
        text = mask.sub(word, text)
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip() and not UNTOLD.match(line)]
    return sorted(lines) if is_sorted else lines
