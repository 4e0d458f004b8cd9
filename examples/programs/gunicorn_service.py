"""A service of several processes over one log: each worker reads the directory, and one other process writes it.

    python examples/programs/writer.py DIRECTORY SOCKET &
    KSTORE_DIRECTORY=DIRECTORY KSTORE_SOCKET=SOCKET gunicorn --chdir examples/programs --workers 4 gunicorn_service:app

POST appends the number in the body, GET ?start=N returns the numbers from an offset on.
It is plain WSGI: what matters is where a store is opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from writer import RemoteLog, WriterGoneError

import kstore

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

TOPIC = "numbers"
MOST_RECORDS = 1000


@cache
def remote() -> RemoteLog:
    """Return the way to the writer. Made in the worker: a connection must not be shared by a fork."""
    return RemoteLog(os.environ["KSTORE_SOCKET"])


@cache
def reader() -> kstore.Store:
    """Return the store, opened for reading: it takes no lock. Opened in the worker, after the fork."""
    return kstore.open_store(os.environ["KSTORE_DIRECTORY"])


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer one request."""
    try:
        status, body = answer(environ)
    except WriterGoneError as error:
        # Reads go on. The client may send it again: numbers that matter once need an id of their own.
        status, body = "503 Service Unavailable", str(error)
    except ValueError as error:
        status, body = "400 Bad Request", str(error)
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]


def answer(environ: WSGIEnvironment) -> tuple[str, object]:
    """Return the status and what the body says."""
    if environ["REQUEST_METHOD"] == "POST":
        number = int(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        return "201 Created", {"offset": remote().append(TOPIC, b"%d" % number), "worker": os.getpid()}
    start = int(parse_qs(environ["QUERY_STRING"]).get("start", ["0"])[0])
    return "200 OK", {"numbers": numbers_from(start), "worker": os.getpid()}


def numbers_from(start: int) -> list[int]:
    """Return the numbers from an offset on, those of the last moment too."""
    store = reader()
    if TOPIC not in store:
        store.look_again()  # lists the directory: the topic may have come since
        if TOPIC not in store:
            return []
    log = store.log(TOPIC)
    log.refresh()  # two stats if nothing came
    return [int(record.value) for record in islice(log.read(start), MOST_RECORDS)]
