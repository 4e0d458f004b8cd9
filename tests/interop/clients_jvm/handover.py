"""One root served by a broker, by `kstore serve`, by the broker and by kstore again, under Java clients that live on.

Groups of both protocols with members that went without a word, offsets, producer ids and open transactions: what the
clients are told is what they are told where a broker alone is stopped and started again.
Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop.broker import Broker
from tests.interop.clients.served import Served
from tests.interop.clients_jvm.java_clients import BROKEN_OFF, OF_BROKER, SETTINGS, answers
from tests.interop.serving import Restartable, compared, new_broker
from tests.interop.store import Problems

# Longer than a loaded machine stops for, so that only members that went are put out.
SESSION = "group.consumer.session.timeout.ms=20000\n"


class InTurn:
    """Servers of one root at one address, of which the next one runs after each stop."""

    def __init__(self, *servers: Restartable) -> None:
        self.address = servers[0].address
        self._servers = servers
        self._starts = 0

    @property
    def _now(self) -> Restartable:
        return self._servers[(self._starts - 1) % len(self._servers)]

    def start(self) -> None:
        self._starts += 1
        self._now.start()

    def stop(self) -> None:
        self._now.stop()


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    for side in ("alone", "broker", "kstore"):
        (work / side).mkdir()
    alone, broker = (new_broker(work / side, SETTINGS + OF_BROKER + SESSION) for side in ("alone", "broker"))
    served = Served(broker.root, work / "kstore", SETTINGS + SESSION, port=broker.port)
    with ThreadPoolExecutor(2) as pool:
        of_broker, of_both = pool.map(handed_over, (alone, InTurn(broker, served)))
    for found in (of_broker, of_both):
        yield "no client gave up", (f"{found[question]}" for question in found if question.endswith(BROKEN_OFF))
    yield "a broker and kstore in turn are one server to their clients", compared(of_broker, of_both)
    yield "the server has no fault", served.trouble()
    yield "the broker takes over without a complaint", complaints(broker)


def handed_over(server: Restartable) -> dict[str, object]:
    server.start()
    try:
        return answers(server, "handover")
    finally:
        server.stop()


def complaints(broker: Broker) -> Problems:
    """Lines of the broker's log, of its last run, about what it loads."""
    words = ("stray", "Error loading", "Failed to load", "corrupt")
    yield from (line for line in broker.lines if any(word in line for word in words))
