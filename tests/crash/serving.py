"""`python -m tests.crash.serving --minutes N`: a server that is killed again and again under the clients of others.

Four clients of librdkafka (serving_clients.py) use `kstore serve` in a process of its own: one that may write a record
twice, an idempotent one, one that copies in transactions, and one that reads as a member of a group. In about half of
its lives the server acknowledges what is flushed, else what is written: a kill is no power cut, so that neither may
lose anything. What each kill leaves is held to what the clients were told. Ends with 1 if something is wrong; the root
is kept then.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kstore
from kstore.types import TopicPartition
from tests.crash.serving_clients import (
    COPIED,
    COPY,
    GROUP,
    MOST_IN_TRANSACTION,
    NUMBER,
    ONCE,
    PARTITIONS_OF_COPIED,
    PLAIN,
    READERS,
    Client,
    Copying,
    Numbering,
    Reading,
)

ROOT = Path(__file__).parents[2]
SETTLED_S = 60.0
LONGEST_LIFE_S = 1.2
# The others are killed while they start.
LIVES_THAT_ANSWER = 0.85
KILLS_OF_A_ROUND = 5


class Serving:
    """`kstore serve` of one root on one port, in a process that is killed by its own id."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root.with_name(root.name + ".log")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, waits: bool = True, flushes: bool = False) -> None:
        """Start it; wait until it listens, unless told otherwise.

        Args: flushes: acknowledgements wait for the disk.
        """
        command = [sys.executable, "-m", "kstore", "serve", str(self.root), "--listen", self.bootstrap_servers]
        command.append("--flush" if flushes else "--no-flush")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            )
        if waits:
            assert self._process.stdout is not None
            assert self._process.stdout.readline(), f"the server ended: {self.log.read_text()[-2000:]}"

    def kill(self) -> None:
        assert self._end(signal.SIGKILL) == -signal.SIGKILL, f"the server ended: {self.log.read_text()[-2000:]}"

    def stop(self) -> None:
        status = self._end(signal.SIGTERM)
        assert status == 0, f"the server ended with {status}: {self.log.read_text()[-2000:]}"

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(how)
        status = process.wait(SETTLED_S)
        assert process.stdout is not None
        process.stdout.close()
        return status

    def close(self) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL)

    def check_log(self) -> None:
        """Raises: AssertionError if the server failed where it should not."""
        found = re.search(r"(?s)Traceback.*", self.log.read_text())
        assert found is None, f"the server's log has {found[0][:3000]}"


class Model:
    """What the logs had when they were looked at last; only what follows is read again."""

    def __init__(self) -> None:
        self.plain_offset = 0
        # Told, and not seen yet; seen more than once.
        self.missing: set[int] = set()
        self.doubled = 0
        self._seen_plain: set[int] = set()
        self.once = 0
        self.copied = [0] * PARTITIONS_OF_COPIED
        self._copied_offsets = [0] * PARTITIONS_OF_COPIED

    def check(self, root: Path, *, plain: list[int], once: list[int], reading: Reading) -> None:
        """Hold the root that a kill left to what producers were told.  Raises: AssertionError."""
        with kstore.open_store(root) as store:
            self._check_plain(store, plain)
            self._check_once(store, once)
            for partition in range(PARTITIONS_OF_COPIED):
                self._check_copied(store, partition)
            least, most = min(self.copied), max(self.copied)
            # Every kill leaves one transaction at most whose markers are in a part of its partitions.
            assert most - least <= MOST_IN_TRANSACTION, f"{COPIED} ends at {self.copied}"
            written = [
                sum(1 for _ in store.log(COPIED, number).read(self._copied_offsets[number]))
                for number in range(PARTITIONS_OF_COPIED)
            ]
            processed = min(a + b for a, b in zip(self.copied, written, strict=True))
            committed = committed_in(store, GROUP, ONCE)
            assert committed <= processed, f"committed {committed}, processed {processed}"
            told, committed = reading.told, committed_in(store, READERS, PLAIN)
            assert told <= committed <= reading.read, (
                f"{PLAIN}: committed {committed}, told {told}, read {reading.read}"
            )

    def check_settled(self, root: Path) -> None:
        """Hold it to what it is when no transaction is under way.  Raises: AssertionError."""
        with kstore.open_store(root) as store:
            assert self.copied == [committed_in(store, GROUP, ONCE)] * PARTITIONS_OF_COPIED
            assert not self.missing, f"{PLAIN}: lost {sorted(self.missing)[:5]}"
        damage = [one for one in kstore.verify(root).partitions if one.damage]
        assert not damage, damage[:3]

    def _check_plain(self, store: kstore.Store, told: list[int]) -> None:
        self.missing.update(told)
        self.missing -= self._seen_plain
        for record in store.log(PLAIN).read(self.plain_offset):
            (number,) = NUMBER.unpack(record.value or b"")
            self.doubled += number in self._seen_plain
            self._seen_plain.add(number)
            self.missing.discard(number)
            self.plain_offset = record.offset + 1
        assert not self.missing, f"{PLAIN}: lost {sorted(self.missing)[:5]}"

    def _check_once(self, store: kstore.Store, told: list[int]) -> None:
        for record in store.log(ONCE).read(self.once):
            found = record.offset, *NUMBER.unpack(record.value or b"")
            assert found == (self.once, self.once), f"{ONCE}: {found} in place of {self.once}"
            self.once += 1
        assert max(told, default=-1) < self.once, f"{ONCE}: ends at {self.once}, was told {max(told)}"

    def _check_copied(self, store: kstore.Store, partition: int) -> None:
        log = store.log(COPIED, partition)
        records = list(log.read(self._copied_offsets[partition], isolation="read_committed"))
        at = 0
        while at < len(records):
            number, first, count = COPY.unpack(records[at].value or b"")
            part = [COPY.unpack(one.value or b"") for one in records[at : at + count]]
            expected = [(first + one, first, count) for one in range(count)]
            assert number == first == self.copied[partition], f"{COPIED}-{partition}: {number}, not {self.copied}"
            assert part == expected, f"{COPIED}-{partition}: a part of a transaction, {len(part)} of {count}"
            self.copied[partition] += count
            at += count
            self._copied_offsets[partition] = records[at - 1].offset + 1


