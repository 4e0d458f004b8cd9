"""`kstore serve` as a process of its own, which may be stopped and started again at its address."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.broker import free_ports
from tests.interop.programs import Unavailable

TREE = Path(__file__).parents[3]
STOP_SECONDS = 600
SERVED = re.compile(r" is served on (\S+):")
TROUBLE = re.compile(r"ERROR|Traceback|socket\.send")


class Served:
    """A root, the settings of its server by Kafka's names, and the server's log of all its starts."""

    def __init__(self, root: Path, work: Path, settings: str = "", *, port: int | None = None) -> None:
        self.root = root
        self.address = f"127.0.0.1:{free_ports(1)[0] if port is None else port}"
        self._process: subprocess.Popen[str] | None = None
        self._log = work / "server.log"
        self._config = work / "serve.properties"
        self._config.write_text(settings)

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve; give the address, and stop as an operator does."""
        try:
            self.start()
            yield self.address
        finally:
            self.stop()

    def start(self) -> None:
        """Raises: Unavailable, with what the command said."""
        command = ("serve", str(self.root), "--listen", self.address, "--config", str(self._config))
        with self._log.open("a") as output:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "kstore", *command), cwd=TREE, stdout=subprocess.PIPE, stderr=output, text=True
            )
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if SERVED.search(line) is None:
            raise Unavailable(f"kstore serve said {line!r}: {self._log.read_text()}")

    def stop(self) -> None:
        """Stop as an operator does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=STOP_SECONDS)
            self._process = None

    def trouble(self) -> Iterator[str]:
        """Yield the lines of the log that tell a fault of the server."""
        return (line for line in self._log.read_text().splitlines() if TROUBLE.search(line))
