"""Gate: a disk that does not answer until the test says so."""

from __future__ import annotations

import threading

from kstore.producer.sending.store_sink import StoreSink

PATIENCE_S = 60


class Gate:
    """Lets no batch reach a store until it is opened."""

    def __init__(self, monkeypatch):
        self.is_reached, self._may_go = threading.Event(), threading.Semaphore(0)
        self._is_open = threading.Event()
        send = StoreSink.send

        def held(sink, *arguments, **options):
            self.is_reached.set()
            if not self._is_open.is_set():
                assert self._may_go.acquire(timeout=PATIENCE_S)
            return send(sink, *arguments, **options)

        monkeypatch.setattr(StoreSink, "send", held)

    def let_one(self):
        """Let one call through, now or when it comes."""
        self._may_go.release()

    def open(self):
        self._is_open.set()
        self._may_go.release(1000)
