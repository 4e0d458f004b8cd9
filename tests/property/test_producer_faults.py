"""Goal: an idempotent producer loses and doubles nothing and keeps the order, whatever its sink and its own parts do.
Method: a real log behind a sink that breaks before and after a write, refuses, or answers nonsense; drawn by a seed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.errors import BufferExhaustedError, KStoreError, RecordTooLargeError, StorageError
from kstore.producer import Cluster, Node, ProduceResponse, StoreSink
from kstore.producer.batches.batch import ProducerBatch
from kstore.store.store import WritableStore, open_store
from tests.fakes.sending import T0, T1, Producing
from tests.making.strategies import examples

STEPS = 60
RETRIABLE = ProduceResponse(-1, error=StorageError("not now"), is_retriable=True)
UNUSABLE = [None, 7, (0, -1, None), ProduceResponse(2**63), ProduceResponse(-2), ProduceResponse("0")]  # type: ignore[arg-type]
FAULTS = [
    "raise",
    "exit",
    "raise behind",
    "retry some",
    "lose answers",
    "too large",
    "nothing",
    "nonsense",
    "some nonsense",
    "refuse some",
    "one too few",
    "ended",
]


class FaultySink(StoreSink):
    """Does as it is told by chance while is_faulty; a refused batch is one that the log has not."""

    def __init__(self, store: WritableStore, random: Random) -> None:
        super().__init__(store)
        self.random = random
        self.is_faulty = False
        self.batches_per_partition = random.choice([1, 256])

    def cluster(self) -> Any:
        lot = self.random.random() if self.is_faulty else 1.0
        if lot < 0.02:
            raise OSError("no cluster")
        if lot < 0.04:
            return None
        return Cluster() if lot < 0.1 else super().cluster()

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: Any) -> Any:
        fault = self.random.choice([*FAULTS, *["none"] * 8]) if self.is_faulty else "none"
        if fault in {"raise", "exit"}:
            raise OSError("before") if fault == "raise" else SystemExit
        if fault in {"retry some", "refuse some"}:
            return self._some(node, batches, is_retriable=fault == "retry some")
        if fault == "too large":
            return [ProduceResponse(-1, error=RecordTooLargeError("too large"))] * len(batches)
        if fault in {"nothing", "nonsense"}:
            return None if fault == "nothing" else [self.random.choice(UNUSABLE)] * len(batches)
        answers = list(super().send(node, batches, ack=ack))
        if fault == "raise behind":
            raise OSError("behind")
        if fault == "some nonsense":
            return [self.random.choice([one, *UNUSABLE]) for one in answers]
        if fault == "ended" and answers[0].error is None:
            batches[0].complete(answers[0].base_offset)
        if fault == "one too few":
            answers.pop()
        return [RETRIABLE] * len(batches) if fault == "lose answers" else answers

    def _some(self, node: Node, batches: Sequence[ProducerBatch], *, is_retriable: bool) -> list[ProduceResponse]:
        """Append what comes before the first unlucky batch of its partition, the rest not yet, or but for that one."""
        unlucky, answers = set(), []
        for batch in batches:
            if is_retriable and (batch.topic_partition in unlucky or self.random.random() < 0.4):
                unlucky.add(batch.topic_partition)
                answers.append(RETRIABLE)
            elif not is_retriable and not batch.in_retry and self.random.random() < 0.3:
                answers.append(ProduceResponse(-1, error=KStoreError("refused")))
            else:
                answers += super().send(node, [batch], ack="written")
        return answers


class Run:
    """A producer that sends numbered values for a while, with faults, and then in peace until nothing is left."""

    def __init__(self, store: WritableStore, random: Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random
        self.monkeypatch = monkeypatch
        self.sink = FaultySink(store, random)
        self.parts = Producing(
            self.sink,
            is_idempotent=True,
            max_in_flight=random.choice([1, 2, 5]),
            compression=random.choice(["none", "gzip"]),
            delivery_timeout_ms=random.choice([400, 5000]),
            linger_ms=random.choice([0, 30]),
        )
        self.sent: list[tuple[Any, bytes, Any]] = []
        self.heard: list[bytes] = []

    def append(self) -> None:
        value = b"%06d" % len(self.sent)
        to = self.random.choice([T0, T0, T1])
        try:
            future = self.parts.append(
                value + bytes(self.random.randrange(600)), to=to, callback=lambda *_: self.heard.append(value)
            )
        except BufferExhaustedError:
            return
        self.sent.append((to, value, future))

    def step(self) -> None:
        for _ in range(self.random.randrange(4)):
            self.append()
        self.sink.is_faulty = True
        with self.monkeypatch.context() as patch:
            if self.random.random() < 0.05:
                patch.setattr(ProducerBatch, "close", self.breaking(ProducerBatch.close))
            self.parts.sender._guarded_run()
        self.sink.is_faulty = False
        self.parts.clock.now_ms += self.random.choice([0, 1, 30, 120, 300])

    def breaking(self, close: Any) -> Any:
        left = iter(range(self.random.randrange(3)))

        def breaking_close(batch: ProducerBatch) -> None:
            if next(left, None) is None:
                raise MemoryError("no memory to compress")
            close(batch)

        return breaking_close

    def end(self) -> None:
        for _ in range(200):
            self.parts.sender._guarded_run()
            self.parts.clock.now_ms += 50
        self.parts.check_at_rest()


@examples(25)
@given(seed=st.integers(0, 2**32))
def test_records_are_there_once_in_order_or_failed_whatever_breaks(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    root: Path = tmp_path_factory.mktemp("faults") / "root"
    with pytest.MonkeyPatch.context() as monkeypatch, open_store(root, "a") as store:
        monkeypatch.setattr(logging.getLogger("kstore.producer"), "disabled", True)
        store.create_topic("t", 4)
        run = Run(store, Random(seed), monkeypatch)
        for _ in range(STEPS):
            run.step()
        run.end()
        logs = {one: [(r.offset, (r.value or b"")[:6]) for r in store.log(*one).read()] for one in (T0, T1)}
    assert len(run.heard) == len(run.sent)
    for written in logs.values():
        values = [value for _, value in written]
        assert values == sorted(set(values))
    for topic_partition, value, future in run.sent:
        offsets = [offset for offset, found in logs[topic_partition] if found == value]
        if future.exception(0) is None:
            assert len(offsets) == 1
            assert future.result(0).offset in (-1, offsets[0])
