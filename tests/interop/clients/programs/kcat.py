"""Commands to kcat, a run of it for each: `python -m tests.interop.clients.programs.kcat ADDRESS`.

It makes topics by asking for them, sets no times and tells no offsets; when it has committed, another client sees.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any
from uuid import uuid4

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop.clients.programs.asking import Row, answer

SECONDS = 60
KEY_END, RECORD_END = "\x01", "\x02"
FORMAT = '{"partition":%p,"offset":%o,"value":"%s"}\n'
ASSIGNED = re.compile(r"rebalanced.*: (assigned|revoked): (.*)")
SESSION = ("-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=500", "-X", "auto.commit.interval.ms=100")


class Refusal(Exception):
    """What kcat says when it ends with an error."""


class Client:
    def __init__(self, address: str) -> None:
        self._address = address
        self._kcat = ("kcat", "-b", address, "-m", str(SECONDS), "-X", "broker.address.family=v4")

    def _run(self, *arguments: str, text: str = "") -> str:
        command = (*self._kcat, *arguments)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=2 * SECONDS, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("%") and "|" not in line]
            raise Refusal(errors[0] if errors else done.stderr)
        return done.stdout

    def _asked(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._run("-L", "-J", "-t", topic))["topics"][0]
        return found

    def create(self, topic: str, **_: object) -> str | None:
        for _ in range(SECONDS * 10):
            found = self._asked(topic)
            if found["partitions"] or "Invalid" in found.get("error", ""):
                break
            time.sleep(0.1)
        error: str | None = found.get("error")
        return error

    def describe(self, topic: str, **_: object) -> list[list[Any]]:
        return [
            [
                one["partition"],
                one["leader"],
                [each["id"] for each in one["replicas"]],
                [each["id"] for each in one["isrs"]],
            ]
            for one in self._asked(topic)["partitions"]
        ]

    def produce(self, topic: str, partition: int, codec: str, idempotent: bool, records: list[Row]) -> None:
        text = RECORD_END.join(f"{key or ''}{KEY_END}{value or ''}" for key, value, _, _ in records)
        transaction = ("-X", f"transactional.id={topic}") if idempotent else ()
        where = ("-t", topic, "-p", str(partition), "-z", codec, "-H", "one=1", "-H", "two")
        self._run("-P", *where, "-Z", "-K", KEY_END, "-D", RECORD_END, *transaction, text=text)

    def read(self, topic: str, partition: int, offset: int, count: int, committed: bool) -> list[list[Any]]:
        isolation = f"isolation.level=read_{'committed' if committed else 'uncommitted'}"
        where = ("-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count), "-e")
        said = self._run("-C", "-J", "-q", *where, "-X", isolation)
        return [
            [one["offset"], one["key"], one["payload"], one.get("headers")]
            for one in map(json.loads, said.splitlines())
        ]

    def offset(self, topic: str, partition: int, at: int | str) -> int:
        when = {"earliest": -2, "latest": -1}.get(str(at), at)
        return int(self._run("-Q", "-t", f"{topic}:{partition}:{when}").split()[-1])

    def join(self, group: str, topic: str) -> None:
        self._group, self._topic = group, topic
        self._assigned = 0
        self._id = f"kcat-{uuid4()}"
        self._arrived: list[list[Any]] = []
        self._polled: list[list[Any]] = []
        self._news = threading.Condition()
        own = ("-X", "auto.offset.reset=earliest", "-X", f"client.id={self._id}")
        command = (*self._kcat, *SESSION, *own, "-u", "-f", FORMAT, "-G", group, topic)
        self._member = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for follow in (self._follow_records, self._follow_assignments):
            threading.Thread(target=follow, daemon=True).start()

    def _follow_records(self) -> None:
        for line in self._member.stdout or ():
            one = json.loads(line)
            with self._news:
                self._arrived.append([one["partition"], one["offset"], one["value"]])
                self._news.notify()

    def _follow_assignments(self) -> None:
        for line in self._member.stderr or ():
            found = ASSIGNED.search(line)
            if found is not None:
                self._assigned = found[2].count("[") if found[1] == "assigned" else 0

    def poll(self, count: int, ms: int) -> list[list[Any]]:
        wanted = max(count, 1)
        with self._news:
            self._news.wait_for(lambda: len(self._arrived) >= wanted, ms / 1000)
            found, self._arrived = self._arrived[:wanted], self._arrived[wanted:]
        self._polled += found
        return found

    def assigned(self) -> int:
        return self._assigned

    def commit(self) -> None:
        """Wait until what was polled is committed, which kcat does by itself."""
        positions = {partition: offset + 1 for partition, offset, _ in self._polled}
        admin = AdminClient({"bootstrap.servers": self._address})
        asked = [ConsumerGroupTopicPartitions(self._group, [TopicPartition(self._topic, one) for one in positions])]
        for _ in range(SECONDS * 10):
            (future,) = admin.list_consumer_group_offsets(asked).values()
            found = {one.partition: one.offset for one in future.result(SECONDS).topic_partitions}
            # A marker may follow the last record.
            if all(found.get(partition, -1) >= offset for partition, offset in positions.items()):
                return
            time.sleep(0.1)
        raise Refusal(f"committed {found} in place of {positions}")

    def leave(self) -> None:
        """Let kcat end, which does not wait for the answer to its leave, and wait until it has left."""
        self._member.send_signal(signal.SIGTERM)
        self._member.wait(SECONDS)
        admin = AdminClient({"bootstrap.servers": self._address})
        for _ in range(SECONDS * 10):
            (future,) = admin.describe_consumer_groups([self._group]).values()
            if self._id not in {one.client_id for one in future.result(SECONDS).members}:
                return
            time.sleep(0.1)
        raise Refusal(f"{self._id} is still a member")


def refusal(error: Refusal) -> list[Any]:
    return [None, str(error)]


if __name__ == "__main__":
    answer(Client(*sys.argv[1:]), (Refusal,), refusal)
