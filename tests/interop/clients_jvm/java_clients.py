"""Kafka's producer, consumer and admin client in Java, by JavaClients.java, against `kstore serve` and a broker.

The same program runs against both at the same time, and each question has the same answer or a known difference.
Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kstore.store.store import open_store
from tests.interop.broker import NODE_ID, Broker, java
from tests.interop.clients.served import Served
from tests.interop.clients_jvm.known import KNOWN, OF_VERSION_1
from tests.interop.programs import Unavailable
from tests.interop.serving import Difference, Restartable, compared, new_broker
from tests.interop.store import CLUSTER_ID, Problems

SETTINGS = """
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.consumer.session.timeout.ms=6000
group.consumer.heartbeat.interval.ms=500
"""
OF_BROKER = """
group.consumer.min.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=500
"""
SCENARIOS = ("topics", "configs", "cluster", "producing", "reading", "groups", "static", "transactions", "restarts")
BROKEN_OFF = "broken off"


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    servers = pair(work / "2")
    for scenario in SCENARIOS:
        known = {question: one for question, one in KNOWN.items() if question.startswith(f"{scenario}: ")}
        yield f"Java clients, {scenario}", asked(servers, known, scenario)
    yield "the server has no fault", stopped(servers)
    servers = pair(work / "1", transaction_version=0)
    yield "Java clients, transactions of version 1", asked(servers, OF_VERSION_1, "transactions")
    yield "the server of version 1 has no fault", stopped(servers)


def pair(work: Path, *, transaction_version: int | None = None) -> tuple[Broker, Served]:
    """Start a broker and a server, each with an empty root.

    Args: transaction_version: the level of that feature, None for the newest.
    """
    for side in ("broker", "kstore"):
        (work / side).mkdir(parents=True)
    features = {} if transaction_version is None else {"transaction.version": transaction_version}
    broker = new_broker(work / "broker", SETTINGS + OF_BROKER, features=features)
    of_kstore = "".join(f"{name}={level}\n" for name, level in features.items())
    served = Served(work / "kstore" / "root", work / "kstore", SETTINGS + of_kstore)
    with open_store(served.root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker.start()
    served.start()
    return broker, served


def stopped(servers: tuple[Broker, Served]) -> Problems:
    broker, served = servers
    broker.stop()
    served.stop()
    return served.trouble()


def asked(servers: tuple[Broker, Served], known: Mapping[str, Difference], *scenarios: str) -> Problems:
    """Ask both servers all questions of some scenarios at once; say what differs, and what was broken off."""
    with ThreadPoolExecutor(len(servers)) as pool:
        of_broker, of_kstore = pool.map(lambda server: answers(server, *scenarios), servers)
    for name, found in (("broker", of_broker), ("kstore", of_kstore)):
        yield from (f"{name}: {question}: {found[question]}" for question in found if question.endswith(BROKEN_OFF))
    yield from compared(of_broker, of_kstore, known)


def answers(server: Restartable, *scenarios: str) -> dict[str, Any]:
    """Run the program; return the answers by question.  Raises: Unavailable where a question is asked twice."""
    command = java("JavaClients", server.address, *scenarios)
    quiet = tuple(part.replace("LogLevel=info", "LogLevel=off") for part in command)
    found: dict[str, Any] = {}
    with subprocess.Popen(quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise Unavailable("java has no pipes")
        for text in process.stdout:
            line = json.loads(text)
            if "restart" in line:
                server.stop()
                server.start()
                process.stdin.write("\n")
                process.stdin.flush()
            elif line["question"] in found:
                raise Unavailable(f"asked twice: {line['question']}")
            else:
                found[line["question"]] = line["answer"]
    return found
