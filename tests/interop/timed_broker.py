"""A broker whose time the test moves: Kafka's clock is one of ours (java/clock), ahead by what a file says.

Threads of a broker that wait for its time look at it again within a fraction of a second.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests.interop import broker
from tests.interop.broker import BROKER_JVM, VERSION, Broker
from tests.interop.programs import BUILD, SOURCES, fetch_jars, run

DIRECTORY = BUILD / f"timed-broker-{VERSION}"
# While it is driven, the time between two moves is next to nothing.
SLOWER = 20
# No time-out of the broker itself comes because its time was moved.
SETTINGS = """
broker.session.timeout.ms=2000000000
request.timeout.ms=2000000000
connections.max.idle.ms=2000000000
group.coordinator.append.linger.ms=0
controller.quorum.append.linger.ms=0
controller.quorum.request.timeout.ms=2000000000
"""


class TimedBroker(Broker):
    """A broker that starts with the real time, until it is driven."""

    def __init__(self, root: Path, work: Path, settings: str = "") -> None:
        self._clock = work / "clock"
        self._ahead_ms = 0
        self._tell(slower=1)
        super().__init__(root, work, SETTINGS + settings, jvm=(*BROKER_JVM, f"-Dinterop.clock={self._clock}"))
        self._jars = DIRECTORY

    def drive(self) -> None:
        """Let time pass only where move() is called, but for very little."""
        self._tell(slower=SLOWER)

    def move(self, milliseconds: int) -> None:
        self._ahead_ms += milliseconds
        self._tell(slower=SLOWER)

    def _tell(self, *, slower: int) -> None:
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(struct.pack(">qq", self._ahead_ms, slower))


def build() -> None:
    """Fetch the jars of a broker, once, and compile the clock."""
    fetch_jars(SOURCES / "broker" / "pom.xml", VERSION, broker.DIRECTORY)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    jars = DIRECTORY / "lib"
    if not jars.exists():
        jars.symlink_to(broker.DIRECTORY / "lib")
    source = SOURCES / "clock" / "SystemTime.java"
    run("javac", "-nowarn", "-cp", "lib/*", "-d", "classes", str(source), cwd=DIRECTORY)
