"""Sinks as a user may write them: over a log in memory, with one call that does what it should not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kstore.errors import StorageError
from kstore.producer import Cluster, ProducerBatch, ProduceResponse
from tests.fakes.sending import CLUSTER, ScriptedSink

WAIT_S = 60
IDEMPOTENCE = pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
OK = ProduceResponse(0)
DISK = StorageError("disk")


class ForeignSink(ScriptedSink):
    """Gives its answer to the next call once: a function of the batches, which may raise; then takes everything.

    Attribute: keeps: whether the batches of that call are in the log all the same.
    """

    def __init__(self, cluster: Cluster = CLUSTER) -> None:
        super().__init__(cluster)
        self.answer: Callable[[Sequence[ProducerBatch]], Any] | None = None
        self.keeps = False

    def send(self, node: Any, batches: Sequence[ProducerBatch], *, ack: str) -> Any:
        answer, self.answer = self.answer, None
        if answer is None:
            return super().send(node, batches, ack=ack)
        if self.keeps:
            super().send(node, batches, ack=ack)
        return answer(batches)


def raising(error: BaseException) -> Callable[[object], Any]:
    def answer(_: object) -> Any:
        raise error

    return answer


def each(response: Any) -> Callable[[Sequence[ProducerBatch]], Any]:
    return lambda batches: [response] * len(batches)


def failed(error: Any, **fields: Any) -> Callable[[Sequence[ProducerBatch]], Any]:
    return each(ProduceResponse(-1, error=error, **fields))
