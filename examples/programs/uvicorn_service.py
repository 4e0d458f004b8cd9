"""A FastAPI service of several workers over one log: each worker reads the directory, and one other process writes it.

    python examples/programs/writer.py DIRECTORY SOCKET &
    KSTORE_DIRECTORY=DIRECTORY KSTORE_SOCKET=SOCKET uvicorn --app-dir examples/programs --workers 4 uvicorn_service:app

Each worker has its own store, opened by the lifespan: nothing is open at import, as the process that starts the workers
imports nothing, and workers under gunicorn may be forks of one that did.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import islice

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel
from writer import RemoteLog, WriterGoneError

import kstore

TOPIC = "numbers"
MOST_RECORDS = 1000


class Number(BaseModel):
    """What a client posts."""

    number: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    """Open the store for reading, which takes no lock, and close it with the worker."""
    async with kstore.open_store(os.environ["KSTORE_DIRECTORY"]) as store:
        app.state.store, app.state.remote = store, RemoteLog(os.environ["KSTORE_SOCKET"])
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/numbers", status_code=201)
def post_number(request: Request, posted: Number) -> dict[str, int]:
    """Return the offset of a number that is durable. FastAPI calls a function that is no coroutine in a thread."""
    remote: RemoteLog = request.app.state.remote
    try:
        return {"offset": remote.append(TOPIC, b"%d" % posted.number), "worker": os.getpid()}
    except WriterGoneError as error:
        # Reads go on. The client may send it again: numbers that matter once need an id of their own.
        raise HTTPException(503, str(error), {"Retry-After": "1"}) from error


@app.get("/numbers")
def get_numbers(request: Request, start: int = 0) -> dict[str, object]:
    """Return the numbers from an offset on, those of the last moment too."""
    store: kstore.Store = request.app.state.store
    store.look_again()  # a stat if no topic came since
    found: list[int] = []
    if TOPIC in store:
        log = store[TOPIC]
        log.refresh()  # two stats if nothing came
        found = [int(record.value) for record in islice(log.read(max(start, log.log_start_offset)), MOST_RECORDS)]
    return {"numbers": found, "worker": os.getpid()}
