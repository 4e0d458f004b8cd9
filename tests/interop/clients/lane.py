"""Clients of many languages take the steps of scenario.py with `kstore serve` and with a real broker.

Their answers have to be the same, and so does what kstore reads of both directories afterwards.  Each step gives
problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from kstore.consumer import read_groups
from kstore.store.store import open_store
from tests.interop.broker import NODE_ID, Broker
from tests.interop.clients.kinds import DIFFERENCES, KINDS, Kind
from tests.interop.clients.scenario import Scenario
from tests.interop.clients.served import Served
from tests.interop.clients.talking import Program
from tests.interop.programs import Missing, Unavailable
from tests.interop.store import CLUSTER_ID, Problems
from tests.reference.verdicts import as_reference

AT_ONCE = 5
HOUR_MS = 3_600_000
BROKE_OFF = "the client broke off"
# Of both.
SETTINGS = """
auto.create.topics.enable=true
num.partitions=3
group.initial.rebalance.delay.ms=0
group.consumer.session.timeout.ms=6000
group.consumer.heartbeat.interval.ms=1000
"""
# What a broker does not allow by default.
OF_A_BROKER = """
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=500
"""
Running = Callable[[], AbstractContextManager[object]]


def steps(work: Path, *, only: str | None = None) -> Iterator[tuple[str, Problems]]:
    """Yield what is compared of each client, or of one.  Raises: Missing without the tools of the only one."""
    commands: dict[Kind, tuple[str, ...]] = {}
    for kind in KINDS:
        try:
            if only in (None, kind.name):
                commands[kind] = kind.command()
        except Missing as error:
            if only is not None:
                raise
            yield f"{kind.name} is left out, as {error}", iter(())
    now_ms = int(time.time() * 1000) - HOUR_MS
    (work / "server").mkdir()
    (work / "broker").mkdir()
    server = Served(work / "server" / "root", work / "server", SETTINGS)
    of_server = told(commands, server.address, server.running, work / "server", now_ms)
    root = work / "broker" / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work / "broker", SETTINGS + OF_A_BROKER)
    broker.format(CLUSTER_ID)
    of_broker = told(commands, f"127.0.0.1:{broker.port}", broker.running, work / "broker", now_ms)
    for kind in commands:
        wanted, found = of_broker[kind], of_server[kind]
        yield f"{kind.name}: {len(wanted)} answers are those of a broker", differing(kind, found, wanted)
        left = [left_in(one.root, kind) for one in (server, broker)]
        yield f"{kind.name}: kstore reads the same of both directories", differing(kind, *left)
    yield "the server has no fault", server.trouble()


def told(
    commands: dict[Kind, tuple[str, ...]], address: str, running: Running, work: Path, now_ms: int
) -> dict[Kind, dict[str, Any]]:
    """Let the clients take all steps, and start the broker again in between; return their answers."""

    def scenario(kind: Kind) -> Scenario:
        command = (*commands[kind], address, *kind.arguments)
        log = work / f"{kind.slug}.log"
        return Scenario(
            kind.slug, codecs=kind.codecs, lacks=kind.lacks, run=lambda: Program(command, log), now_ms=now_ms
        )

    scenarios = {kind: scenario(kind) for kind in commands}
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for half in (Scenario.first_half, Scenario.second_half):
                with running():
                    list(pool.map(partial(taken, half), scenarios.values()))
    finally:
        for each in scenarios.values():
            each.end()
    return {kind: each.answers for kind, each in scenarios.items()}


def taken(half: Callable[[Scenario], None], scenario: Scenario) -> None:
    """Take the steps of a half, unless a client broke off; the others go on."""
    if BROKE_OFF not in scenario.answers:
        try:
            half(scenario)
        except Unavailable as error:
            scenario.answers[BROKE_OFF] = str(error)


def differing(kind: Kind, found: dict[str, Any], wanted: dict[str, Any]) -> Problems:
    for name in wanted.keys() | found.keys():
        is_equal = found.get(name) == wanted.get(name)
        is_known = any((whose, name) in DIFFERENCES for whose in ("", kind.name))
        if is_equal is is_known:
            also = ", and is in the list of differences" if is_known else ""
            yield f"{name}: a broker {wanted.get(name)}, kstore {found.get(name)}{also}"


def left_in(root: Path, kind: Kind) -> dict[str, Any]:
    """What kstore reads of the topics and groups of a client in a root that nobody serves."""
    left: dict[str, Any] = {}
    slug = kind.slug

    def shown(records: Iterable[Any]) -> list[Any]:
        found = [as_reference(record) for record in records]
        return found if kind.sets_times else [record._replace(timestamp_ms=0) for record in found]

    with open_store(root) as store:
        for topic, number in store.partitions:
            if topic.startswith(f"{slug}."):
                log = store.log(topic, number)
                left[f"{topic}-{number}"] = [
                    (log.log_start_offset, log.log_end_offset),
                    shown(log.read()),
                    shown(log.read(isolation="read_committed")),
                    [described(batch) for batch in log.batches()],
                ]
    for group in read_groups(root):
        if group.group_id.startswith(f"{slug}."):
            offsets = {place: found.committed.offset for place, found in sorted(group.offsets.items())}
            left[group.group_id] = (group.type, group.state, offsets)
    return left


def described(batch: Any) -> tuple[Any, ...]:
    is_idempotent = batch.producer_id >= 0
    return batch.compression.name, batch.is_transactional, batch.is_control, is_idempotent
