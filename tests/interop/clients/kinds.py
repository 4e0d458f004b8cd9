"""The clients that take the steps of scenario.py: how each is run, and what it lacks.

An answer that is known to differ from a broker's is in DIFFERENCES, with the reason.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.interop.clients.scenario import CODECS
from tests.interop.programs import BUILD, Missing, Unavailable, run

PROGRAMS = Path(__file__).parent / "programs"
GO, NODE = BUILD / "clients-go", BUILD / "clients-node"


def of_python(module: str, needs: str) -> Callable[[], tuple[str, ...]]:
    """Return what gives the command of a program, whose client is of requirements-dev.txt."""

    def command() -> tuple[str, ...]:
        if find_spec(needs) is None:
            raise Missing(f"{needs} is not installed (pip install -r requirements-dev.txt)")
        return (sys.executable, "-W", "ignore", "-m", f"tests.interop.clients.programs.{module}")

    return command


def of_go(name: str) -> Callable[[], tuple[str, ...]]:
    """Return what compiles a program, whose modules come from Go's proxy."""

    def command() -> tuple[str, ...]:
        if shutil.which("go") is None:
            raise Missing("go is not installed (apt-get install golang, brew install go)")
        GO.mkdir(parents=True, exist_ok=True)
        run("go", "build", "-o", str(GO / name), f"./{name}", cwd=PROGRAMS / "go")
        return (str(GO / name),)

    return command


def of_node(name: str) -> Callable[[], tuple[str, ...]]:
    """Return what fetches a program's packages, with a Node of their own, from npm, once."""

    def command() -> tuple[str, ...]:
        if shutil.which("npm") is None:
            raise Missing("npm is not installed (apt-get install npm, brew install node)")
        NODE.mkdir(parents=True, exist_ok=True)
        sources = [path for path in (PROGRAMS / "node").iterdir() if path.is_file()]
        lock = NODE / "package-lock.json"
        is_fetched = lock.exists() and lock.read_bytes() == (PROGRAMS / "node" / lock.name).read_bytes()
        for source in sources:
            shutil.copy(source, NODE)
        node = NODE / "node_modules" / "node" / "bin" / "node"
        if not (is_fetched and node.exists()):
            run("npm", "ci", "--no-audit", "--no-fund", cwd=NODE)
        if not node.exists():
            raise Unavailable(f"npm installed no {node}")
        return (str(node), str(NODE / f"{name}.mjs"))

    return command


def of_kcat() -> tuple[str, ...]:
    if shutil.which("kcat") is None:
        raise Missing("kcat is not installed (apt-get install kcat, brew install kcat)")
    return (sys.executable, "-W", "ignore", "-m", "tests.interop.clients.programs.kcat")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A client. command: gives that of its program, before the address, and raises Missing without its tools;
    arguments: after the address; lacks: commands of scenario.py that it has not, and "idempotence"; sets_times: whether
    its user says the times of records.
    """

    name: str
    command: Callable[[], tuple[str, ...]]
    arguments: tuple[str, ...] = ()
    codecs: tuple[str, ...] = CODECS
    lacks: frozenset[str] = frozenset()
    sets_times: bool = True

    @property
    def slug(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name.lower()).strip("-")


KINDS = (
    Kind(name="confluent-kafka", command=of_python("confluent", "confluent_kafka"), arguments=("classic",)),
    Kind(name="confluent-kafka-848", command=of_python("confluent", "confluent_kafka"), arguments=("consumer",)),
    # Its administrator deletes no groups.
    Kind(name="aiokafka", command=of_python("aio", "aiokafka"), lacks=frozenset({"delete_group"})),
    Kind(name="kafka-python", command=of_python("kafka_python", "kafka")),
    Kind(name="sarama", command=of_go("sarama")),
    # It sends what a client asks for, without a producer's id of its own.
    Kind(name="kafka-go", command=of_go("segmentio"), lacks=frozenset({"transact", "idempotence", "delete_records"})),
    # The others are codecs that its users plug in.
    Kind(name="kafkajs", command=of_node("kafkajs"), codecs=CODECS[:2]),
    Kind(name="platformatic", command=of_node("platformatic"), arguments=("classic",)),
    Kind(name="platformatic-848", command=of_node("platformatic"), arguments=("consumer",)),
    # It reads and writes; it commits a transaction of one run, and aborts none.
    Kind(
        name="kcat",
        command=of_kcat,
        lacks=frozenset({"transact", "delete_records", "committed", "group", "groups", "delete_group"}),
        sets_times=False,
    ),
)
NAMES = tuple(kind.name for kind in KINDS)
# By client, or "" for all: the name of a step, and why its answer differs from a broker's.
DIFFERENCES: dict[tuple[str, str], str] = {}
