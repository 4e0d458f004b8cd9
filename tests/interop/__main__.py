"""`python -m tests.interop`: kstore and Kafka's own classes write the matrix of making/matrix.py for each other.

kstore and a real broker write one root by turns, and so do their producers; kstore and Kafka's UnifiedLog take the
same random histories; kstore reads and verifies while a broker writes; a broker loads what kstore exported, and what
it recovered; kstore's commands of an operator show and do on a broker's directories what Kafka's tools do; brokers of
three releases start on roots that kstore adopted; kstore asks a schema registry that runs; a broker answers requests
made by hand with the codes of a table, and those of each api and version that kstore has, and members and producers of
random histories. The tables of Kafka's protocol are compared with Kafka's definitions.
The own tests of franz-go and librdkafka find a server of kstore as they want a broker; clients of many languages do the
same with a server and with a broker, and are told the same.
Kafka's Java clients and command line tools, Kafka Streams and Spark's Kafka connector get of `kstore serve` what a
broker gives them, and living clients go on when one takes a root over from the other.
Needs Maven, a JDK and Go; what is fetched is kept in build/interop. Ends with 1 if a case differs or the tools can't be
had, with 77 if the only part that is wanted needs a tool that is not there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kstore.record import MemoryRecords
from tests.fuzz.message_mutator import MessageMutator
from tests.interop import (
    adopted,
    archive,
    cleaning,
    coordinators,
    definitions,
    groups,
    hand_made,
    live,
    producing,
    protocol,
    recovered,
    registries,
    replaying,
    staging,
    store,
    transacting,
    transactions,
)
from tests.interop.clients import franz_go, kinds, lane, librdkafka
from tests.interop.clients_jvm import console_tools, handover, java_clients, spark_connector, streams
from tests.interop.comparison import Line, bytes_problem, reading_problem, records_difference, records_problem
from tests.interop.histories import running as histories
from tests.interop.programs import (
    CLIENTS,
    SOURCES,
    Client,
    Missing,
    Unavailable,
    build,
    fetch_jars,
    reports,
    require_tools,
)
from tests.interop.recipes import recipe
from tests.interop.tools import lane as tools
from tests.making import matrix
from tests.making.in_memory import IN_MEMORY
from tests.making.matrix import Case
from tests.making.writing import WRITTEN_MAGICS, write_case
from tests.reference.codec import LOG_APPEND_TIME
from tests.reference.verdicts import Refused, kstore_verdict

READ_MAGICS = (0, 1, 2)
ALL_MAGICS = (0, 1, 2)
# A producer's offsets have no gaps.
NOT_OF_A_PRODUCER = {"gaps"}
MOST_SHOWN = 10
WITH_A_BROKER = {
    "broker": store.steps,
    "cleaning": cleaning.steps,
    "transactions": transactions.steps,
    "transacting": transacting.steps,
    "coordinators": coordinators.steps,
    "staging": staging.steps,
    "producer": producing.steps,
    "archive": archive.steps,
    "groups": groups.steps,
    "replay": replaying.steps,
    "protocol": protocol.steps,
    "tools": tools.steps,
    "adopt": adopted.steps,
    "registries": registries.steps,
    "codes": hand_made.steps,
}
# Of a server of kstore; each needs tools of its own.
OF_A_SERVER = {
    "franz-go": franz_go.steps,
    "java-clients": java_clients.steps,
    "java-tools": console_tools.steps,
    "streams": streams.steps,
    "spark-connector": spark_connector.steps,
    "handover": handover.steps,
    "librdkafka": librdkafka.steps,
}
MISSING_STATUS = 77
RECORDS = "records"
OTHERS = "clients"
WIRE = "wire"
LIVE = "live"
RECOVERED = "recovered"
HISTORIES: dict[str, histories.Kind] = {"histories": "plain", "retention": "retained", "compactions": "compacted"}
PARTS = (RECORDS, WIRE, *HISTORIES, *WITH_A_BROKER, *OF_A_SERVER, OTHERS, RECOVERED, LIVE)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Tally:
    """Counts the cases of one comparison and says how it went."""

    def __init__(self, claim: str) -> None:
        self.claim = claim
        self.count = 0
        self.problems: list[str] = []

    def note(self, name: str, problem: str | None) -> None:
        self.count += 1
        if problem is not None:
            self.problems.append(f"  {name}: {problem}")

    def tell(self) -> int:
        """Print the result; return the number of problems."""
        verdict = "all equal" if not self.problems else f"{len(self.problems)} differ"
        say(f"{self.claim}: {self.count} cases, {verdict}")
        for problem in self.problems[:MOST_SHOWN]:
            say(problem)
        return len(self.problems)


def matched(
    client: Client, mode: str, directory: Path, cases: dict[str, Case], check: Callable[[Case, list[Line]], None]
) -> None:
    """Run the program and check the lines of each case; a case without a line has none."""
    missing = dict(cases)
    for name, lines in reports(client, mode, directory):
        check(missing.pop(name), lines)
    for case in missing.values():
        check(case, [])


def kafka_reads(client: Client, directory: Path, *, writer: str) -> int:
    """Kafka reads what kstore wrote."""
    magics = [magic for magic in client.reads if magic in WRITTEN_MAGICS[writer]]
    cases = {case.name: case for case in matrix.cases(*magics)}
    if not cases:
        return 0
    written = {name: write_case(writer, case) for name, case in cases.items()}
    for name, data in written.items():
        (directory / f"{name}.batch").write_bytes(data)
    tally = Tally(f"{client.name} reads what kstore's {writer} wrote in {formats(magics)}")

    def check(case: Case, lines: list[Line]) -> None:
        tally.note(case.name, reading_problem(case, written[case.name], lines))

    matched(client, "read", directory, cases, check)
    return tally.tell()


def cases_for(client: Client) -> dict[str, Case]:
    cases = {case.name: case for case in matrix.cases(*client.writes.magics)}
    if not client.writes.is_producer:
        return cases
    return {
        name: case.at(0)
        for name, case in cases.items()
        if case.timestamp_type != LOG_APPEND_TIME and case.shape not in NOT_OF_A_PRODUCER
    }


def kafka_writes(client: Client, directory: Path) -> int:
    """Kafka writes; kstore reads that, and writes the same."""
    cases = cases_for(client)
    for name, case in cases.items():
        (directory / f"{name}.recipe").write_bytes(recipe(case))
    refused: dict[str, str] = {}

    def check(case: Case, lines: list[Line]) -> None:
        if lines:
            refused[case.name] = str(lines[0].get("error"))

    matched(client, "write", directory, cases, check)
    read = Tally(f"kstore reads what {client.name} wrote in {formats(READ_MAGICS)}")
    tallies = {writer: Tally(f"kstore's {writer} writes what {client.name} wrote") for writer in WRITTEN_MAGICS}
    for name, case in cases.items():
        theirs = b"" if name in refused else (directory / f"{name}.kafka").read_bytes()
        if case.magic in READ_MAGICS:
            read.note(name, refused.get(name) or records_problem(case, theirs))
        for writer, tally in tallies.items():
            if case.magic in WRITTEN_MAGICS[writer]:
                ours = write_case(writer, case)
                tally.note(name, refused.get(name) or bytes_problem(case, ours=ours, theirs=theirs))
    return sum(tally.tell() for tally in (read, *tallies.values()) if tally.count)


def kafka_reads_damaged(client: Client, directory: Path, *, seed: int, count: int) -> int:
    """What kstore reads without complaint of damaged batches, Kafka reads too, and finds the same records."""
    logs = {str(number): damaged_log(seed, number) for number in range(count)}
    for name, data in logs.items():
        (directory / f"{name}.batch").write_bytes(data)
    tally = Tally(f"{client.name} accepts what kstore accepts of {count} damaged logs (seed {seed})")
    refused_by_kafka = refused_by_both = 0
    for name, lines in reports(client, "read", directory):
        verdict = kstore_verdict(lambda name=name: MemoryRecords(logs[name]))
        is_refused = bool(lines) and "error" in lines[-1]
        refused_by_kafka += is_refused
        if isinstance(verdict, Refused):
            refused_by_both += is_refused
        else:
            problem = records_difference(lines, verdict)
            tally.note(name, problem)
    problems = tally.tell()
    say(f"  kstore refused {count - tally.count}, Kafka {refused_by_kafka}, both {refused_by_both}")
    return problems


def damaged_log(seed: int, number: int) -> bytes:
    mutator = MessageMutator(f"interop {seed} {number}")
    kind = mutator.random.choice((mutator.batch, mutator.entry, mutator.log, mutator.mixed_log))
    return kind()


def formats(magics: list[int] | tuple[int, ...]) -> str:
    return ", ".join(f"V{magic}" for magic in magics)


def compare_clients(options: argparse.Namespace) -> int:
    damaged = partial(kafka_reads_damaged, seed=options.seed, count=options.damaged)
    problems = 0
    for client in CLIENTS:
        if options.client not in (None, client.version):
            continue
        build(client)
        steps = [partial(kafka_reads, writer=writer) for writer in WRITTEN_MAGICS]
        for step in (*steps, kafka_writes, *([damaged] if client.reads == ALL_MAGICS else [])):
            with tempfile.TemporaryDirectory() as directory:
                problems += step(client, Path(directory))
    return problems


def compare_definitions() -> int:
    """The tables of kstore.wire say what Kafka's definitions of its messages say."""
    client = CLIENTS[0]
    fetch_jars(SOURCES / "pom.xml", client.version, client.directory)
    (jar,) = (client.directory / "lib").glob("kafka-clients-*.jar")
    tally = Tally(f"kstore has the messages of {client.name}")
    for line in definitions.differences(jar):
        tally.problems.append(f"  {line}")
    tally.count = len(definitions.APIS)
    return tally.tell()


