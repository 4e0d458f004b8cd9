"""Running kstore's command and Kafka's tools, and comparing what they say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.broker import Broker, Client, java
from tests.interop.programs import Unavailable
from tests.interop.store import CLUSTER_ID, Problems

HERE = Path(__file__).parents[3]


def made_broker(work: Path, settings: str = "", *, root: str = "root") -> Broker:
    """Return a broker that was never started, with its metadata in its root."""
    directory = work / root
    directory.mkdir()
    broker = Broker(directory, work, f"metadata.log.dir={directory}\n{settings}")
    broker.format(CLUSTER_ID)
    return broker


def kstore(*arguments: object, status: int = 0) -> str:
    """Run the command and return what it printed.  Raises: AssertionError for another exit status."""
    command = (sys.executable, "-m", "kstore", *map(str, arguments))
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    if done.returncode != status:
        raise AssertionError(
            f"{' '.join(map(str, arguments))} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
    return done.stdout if status == 0 else done.stdout + done.stderr


def objects(*arguments: object) -> list[dict[str, Any]]:
    """Run the command with --json and return its objects."""
    return [json.loads(line) for line in kstore(*arguments, "--json").splitlines()]


def answers(client: Client, *question: object) -> list[dict[str, Any]]:
    """Return what a broker's Admin answers."""
    return [line["answer"] for line in client.ask(*question)]


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of a table that one of Kafka's tools printed, by the names of its columns; no cell has spaces."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(lines[0], row, strict=False)) for row in lines[1:]]


@contextmanager
def opened_transactions(broker: Broker, *wanted: str) -> Iterator[None]:
    """Let a producer open transactions, as OpenTransactions.java has them, and kill it with SIGKILL at the end."""
    command = java("OpenTransactions", f"127.0.0.1:{broker.port}", *wanted)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline() != "open\n":
                raise Unavailable("the producer opened no transactions")
            yield
        finally:
            process.send_signal(signal.SIGKILL)


def differing(what: str, found: object, wanted: object) -> Problems:
    """Say where two answers differ."""
    if found == wanted:
        return
    if isinstance(found, list) and isinstance(wanted, list):
        yield from _differing_items(what, found, wanted)
    elif isinstance(found, dict) and isinstance(wanted, dict):
        for name in sorted(found.keys() | wanted.keys(), key=str):
            yield from differing(f"{what}, {name}", found.get(name), wanted.get(name))
    else:
        yield f"{what}: expected {wanted!r}, found {found!r}"


def _differing_items(what: str, found: list[Any], wanted: list[Any]) -> Problems:
    for one in found:
        if one not in wanted:
            yield f"{what}: not expected {one!r}"
    for one in wanted:
        if one not in found:
            yield f"{what}: missing {one!r}"
    if len(found) != len(wanted):
        yield f"{what}: {len(found)} in place of {len(wanted)}"
