"""What a call about transactions waits for until the Sender has done it. Layer 5."""

from __future__ import annotations

import copy

from kstore.errors import KStoreError, ProducerTimeoutError
from kstore.producer.latch import Latch


class TransactionalResult:
    """The outcome of one transactional operation (Kafka: TransactionalRequestResult).

    Attributes: operation (its name), is_acked (whether somebody waited until it was there), last_failure (why it takes
        so long: what the last try failed by).
    Threads: safe.
    """

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.is_acked = False
        self.last_failure: KStoreError | None = None
        self._latch = Latch()
        self._error: KStoreError | None = None

    @property
    def is_completed(self) -> bool:
        return self._latch.is_open

    @property
    def error(self) -> KStoreError | None:
        """Why the operation failed, None if it did not or is not done."""
        return self._error

    def complete(self, error: KStoreError | None = None) -> None:
        """Let those that wait go on, with an error or without; only the first call counts."""
        if not self._latch.is_open:
            self._error = error
            self._latch.open()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome.

        Raises: the operation's error; ProducerTimeoutError if it takes longer: the operation goes on, and the same call
            made again waits for it.
        """
        if not self._latch.wait(timeout_s):
            why = "" if self.last_failure is None else f": {self.last_failure}"
            message = f"{self.operation} took longer than {timeout_s} s{why}"
            raise ProducerTimeoutError(message) from self.last_failure
        self.is_acked = True
        if self._error is not None:
            error = copy.copy(self._error)
            raise error from self._error
