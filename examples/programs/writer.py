"""The one process that writes a directory: it takes records of others by a Unix socket, and answers with offsets.

    python examples/programs/writer.py DIRECTORY SOCKET

gunicorn_service.py and uvicorn_service.py send to it. Threads of all connections share batches, and each fdatasync.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Thread, local

import kstore


def serve(directory: str, socket: str) -> None:
    """Take records until SIGTERM; whoever may open the socket may write."""
    with kstore.open_store(directory, "a", timeout=30) as store, kstore.Producer(store, acks="flushed") as producer:
        # This process has the lock of the directory, so the socket is that of a writer that is gone.
        Path(socket).unlink(missing_ok=True)
        with Listener(socket, "AF_UNIX") as listener:
            print("ready", flush=True)
            while True:
                connection = listener.accept()
                Thread(target=answer, args=(connection, store, producer), daemon=True).start()


def answer(connection: Connection, store: kstore.WritableStore, producer: kstore.Producer) -> None:
    """Write the records of one client until it goes away."""
    with connection:
        while True:
            try:
                # recv() would run what a client pickled.
                topic, key, value = json.loads(connection.recv_bytes())
            except EOFError:
                return
            try:
                store.create_topic(topic, exist_ok=True)
                record_key = None if key is None else bytes.fromhex(key)
                metadata = producer.send(topic, bytes.fromhex(value), key=record_key).result()
                outcome: int | str = metadata.offset
            except kstore.KStoreError as error:
                outcome = str(error)
            connection.send_bytes(json.dumps(outcome).encode())


class WriterGoneError(Exception):
    """The writer does not answer; the record may be in the log or not."""


class RemoteLog:
    """Sends records to the writer. Threads: safe; each has a connection of its own."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._local = local()

    def append(self, topic: str, value: bytes, *, key: bytes | None = None) -> int:
        """Return the offset of a record that is durable.

        Raises: WriterGoneError, also if the writer refused it.
        """
        try:
            if not hasattr(self._local, "connection"):
                self._local.connection = Client(self._socket, "AF_UNIX")
            request = topic, None if key is None else key.hex(), value.hex()
            self._local.connection.send_bytes(json.dumps(request).encode())
            outcome: int | str = json.loads(self._local.connection.recv_bytes())
        except (OSError, EOFError) as error:
            vars(self._local).pop("connection", None)
            raise WriterGoneError(f"no answer of the writer at {self._socket}: {error}") from error
        if isinstance(outcome, str):
            raise WriterGoneError(outcome)
        return outcome


if __name__ == "__main__":
    # An exception, in place of a death, closes the producer and the store.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        serve(*sys.argv[1:])
