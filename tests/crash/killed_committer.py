"""Commits of staged batches to be killed, in a process that forks one child for each; for test_kill_committer.py.

For each line "ROOT QUERY VERSION ROWS SEED KILL_AT" of standard input, a child stages the rows of that version, in an
order and in a split of its own, and commits them. It kills itself before the KILL_AT-th call in the commit that changes
a file, unless that is 0. The answer is a line with its exit status and the number of such calls.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback

from kstore.log.env import DEFAULT_ENV, Env
from kstore.log.store import open_store
from kstore.producer.producer import Producer
from kstore.producer.transactions.coordinator import TRANSACTION_STATE_CONFIG, TRANSACTION_STATE_TOPIC
from kstore.staging import StagedFile, StagingSink, commit_staged, job_name, partitions_by_topic, prepare_root
from kstore.staging.commit import AppVersion
from tests.fakes.faults import FaultyEnv

TOPIC, PARTITIONS = "t", 3


class KillingEnv(FaultyEnv):
    """The operating system, with SIGKILL before one of the calls that change a file; changes counts these."""

    def __init__(self, kill_at: int) -> None:
        super().__init__()
        self.changes = 0
        self._kill_at = kill_at

    def check(self, call: str, path: str) -> bool:
        if call not in ("stat", "read", "open", "list"):
            self.changes += 1
            if self.changes == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().check(call, path)


def make_root(root: str) -> None:
    """Create a root with a small `__transaction_state`, so that an opening after a kill is fast."""
    with open_store(root, "a") as store:
        store.create_topic(TOPIC, PARTITIONS)
        store.create_topic(TRANSACTION_STATE_TOPIC, 2, config=TRANSACTION_STATE_CONFIG)
    prepare_root(root)


def transactional_id(query: str) -> str:
    return f"kstore-spark-{query}"


def values_of(query: str, version: int, *, rows: int) -> list[bytes]:
    """The records of a version; each says how many there are."""
    return [b"%s/%d/%d/%d" % (query.encode(), version, at, rows) for at in range(rows)]


def stage(root: str, query: str, version: int, *, rows: int, rng: random.Random, env: Env = DEFAULT_ENV) -> list[StagedFile]:
    """Stage a version as two tasks would, in an order and in partitions that the generator chooses."""
    values = values_of(query, version, rows=rows)
    rng.shuffle(values)
    cut = rng.randrange(len(values) + 1)
    staged: list[StagedFile] = []
    for part in (values[:cut], values[cut:]):
        area = prepare_root(root)
        sink = StagingSink(area, job_name(query, version), partitions=partitions_by_topic(root), env=env)
        with Producer(sink, enable_idempotence=False, batch_size=512, compression_type=rng.choice(["none", "lz4"])) as producer:
            futures = [producer.send(TOPIC, value, partition=rng.randrange(PARTITIONS)) for value in part]
        for future in futures:
            future.result()
        staged += sink.finish()
    return staged


def commit(root: str, query: str, version: int, staged: list[StagedFile], env: Env = DEFAULT_ENV) -> bool:
    return commit_staged(
        root, staged, transactional_id=transactional_id(query), app=AppVersion(query, version), env=env
    )


def live(root: str, query: str, version: int, *, rows: int, seed: int, kill_at: int) -> int:
    """Return the number of calls in the commit that change a file."""
    staged = stage(root, query, version, rows=rows, rng=random.Random(seed))
    env = KillingEnv(kill_at)
    commit(root, query, version, staged, env)
    return env.changes


def serve() -> None:
    for line in sys.stdin:
        root, query, *numbers = line.split()
        version, rows, seed, kill_at = map(int, numbers)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 3
            try:
                calls = live(root, query, version, rows=rows, seed=seed, kill_at=kill_at)
                os.write(writing, b"%d" % calls)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)
        calls_made = os.read(reading, 100)
        os.close(reading)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), int(calls_made or b"0"), flush=True)


if __name__ == "__main__":
    serve()