def committed_in(store: kstore.Store, group_id: str, topic: str) -> int:
    """Return the offset that a group has committed for the one partition of a topic, 0 for none."""
    for group in kstore.read_groups(store, groups=[group_id]):
        if TopicPartition(topic, 0) in group.offsets:
            return group.offsets[TopicPartition(topic, 0)].committed.offset
    return 0


class Killing:
    """A server with its four clients. Attributes: serving, model, kills, flushing (how many lives flush)."""

    def __init__(self, root: Path, *, seed: int) -> None:
        self.serving, self.model, self.kills, self.flushing = Serving(root), Model(), 0, 0
        self._rng = random.Random(seed)
        with kstore.open_store(root, "a") as store:
            for topic, partitions in ((PLAIN, 1), (ONCE, 1), (COPIED, PARTITIONS_OF_COPIED)):
                store.create_topic(topic, partitions)
        self.plain = Numbering(self.serving.bootstrap_servers, PLAIN)
        self.once = Numbering(self.serving.bootstrap_servers, ONCE, **{"enable.idempotence": True})
        self.copying = Copying(self.serving.bootstrap_servers)
        self.reading = Reading(self.serving.bootstrap_servers)
        self._pause = threading.Event()

    @property
    def clients(self) -> tuple[Client, ...]:
        return self.plain, self.once, self.copying, self.reading

    def start(self, *, waits: bool = True) -> None:
        """Start the server for a life of one kind or the other."""
        flushes = self._rng.random() < 0.5
        self.flushing += flushes
        self.serving.start(waits=waits, flushes=flushes)

    def live(self) -> None:
        """Let the server live for a while."""
        self._pause.wait(self._rng.uniform(0.0, LONGEST_LIFE_S))

    def kill(self) -> None:
        """Let the server live for a while, kill it, look at what is left, and start it again."""
        self.live()
        self.serving.kill()
        self.kills += 1
        self._check()
        while self._rng.random() > LIVES_THAT_ANSWER:
            self.start(waits=False)
            self.live()
            self.serving.kill()
            self.kills += 1
        self.start()

    def restart(self) -> None:
        """The same with a graceful end."""
        self.live()
        self.serving.stop()
        self._check()
        self.start()

    def settle(self) -> None:
        """Let the clients end what they do, kill the server, check everything, and let all go on."""
        for client in self.clients:
            client.ask_to_hold()
        for client in self.clients:
            client.wait_held(SETTLED_S)
        self.serving.kill()
        self.kills += 1
        self._check()
        self.model.check_settled(self.serving.root)
        assert self.model.copied[0] == self.copying.committed, "a transaction was committed and not told"
        self.serving.check_log()
        self.start()
        for client in self.clients:
            client.go_on()

    def _check(self) -> None:
        told = []
        for producer in (self.plain, self.once):
            assert not producer.failed, f"{producer.topic}: {producer.failed[:3]}"
            told.append(producer.acknowledged)
            producer.acknowledged = []
        assert self.reading.error is None, f"{READERS} failed: {self.reading.error!r}"
        self.model.check(self.serving.root, plain=told[0], once=told[1], reading=self.reading)


@contextmanager
def killing(root: Path, *, seed: int) -> Iterator[Killing]:
    """A server and clients that run; ended in the end."""
    found = Killing(root, seed=seed)
    try:
        found.start()
        for client in found.clients:
            client.start()
        yield found
        for client in found.clients:
            client.end()
    finally:
        found.serving.close()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.serving", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="at most (default %(default)s)")
    parser.add_argument("--kills", type=int, default=200, help="at least, if there is time (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kstore-serving-"))
    started = time.monotonic()
    try:
        with killing(directory / "root", seed=options.seed) as run:
            while run.kills < options.kills and time.monotonic() - started < 60 * options.minutes:
                for _ in range(KILLS_OF_A_ROUND):
                    run.kill()
                run.settle()
            model, copying = run.model, run.copying
            say(
                f"{run.kills} kills in {time.monotonic() - started:.0f} s, seed {options.seed}, {run.flushing} lives "
                f"with flushed acknowledgements: {run.plain.produced} "
                f"records of a plain producer ({model.doubled} of them twice), {model.once} of an idempotent one, "
                f"{model.copied[0]} copied in {copying.transactions} transactions ({copying.aborted} aborted, "
                f"{copying.producers} producers), {run.reading.read} read by a group in {run.reading.commits} commits"
            )
    except AssertionError as error:
        say(f"seed {options.seed}: {error}\nthe root is kept: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