def unless_missing(
    steps: Iterator[tuple[str, store.Problems]], part: str | None
) -> Iterator[tuple[str, store.Problems]]:
    """Take the steps of a part; without its tools it is left out, unless it alone is wanted.  Raises: Missing."""
    try:
        yield from steps
    except Missing as error:
        if part is not None:
            raise
        say(f"left out: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__)
    parser.add_argument("--part", choices=PARTS, help="default: all")
    parser.add_argument("--seconds", type=int, default=600, help="how long to read beside a broker (default 600)")
    versions = [client.version for client in CLIENTS]
    parser.add_argument("--client", choices=[*versions, *kinds.NAMES], help="default: all")
    parser.add_argument("--damaged", type=int, default=20_000, help="damaged logs to be compared (default 20000)")
    parser.add_argument("--histories", type=int, default=histories.HISTORIES, help="of one log (default %(default)s)")
    parser.add_argument("--history", type=int, help="the number of one history to be run again")
    parser.add_argument("--seed", type=int, default=1, help="of the damage and the histories (default 1)")
    options = parser.parse_args()
    problems = 0
    try:
        require_tools()
        if options.part in (None, RECORDS):
            problems += compare_clients(options)
        if options.part in (None, WIRE):
            problems += compare_definitions()
        for part, kind in HISTORIES.items():
            if options.part in (None, part):
                found = histories.steps(kind, count=options.histories, seed=options.seed, only=options.history)
                problems += store.run(found, say)
        for part, steps in WITH_A_BROKER.items():
            if options.part in (None, part):
                with tempfile.TemporaryDirectory() as directory:
                    problems += store.run(steps(Path(directory)), say)
        for part, steps in OF_A_SERVER.items():
            if options.part in (None, part):
                with tempfile.TemporaryDirectory() as directory:
                    problems += store.run(unless_missing(steps(Path(directory)), options.part), say)
        if options.part in (None, OTHERS):
            with tempfile.TemporaryDirectory() as directory:
                found = lane.steps(Path(directory), only=options.client)
                problems += store.run(found, say)
        if options.part in (None, RECOVERED):
            with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
                problems += store.run(recovered.steps(Path(directory), seed=options.seed), say)
        if options.part in (None, LIVE):
            with tempfile.TemporaryDirectory() as directory:
                problems += store.run(live.steps(Path(directory), seconds=options.seconds, say=say), say)
    except Missing as error:
        sys.stderr.write(f"kstore: {error}\n")
        return MISSING_STATUS
    except Unavailable as error:
        sys.stderr.write(f"kstore: {error}\n")
        return 1
    say("no case differs" if not problems else f"{problems} cases differ")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
