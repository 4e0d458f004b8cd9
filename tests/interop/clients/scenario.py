"""What each client does with a broker: told once, by commands that its program understands.

Each step has a name and the answer of the client. The same steps against another broker have the same answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.interop.clients.talking import Program

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MEMBERS = 3
SETTINGS = {"max.message.bytes": "20000", "retention.ms": "86400000"}
DESCRIBED = ["max.message.bytes", "retention.ms", "cleanup.policy", "compression.type", "segment.bytes"]
SETTLE_S, SHARE_S, PEEK_MS, STEADY_ROUNDS = 180, 120, 200, 5
PER_PARTITION = 4


class Scenario:
    """One client's steps, in two halves between which the broker is started again.

    Args: slug: begins the names of its topics and groups; codecs: those that the client has; lacks: commands that it
        has not; run: starts its program; now_ms: the time of the first record.
    Attributes: answers (of each step, by its name).
    """

    def __init__(
        self,
        slug: str,
        *,
        codecs: tuple[str, ...],
        lacks: frozenset[str],
        run: Callable[[], Program],
        now_ms: int,
    ) -> None:
        self.answers: dict[str, Any] = {}
        self.topic, self.shared, self.group = f"{slug}.records", f"{slug}.shared", f"{slug}.group"
        self._slug, self._codecs, self._lacks, self._run, self._now_ms = slug, codecs, lacks, run, now_ms
        self._programs: list[Program] = []
        self._members: list[Program] = []
        self._rounds = 0

    def first_half(self) -> None:
        self._main = self._started()
        self._topics()
        self._records()
        self._searches()
        self._transactions()
        self._deletions()
        self._three_members()

    def second_half(self) -> None:
        self._two_members_go_on()
        self._groups()

    def end(self) -> None:
        for program in self._programs:
            program.end()

    def _started(self) -> Program:
        program = self._run()
        self._programs.append(program)
        return program

    def _step(self, name: str, do: str, *, program: Program | None = None, **arguments: object) -> Any:
        """Take a step, unless the client lacks it; its answer counts."""
        if do in self._lacks:
            return None
        answer = self.answers[name] = (program or self._main).ask(do, **arguments)
        return answer

    def _rows(self, count: int, *, first: int = 0) -> list[list[Any]]:
        """Records with and without key, value and headers, a second apart."""
        return [
            [
                None if number % 5 == 3 else f"key {number}",
                None if number % 5 == 4 else f"value {number} " * 20,
                [["one", f"{number}"], ["two", ""]] if number % 2 else [],
                self._now_ms + 1000 * number,
            ]
            for number in range(first, first + count)
        ]

    def _topics(self) -> None:
        def create(name: str, topic: str, partitions: int = 3, replicas: int = 1, **settings: str) -> None:
            self._step(name, "create", topic=topic, partitions=partitions, replicas=replicas, settings=settings)

        create("create", self.topic, **SETTINGS)
        create("create again", self.topic)
        create("create with a setting that there is not", f"{self._slug}.x", **{"no.such.setting": "1"})
        create("create with a wrong setting", f"{self._slug}.x", **{"retention.ms": "never"})
        create("create with too many replicas", f"{self._slug}.x", replicas=3)
        create("create without partitions", f"{self._slug}.x", partitions=0)
        create("create with a wrong name", f"{self._slug}.x$")
        create("create a compacted topic", f"{self._slug}.compacted", partitions=1, **{"cleanup.policy": "compact"})
        create("create a topic to share", self.shared)
        for name, topic in (("describe", self.topic), ("describe the compacted topic", f"{self._slug}.compacted")):
            # A broker may not have heard of it yet.
            until = time.monotonic() + SETTLE_S
            while self._step(name, "describe", topic=topic, settings=DESCRIBED) == ["error", 3]:
                if time.monotonic() > until:
                    break
                time.sleep(PEEK_MS / 1000)

    def _produce(self, name: str, topic: str, partition: int, rows: list[list[Any]], **how: object) -> None:
        how = {"codec": "none", "idempotent": False, **how}
        self._step(name, "produce", topic=topic, partition=partition, records=rows, **how)

    def _records(self) -> None:
        for number, codec in enumerate(self._codecs):
            self._produce(f"produce with {codec}", self.topic, 0, self._rows(5, first=5 * number), codec=codec)
        if "idempotence" not in self._lacks:
            rows = self._rows(5, first=5 * len(CODECS))
            self._produce("produce with idempotence", self.topic, 0, rows, codec=self._codecs[-1], idempotent=True)
        self._produce("produce too much", self.topic, 0, [["key", "v" * 30_000, [], self._now_ms]])
        self._produce("produce without a key", f"{self._slug}.compacted", 0, [[None, "v", [], self._now_ms]])
        mixed = [["key", "v", [], self._now_ms], [None, "v", [], self._now_ms]]
        self._produce("produce with and without a key", f"{self._slug}.compacted", 0, mixed)

    def _searches(self) -> None:
        end = self._step("the end", "offset", topic=self.topic, partition=0, at="latest")
        self._step("the beginning", "offset", topic=self.topic, partition=0, at="earliest")
        for name, at in (("a record's time", 7000), ("between", 7001), ("before all", -1), ("after all", 10_000_000)):
            self._step(f"the offset at {name}", "offset", topic=self.topic, partition=0, at=self._now_ms + at)
        where = {"topic": self.topic, "partition": 0, "committed": False}
        self._step("read all", "read", offset=0, count=end, **where)
        self._step("read from the middle of a batch", "read", offset=7, count=end - 7, **where)

    def _transactions(self) -> None:
        if "transact" in self._lacks:
            return
        group, where = f"{self._slug}.sources", {"topic": self.topic, "partition": 1}
        ends = (("commit", True, None), ("abort", False, 3), ("commit again", True, 7), ("abort again", False, 9))
        for number, (name, commits, offset) in enumerate(ends):
            offsets = None if offset is None else [group, self.topic, 0, offset]
            rows = self._rows(2, first=2 * number)
            self._transact(name, self._main, records=rows, commits=commits, offsets=offsets)
        self._step("read what is committed", "read", offset=0, count=4, committed=True, **where)
        self._step("read what is not", "read", offset=0, count=8, committed=False, **where)
        self._step("the end of transactions", "offset", at="latest", **where)
        self._step("offsets of transactions", "committed", group=group, topic=self.topic, partitions=3)
        other = self._started()
        for name, program in (("take the id over", other), ("go on when fenced", self._main), ("go on", other)):
            self._transact(name, program, records=self._rows(1), commits=True, offsets=None)

    def _transact(self, name: str, program: Program, **arguments: object) -> None:
        where = {"topic": self.topic, "partition": 1}
        self._step(name, "transact", program=program, by=f"{self._slug}.producer", **where, **arguments)

    def _deletions(self) -> None:
        where = {"topic": self.topic, "partition": 0}
        self._step("delete records", "delete_records", offset=4, **where)
        self._step("delete records again", "delete_records", offset=2, **where)
        self._step("delete records that are not there", "delete_records", offset=10_000, **where)
        self._step("the beginning after a deletion", "offset", at="earliest", **where)
        self._step("read what is left", "read", offset=4, count=3, committed=False, **where)

    def _three_members(self) -> None:
        if "join" in self._lacks:
            return
        self._members = [self._started() for _ in range(MEMBERS)]
        for number, member in enumerate(self._members):
            self._step(f"join {number}", "join", program=member, group=self.group, topic=self.shared)
        self._settle("of three members")
        self._share("with three members")
        self._step("the group of three", "group", group=self.group)
        self._step("a group with members is not deleted", "delete_group", group=self.group)
        self._members.pop().kill()
        self._settle("of two members, as one died")
        self._share("with two members")
        self._step("the group of two", "group", group=self.group)

    def _two_members_go_on(self) -> None:
        self._produce("produce after a restart", self.topic, 2, self._rows(3))
        if "join" in self._lacks:
            return
        self._settle("after a restart")
        self._share("after a restart")
        self._step("the group after a restart", "group", group=self.group)
        for number, member in enumerate(self._members):
            self._step(f"leave {number}", "leave", program=member)
        self._step("the group that all have left", "group", group=self.group)

    def _settle(self, when: str) -> None:
        """Wait until the members have all partitions, each of them one or two, and keep them; the numbers count."""
        until = time.monotonic() + SETTLE_S
        wanted = {3: [1, 1, 1], 2: [1, 2]}[len(self._members)]
        rounds, found = 0, wanted
        while rounds < STEADY_ROUNDS and time.monotonic() < until:
            found = []
            for member in self._members:
                # No records are there: a client that only lives while it is polled is polled.
                self._arrive(polled(member, 0))
                found.append(member.ask("assigned"))
            found.sort()
            rounds = rounds + 1 if found == wanted else 0
        self.answers[f"partitions {when}"] = found

    def _arrive(self, rows: Any) -> None:
        if rows:
            self.answers.setdefault("records that nobody sent", []).extend(rows)

    def _share(self, when: str) -> None:
        """Send records to all partitions; what the members get of them counts, and each commits."""
        self._rounds += 1
        for partition in range(3):
            rows = [[None, f"{self._rounds} {n}", [], self._now_ms] for n in range(PER_PARTITION)]
            self._produce(f"produce to {partition} {when}", self.shared, partition, rows)
        found: set[tuple[Any, ...]] = set()
        until = time.monotonic() + SHARE_S
        while not (len(found) >= 3 * PER_PARTITION and self._commit(when)) and time.monotonic() < until:
            # In turn: a member that is not polled may hold the others up.
            for member in self._members:
                found |= {tuple(row) for row in polled(member, 3 * PER_PARTITION)}
        self.answers[f"records {when}"] = sorted(map(list, found))

    def _commit(self, when: str) -> bool:
        """Let the members commit; return whether all is committed. Who lost its partitions meanwhile is refused, and
        another one gets them again.
        """
        commits = [member.ask("commit") for member in self._members]
        if "committed" in self._lacks:
            return not any(commits)
        offsets = self._main.ask("committed", group=self.group, topic=self.shared, partitions=3)
        self.answers[f"offsets {when}"] = offsets
        return bool(offsets == [[partition, PER_PARTITION * self._rounds] for partition in range(3)])

    def _groups(self) -> None:
        names = self._step("groups", "groups")
        if names is not None:
            self.answers["groups"] = [name for name in names if name.startswith(f"{self._slug}.")]
        for name in ("delete a group", "delete it again"):
            self._step(name, "delete_group", group=f"{self._slug}.sources")
        self._step("a group that nobody knows", "group", group=f"{self._slug}.nobody")
        self._step(
            "offsets of a group that nobody knows",
            "committed",
            group=f"{self._slug}.nobody",
            topic=self.topic,
            partitions=3,
        )


def polled(member: Program, count: int) -> list[list[Any]]:
    """What a member gets within a moment; nothing where it is told of an error, after which it goes on."""
    rows: list[list[Any]] = member.ask("poll", count=count, ms=PEEK_MS)
    return [] if rows[:1] == ["error"] else rows
