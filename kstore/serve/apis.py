"""Which requests are answered, and by which functions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kstore.errors import UnsupportedVersionError
from kstore.serve.answers.authenticating import sasl_authenticate, sasl_handshake
from kstore.serve.answers.cluster import (
    create_acls,
    delete_acls,
    describe_acls,
    describe_cluster,
    describe_log_dirs,
)
from kstore.serve.answers.coordinating import (
    consumer_group_heartbeat,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from kstore.serve.answers.groups import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_delete,
)
from kstore.serve.answers.inspecting import describe_producers, describe_transactions, list_transactions
from kstore.serve.answers.metadata import api_versions, describe_topic_partitions, metadata, unknown_api_versions
from kstore.serve.answers.reading import fetch, list_offsets, offset_for_leader_epoch
from kstore.serve.answers.settings import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from kstore.serve.answers.topics import create_partitions, create_topics, delete_records, delete_topics
from kstore.serve.answers.transacting import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from kstore.serve.answers.writing import produce
from kstore.serve.broker import Broker
from kstore.serve.calls import Call, Peer
from kstore.serve.security.guards import Asked, Verdict, guarded
from kstore.serve.security.operations import WITH_OPERATIONS, tell_operations
from kstore.serve.security.sasl import Session
from kstore.wire.classes import Message
from kstore.wire.frames import apis, decode_request, encode_response

if TYPE_CHECKING:
    from kstore.serve.connection import Answer

    Handler = Callable[[Broker, Call[Any]], Message | Awaitable[Message | None] | None]

_API_VERSIONS = 18


def _in_thread(work: Callable[[Broker, Call[Any]], Message]) -> Handler:
    """Return a function that works in a thread, as it may wait for the disk."""
    return lambda broker, call: asyncio.to_thread(work, broker, call)


HANDLERS: dict[int, Handler] = {
    0: produce,
    1: fetch,
    2: _in_thread(list_offsets),
    3: _in_thread(metadata),
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    17: sasl_handshake,
    _API_VERSIONS: lambda broker, call: api_versions(
        HANDLERS, call, transaction_version=broker.config.transaction_version
    ),
    19: _in_thread(create_topics),
    20: _in_thread(delete_topics),
    21: _in_thread(delete_records),
    22: init_producer_id,
    23: _in_thread(offset_for_leader_epoch),
    24: _in_thread(add_partitions_to_txn),
    25: _in_thread(add_offsets_to_txn),
    26: _in_thread(end_txn),
    28: txn_offset_commit,
    29: describe_acls,
    30: create_acls,
    31: delete_acls,
    32: _in_thread(describe_configs),
    33: _in_thread(alter_configs),
    35: _in_thread(describe_log_dirs),
    36: sasl_authenticate,
    37: _in_thread(create_partitions),
    42: delete_groups,
    44: _in_thread(incremental_alter_configs),
    47: offset_delete,
    60: describe_cluster,
    61: _in_thread(describe_producers),
    65: _in_thread(describe_transactions),
    66: _in_thread(list_transactions),
    68: consumer_group_heartbeat,
    69: consumer_group_describe,
    74: list_config_resources,
    75: _in_thread(describe_topic_partitions),
}


def respond(
    broker: Broker, frame: bytearray, peer: Peer, *, client_host: str, session: Session
) -> Answer | Awaitable[Answer]:
    """Return the answer to the request in a frame, None if it has none.

    Raises: UnsupportedVersionError, InvalidRequestError, AuthenticationError for what a broker does not answer.
    """
    session.check(frame)
    try:
        request = decode_request(frame)
        handler = HANDLERS.get(request.api_key)
        if handler is None:
            raise UnsupportedVersionError(
                f"api {request.api_key} is not served",
                api_key=request.api_key,
                version=request.version,
                correlation_id=request.correlation_id,
            )
    except UnsupportedVersionError as error:
        if error.api_key != _API_VERSIONS:
            raise
        return encode_response(unknown_api_versions(), version=0, correlation_id=error.correlation_id)
    work = broker.faults.around(handler, api_key=request.api_key)
    clock = asyncio.get_running_loop().time
    started_s = clock()
    call = Call(request.body, request.version, peer, request.client_id or "", client_host, session)
    body = work(broker, call) if session.access.is_superuser else _allowed(broker, request.api_key, work, call)

    def encoded(body: Message | None) -> Answer:
        if body is not None and request.api_key in WITH_OPERATIONS:
            tell_operations(request.api_key, call.body, body, access=session.access)
        answer = (
            None
            if body is None
            else encode_response(body, version=request.version, correlation_id=request.correlation_id)
        )
        broker.metrics.note(
            apis()[request.api_key].name,
            request,
            client_host,
            seconds=clock() - started_s,
            request_bytes=len(frame),
            response_bytes=sum(map(len, answer or ())),
        )
        return answer

    return encoded(body) if body is None or isinstance(body, Message) else _later(body, encoded)


def _allowed(
    broker: Broker, api_key: int, handler: Handler, call: Call[Any]
) -> Message | Awaitable[Message | None] | None:
    """Have answered what the client may have of a request."""
    verdict = guarded(Asked(api_key, call.version, call.body, call.session.access, broker.topic_named))
    if verdict.answer is not None:
        return verdict.answer
    answer = handler(broker, call)
    if isinstance(answer, Awaitable):
        return _completed(answer, verdict)
    if answer is not None:
        verdict.complete(answer)
    return answer


async def _completed(body: Awaitable[Message | None], verdict: Verdict) -> Message | None:
    answer = await body
    if answer is not None:
        verdict.complete(answer)
    return answer


async def _later(body: Awaitable[Message | None], encoded: Callable[[Message | None], Answer]) -> Answer:
    return encoded(await body)
