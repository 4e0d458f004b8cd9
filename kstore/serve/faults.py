"""Faults: what a server does wrong because a test wants it to."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstore.errors import KStoreError, checked_int
from kstore.naming import did_you_mean
from kstore.serve.calls import NoAnswerError
from kstore.wire.classes import Message, attribute
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import message_named
from kstore.wire.schema import STRUCT, Field

if TYPE_CHECKING:
    from kstore.serve.calls import Call

    # Its first argument is the Broker.
    Work = Callable[[Any, Call[Any]], Message | Awaitable[Message | None] | None]

_CODE = "error_code"
_PRODUCE, _FETCH, _METADATA = 0, 1, 3
_MOST_TIMES = 1_000_000
# A number of a partition that requests and answers call by two names.
_OTHER_NAMES = {"partition_index": "partition"}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with one request.

    code: the answer's, in place of that of the work; delay_s: before the work; is_lost: the connection ends without an
    answer; is_done: the work is done although the client is not told so.
    """

    code: int | None = None
    delay_s: float = 0.0
    is_lost: bool = False
    is_done: bool = False

    @property
    def does_work(self) -> bool:
        return self.is_done or (self.code is None and not self.is_lost)


class Faults:
    """The faults that are planned, for each api in the order in which they were planned.

    Threads: safe.
    """

    def __init__(self) -> None:
        self._planned: dict[int, deque[Fault]] = defaultdict(deque)
        self._changing = threading.Lock()

    def plan(self, api: str, fault: Fault, *, times: int) -> None:
        """Plan a fault for the next requests of an api, by Kafka's name ("Produce").

        Raises: ValueError for another name, and unless `times` is from 1 to 1,000,000.
        """
        from kstore.wire.frames import apis

        key = next((key for key, known in apis().items() if known.name.lower() == api.lower()), None)
        if key is None:
            raise ValueError(
                f"expected one of {', '.join(sorted(known.name for known in apis().values()))}, got {api!r}"
            )
        count = checked_int("times", times, least=1, greatest=_MOST_TIMES)
        with self._changing:
            self._planned[key].extend([fault] * count)

    def clear(self) -> int:
        """Forget all faults that did not happen yet; return how many there were."""
        with self._changing:
            count = sum(map(len, self._planned.values()))
            self._planned.clear()
        return count

    def around(self, work: Work, *, api_key: int) -> Work:
        """Return what answers a request of an api: the work, or with a planned fault something else."""
        if not self._planned:
            return work
        with self._changing:
            planned = self._planned.get(api_key)
            if not planned:
                return work
            fault = planned.popleft()
        return lambda broker, call: _spoilt(fault, work, broker, call, api_key=api_key)


def code_named(error: str | int | type[KStoreError]) -> int:
    """Return the code of an error, which is given by Kafka's name, by its number or as a class of kstore.

    Raises: ValueError for another name or number, for NONE, and for a class without a code.
    """
    code: object = error
    if isinstance(error, str):
        code = ErrorCode.__members__.get(error)
    elif isinstance(error, type):
        code = getattr(error, "kafka_code", None)
    if isinstance(code, int) and code != ErrorCode.NONE and code in ErrorCode.__members__.values():
        return int(code)
    similar = did_you_mean([error], ErrorCode.__members__) if isinstance(error, str) else ""
    raise ValueError(f"expected the name of an error in Kafka, such as NOT_LEADER_OR_FOLLOWER, got {error!r}{similar}")


async def _spoilt(fault: Fault, work: Work, broker: Any, call: Call[Any], *, api_key: int) -> Message | None:
    if fault.delay_s:
        await asyncio.sleep(fault.delay_s)
    answer: Message | None = None
    if fault.does_work or api_key == _METADATA:
        done = work(broker, call)
        answer = await done if isinstance(done, Awaitable) else done
    if fault.is_lost:
        raise NoAnswerError("a test wanted the connection to end")
    if fault.code is None:
        return answer
    if api_key == _METADATA and answer is not None:
        return _unknown_leaders(answer, fault.code)
    if api_key == _PRODUCE and call.body.acks == 0:
        raise NoAnswerError(f"a test wanted error {fault.code}, and nothing is answered")
    return failed_answer(call.body, api_key=api_key, version=call.version, code=fault.code)


def _unknown_leaders(answer: Any, code: int) -> Message:
    """Return an answer of Metadata that names the nodes, but of each topic only an error."""
    for topic in answer.topics:
        topic.error_code, topic.partitions = code, []
    metadata: Message = answer
    return metadata


def failed_answer(request: Message, *, api_key: int, version: int, code: int) -> Message:
    """Return an answer that says one error of all that a request asks for."""
    from kstore.wire.frames import apis

    kind = message_named(apis()[api_key].name + "Response")
    answer = _failed(kind, request, version=version, code=code)
    if api_key == _FETCH:
        setattr(answer, _CODE, ErrorCode.NONE)  # it is about sessions
    return answer


def _failed(kind: type[Message], asked: object, *, version: int, code: int) -> Message:
    """Return a struct with an error code, and with what it has in common with a struct of the request, or its value."""
    partner = _first_array(asked, version)
    values: dict[str, Any] = {}
    for field in kind.fields:
        name = attribute(field.name)
        if version not in field.versions:
            continue
        if name == _CODE:
            values[name] = code
        elif field.is_array and field.kind == STRUCT:
            if _has_code(field):
                values[name] = [_failed(kind.structs[field.name], each, version=version, code=code) for each in partner]
        elif field.kind == STRUCT:
            continue
        elif isinstance(asked, Message):
            value = getattr(asked, name, getattr(asked, _OTHER_NAMES.get(name, name), None))
            if value is not None and not isinstance(value, list):
                values[name] = value
        elif not values and isinstance(asked, str if field.kind == "string" else int):
            values[name] = asked
    return kind(**values)


def _has_code(field: Field) -> bool:
    return any(attribute(inner.name) == _CODE or _has_code(inner) for inner in field.fields)


def _first_array(asked: object, version: int) -> list[Any]:
    """Return the first array of a struct of a request: what it asks for."""
    for field in asked.fields if isinstance(asked, Message) else ():
        if field.is_array and version in field.versions:
            return getattr(asked, attribute(field.name)) or []
    return []
