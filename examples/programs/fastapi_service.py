"""An event log in a FastAPI service of one process: events are posted, read from an offset on, and streamed.

    KSTORE_DIRECTORY=DIRECTORY uvicorn --app-dir examples/programs fastapi_service:app

One process writes the directory, so this is a service with one worker; gunicorn_service.py has several.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import kstore
from kstore import aio

TOPIC = "events"


class Event(BaseModel):
    """What a client posts."""

    key: str
    text: str


class StoredEvent(Event):
    """An event of the log."""

    offset: int


def stored(record: kstore.Record) -> StoredEvent:
    """Return an event as it is served."""
    return StoredEvent(offset=record.offset, key=record.key.decode(), text=record.value.decode())


def make_app(directory: str, *, buffer_memory: int = 32 << 20, max_block_ms: int = 1000) -> FastAPI:
    """Return the service; its store is open from the start of the server to its end."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        # Waits for the lock of the process before, which a server that is restarted may still hold.
        store = await asyncio.to_thread(kstore.open_store, directory, "a", timeout=10)
        async with store:
            await asyncio.to_thread(store.create_topic, TOPIC, exist_ok=True)
            async with aio.Producer(
                store,
                acks="flushed",
                max_block_ms=max_block_ms,
                buffer_memory=buffer_memory,
                batch_size=min(16 * 1024, buffer_memory // 2),
            ) as producer:
                app.state.log, app.state.producer = store.log(TOPIC), producer
                yield

    app = FastAPI(lifespan=lifespan)
    app.post("/events", status_code=201)(post_event)
    app.get("/events")(get_events)
    app.get("/stream")(stream_events)
    return app


async def post_event(request: Request, event: Event) -> StoredEvent:
    """Return the event once no power cut can take it away; 503 while the disk is slower than the clients."""
    producer: aio.Producer = request.app.state.producer
    try:
        metadata = await producer.send(TOPIC, event.text.encode(), key=event.key.encode())
    except kstore.BufferExhaustedError as error:
        raise HTTPException(503, "too many events wait for the disk", {"Retry-After": "1"}) from error
    return StoredEvent(offset=metadata.offset, **event.model_dump())


def get_events(request: Request, start: int = 0, limit: Annotated[int, Query(le=1000)] = 100) -> list[StoredEvent]:
    """Return events from an offset on. FastAPI calls a function that is no coroutine in a worker thread."""
    log: kstore.WritableLog = request.app.state.log
    return [stored(record) for record in islice(log.read(max(start, log.log_start_offset)), limit)]


async def stream_events(request: Request, start: int = 0, patience: float = 30.0) -> StreamingResponse:
    """Send events as lines of JSON as they come, until the client goes away or none came for `patience` seconds."""
    log: kstore.WritableLog = request.app.state.log

    async def lines() -> AsyncIterator[str]:
        opened: kstore.Follower[kstore.Record] = await asyncio.to_thread(log.follow, start, timeout=patience)
        async with opened as follower:
            async for record in follower:
                yield stored(record).model_dump_json() + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


app = make_app(os.environ.get("KSTORE_DIRECTORY", "events-root"))
