"""Guards: what of a request a client may have done, by its rules, for each api.

A guard takes out of a request what is refused before it is answered, and puts it into the answer afterwards, so that no
function that answers has to ask. Lists that a client may ask for without names lose what it may not see.
Source: KafkaApis, and AuthHelper; the operations of Kafka's that the rules do not have are ADMIN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kstore.errors import AuthenticationError
from kstore.serve.security.rules import Access, Operation, Resource
from kstore.wire.classes import Message, attribute
from kstore.wire.codes import ErrorCode
from kstore.wire.frames import apis
from kstore.wire.messages import message_named
from kstore.wire.protocol import ZERO_UUID

CODES = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_TOPIC, _GROUP, _ID = Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID
_DESCRIBE, _READ, _WRITE, _ADMIN = Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.ADMIN
# Kafka: ConfigResource.Type; the others are of the cluster.
_CONFIGURED = {2: _TOPIC, 32: _GROUP}
# Kafka: CoordinatorType.
_COORDINATED = {0: _GROUP, 1: _ID, 2: _GROUP}
_FIND_SEVERAL_VERSION, _FETCH_SEVERAL_VERSION, _ADD_SEVERAL_VERSION, _METADATA_BY_ID = 4, 8, 4, 12


class Asked(NamedTuple):
    """A request that is looked at. name_of: returns the name of the topic of an id, None if there is none."""

    api_key: int
    version: int
    body: Any
    access: Access
    name_of: Callable[[UUID], str | None]

    def answer(self, **values: Any) -> Any:
        return message_named(f"{apis()[self.api_key].name}Response")(**values)

    def code(self, operation: Operation, resource: Resource, name: str) -> int:
        """Return the code by which an operation is refused, 0 if it is allowed."""
        return 0 if self.access.may(operation, resource, name) else CODES[resource]

    def topic(self, item: Any, name: str) -> str | None:
        """Return the topic of an item, which has its name or its id."""
        topic_id = getattr(item, "topic_id", ZERO_UUID)
        found: str | None = getattr(item, name) if topic_id == ZERO_UUID else self.name_of(topic_id)
        return found


class Verdict(NamedTuple):
    """What a guard says. answer: the whole answer, None if the rest of the request is to be answered, and then changed
    by complete.
    """

    answer: Message | None = None
    complete: Callable[[Any], None] = lambda _: None


Guard: TypeAlias = Callable[[Asked], Verdict]


class _Parts(NamedTuple):
    """Partitions in an item of a request, and those in its answer. number: None where the items are numbers."""

    asked: str = "partitions"
    number: str | None = "partition_index"
    answered: str = "partitions"
    answered_number: str = "partition_index"
    code: str = "error_code"


class _Items(NamedTuple):
    """A list in a request, and the one in its answer, which has an item for each.

    resource: None where each item says its kind; name: None where the items are names.
    """

    operation: Operation
    resource: Resource | None = _TOPIC
    asked: str = "topics"
    name: str | None = "name"
    answered: str = "topics"
    answered_name: str = "name"
    parts: _Parts | None = _Parts()
    more: Mapping[str, Any] = MappingProxyType({})

    def code(self, asked: Asked, item: Any) -> int:
        """Return the code by which an item is refused, 0 if it is allowed, or is of a topic that is not there."""
        resource = _CONFIGURED.get(item.resource_type, Resource.CLUSTER) if self.resource is None else self.resource
        name = item if self.name is None else asked.topic(item, self.name)
        return 0 if name is None else asked.code(self.operation, resource, name)

    def refused(self, cls: type[Message], item: Any, code: int) -> Message:
        """Return the item of an answer for one that is refused."""
        made = struct_of(cls, self.answered)
        values = {self.answered_name: item if self.name is None else getattr(item, self.name)}
        values |= {same: getattr(item, same) for same in ("topic_id", "resource_type") if hasattr(item, same)}
        if self.parts is None:
            return made(**values, error_code=code, **self.more)
        numbers = getattr(item, self.parts.asked)
        if self.parts.number is not None:
            numbers = [getattr(one, self.parts.number) for one in numbers]
        part = struct_of(made, self.parts.answered)
        coded = {self.parts.code: code, **self.more}
        answered = [part(**{self.parts.answered_number: number}, **coded) for number in numbers]
        return made(**values, **{self.parts.answered: answered})


def struct_of(cls: type[Message], name: str) -> type[Message]:
    """Return the class of the structs in a field."""
    return next(struct for field, struct in cls.structs.items() if attribute(field) == name)


def _needs(*needs: tuple[Operation, Resource, str], items: _Items | None = None) -> Guard:
    """Return a guard of requests of which all is refused without one of the needs, else what the items say.

    needs: an operation, a kind and the field with the name; null needs nothing. Without an error code of its own the
    answer has that code for each item.
    """

    def guard(asked: Asked) -> Verdict:
        names = ((operation, resource, getattr(asked.body, field)) for operation, resource, field in needs)
        codes = (asked.code(operation, resource, name) for operation, resource, name in names if name is not None)
        code = next(filter(None, codes), 0)
        if items is None or (code and hasattr(asked.answer(), "error_code")):
            return Verdict(asked.answer(error_code=code) if code else None)
        return _of_items(asked, items, code=code)

    return guard


def _of_items(asked: Asked, items: _Items, *, code: int = 0) -> Verdict:
    """Take out of a request the items that are refused; all of them with code, unless it is 0."""
    codes = [(item, code or items.code(asked, item)) for item in getattr(asked.body, items.asked) or ()]
    cls = type(asked.answer())
    refused = [items.refused(cls, item, of_item) for item, of_item in codes if of_item]
    if not refused:
        return Verdict()
    allowed = [item for item, of_item in codes if not of_item]
    if not allowed:
        return Verdict(asked.answer(**{items.answered: refused}))
    setattr(asked.body, items.asked, allowed)
    return Verdict(None, lambda answer: getattr(answer, items.answered).extend(refused))


def _each(items: _Items) -> Guard:
    return lambda asked: _of_items(asked, items)


def _seen(field: str, resource: Resource, name: str, *, asked: Guard | None = None) -> Guard:
    """Return a guard by which an answer loses what may not be described."""

    def guard(request: Asked) -> Verdict:
        verdict = Verdict() if asked is None else asked(request)

        def complete(answer: Any) -> None:
            shown = [
                item
                for item in getattr(answer, field)
                if getattr(item, name) is None or request.access.may(_DESCRIBE, resource, getattr(item, name))
            ]
            setattr(answer, field, shown)
            verdict.complete(answer)

        return Verdict(verdict.answer, complete)

    return guard


def _cluster(asked: Asked) -> Verdict:
    """What is left to superusers."""
    code = asked.code(_ADMIN, Resource.CLUSTER, "")
    return Verdict(asked.answer(error_code=code) if code else None)


def _metadata(asked: Asked) -> Verdict:
    """Topics are made only by those who may make all that they ask for; the node is told in any case."""
    topics = asked.body.topics
    if topics is None or (asked.version < _METADATA_BY_ID and any(one.name is None for one in topics)):
        return Verdict()
    asked.body.allow_auto_topic_creation &= all(
        one.name is None or asked.access.may(_ADMIN, _TOPIC, one.name) for one in topics
    )
    named = [(one, asked.topic(one, "name")) for one in topics]
    refused = [one for one, name in named if name is not None and asked.code(_DESCRIBE, _TOPIC, name)]
    asked.body.topics = [one for one in topics if one not in refused]
    kind = struct_of(type(asked.answer()), "topics")
    answered = [
        kind(error_code=CODES[_TOPIC], name=one.name, topic_id=one.topic_id, topic_authorized_operations=-(2**31))
        for one in refused
    ]
    return Verdict(None, lambda answer: answer.topics.extend(answered))


_COMMITTED = _Items(
    _DESCRIBE,
    parts=_Parts("partition_indexes", None),
    more={"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""},
)


def _offset_fetch(asked: Asked) -> Verdict:
    answer = asked.answer()
    if asked.version < _FETCH_SEVERAL_VERSION:
        code = asked.code(_DESCRIBE, _GROUP, asked.body.group_id)
        return Verdict(asked.answer(error_code=code)) if code else _seen_topics(asked, asked.body, type(answer))
    kind = struct_of(type(answer), "groups")
    refused, completions = [], {}
    for group in asked.body.groups:
        code = asked.code(_DESCRIBE, _GROUP, group.group_id)
        if code:
            refused.append(kind(group_id=group.group_id, error_code=code))
        else:
            completions[group.group_id] = _seen_topics(asked, group, kind).complete
    asked.body.groups = [group for group in asked.body.groups if group.group_id in completions]

    def complete(whole: Any) -> None:
        for group in whole.groups:
            completions[group.group_id](group)
        whole.groups += refused

    return Verdict(None, complete)


def _seen_topics(asked: Asked, holder: Any, cls: type[Message]) -> Verdict:
    """Take out of the topics of an OffsetFetch, or of one of its groups, what may not be described."""
    codes = [(topic, _COMMITTED.code(asked, topic)) for topic in holder.topics or ()]
    refused = [_COMMITTED.refused(cls, topic, code) for topic, code in codes if code]
    if holder.topics is not None:
        holder.topics = [topic for topic, code in codes if not code]

    def complete(answer: Any) -> None:
        shown = [topic for topic in answer.topics if asked.access.may(_DESCRIBE, _TOPIC, topic.name)]
        answer.topics = [*shown, *refused]

    return Verdict(None, complete)


def _find_coordinator(asked: Asked) -> Verdict:
    resource = _COORDINATED.get(asked.body.key_type, Resource.CLUSTER)
    nowhere = {"node_id": -1, "host": "", "port": -1}
    if asked.version >= _FIND_SEVERAL_VERSION:
        return _of_items(
            asked, _Items(_DESCRIBE, resource, "coordinator_keys", None, "coordinators", "key", None, nowhere)
        )
    code = asked.code(_DESCRIBE, resource, asked.body.key)
    return Verdict(asked.answer(error_code=code, **nowhere) if code else None)


def _delete_topics(asked: Asked) -> Verdict:
    asked_by, name = ("topics", "name") if asked.body.topics else ("topic_names", None)
    return _of_items(asked, _Items(_ADMIN, _TOPIC, asked_by, name, "responses", "name", None))


def _init_producer_id(asked: Asked) -> Verdict:
    """An idempotent producer needs a topic to which it may write (KIP-679)."""
    transactional_id = asked.body.transactional_id
    if transactional_id is not None:
        code = asked.code(_WRITE, _ID, transactional_id)
    else:
        code = 0 if asked.access.may_some(_WRITE, _TOPIC) else CODES[Resource.CLUSTER]
    return Verdict(asked.answer(error_code=code, producer_id=-1, producer_epoch=-1) if code else None)


_produce_with_answer = _needs(
    (_WRITE, _ID, "transactional_id"),
    items=_Items(
        _WRITE,
        asked="topic_data",
        answered="responses",
        parts=_Parts("partition_data", "index", "partition_responses", "index"),
        more={"base_offset": -1},
    ),
)


def _produce(asked: Asked) -> Verdict:
    """Raise AuthenticationError where records are refused that have no answer: a broker closes the connection too."""
    count = len(asked.body.topic_data)
    verdict = _produce_with_answer(asked)
    if asked.body.acks == 0 and (verdict.answer is not None or len(asked.body.topic_data) < count):
        raise AuthenticationError("a client with acks=0 may not write to a topic")
    return verdict


_ADDED = _Items(
    _WRITE,
    asked="v3_and_below_topics",
    answered="results_by_topic_v3_and_below",
    parts=_Parts("partitions", None, "results_by_partition", "partition_index", "partition_error_code"),
)


def _add_partitions(asked: Asked) -> Verdict:
    """Partitions are added all or none; from version 4 on only brokers ask."""
    if asked.version >= _ADD_SEVERAL_VERSION:
        return _cluster(asked)
    code = asked.code(_WRITE, _ID, asked.body.v3_and_below_transactional_id)
    codes = [(topic, code or _ADDED.code(asked, topic)) for topic in asked.body.v3_and_below_topics]
    if not any(of_topic for _, of_topic in codes):
        return Verdict()
    cls = type(asked.answer())
    refused = [_ADDED.refused(cls, topic, of_topic or ErrorCode.OPERATION_NOT_ATTEMPTED) for topic, of_topic in codes]
    return Verdict(asked.answer(**{_ADDED.answered: refused}))


def _heartbeat_of_consumer(asked: Asked) -> Verdict:
    code = asked.code(_READ, _GROUP, asked.body.group_id)
    for topic in asked.body.subscribed_topic_names or ():
        code = code or asked.code(_DESCRIBE, _TOPIC, topic)
    return Verdict(asked.answer(error_code=code) if code else None)


def _configs(answered: str) -> Guard:
    return _each(_Items(_ADMIN, None, "resources", "resource_name", answered, "resource_name", None))


_READS_GROUP = _needs((_READ, _GROUP, "group_id"))
# Brokers and clients have these versions and coordinates told, and by these requests they say who they are; ACLs there
# are none.
_OPEN = dict.fromkeys((17, 18, 29, 30, 31, 36, 60), lambda _: Verdict())
GUARDS: dict[int, Guard] = _OPEN | {
    0: _produce,
    1: _each(
        _Items(
            _READ,
            name="topic",
            answered="responses",
            answered_name="topic",
            parts=_Parts("partitions", "partition"),
            more={"high_watermark": -1, "log_start_offset": -1, "records": b""},
        )
    ),
    2: _each(_Items(_DESCRIBE)),
    3: _seen("topics", _TOPIC, "name", asked=_metadata),
    8: _needs((_READ, _GROUP, "group_id"), items=_Items(_READ)),
    9: _offset_fetch,
    10: _find_coordinator,
    11: _READS_GROUP,
    12: _READS_GROUP,
    13: _READS_GROUP,
    14: _READS_GROUP,
    15: _each(_Items(_DESCRIBE, _GROUP, "groups", None, "groups", "group_id", None)),
    16: _seen("groups", _GROUP, "group_id"),
    19: _each(_Items(_ADMIN, parts=None)),
    20: _delete_topics,
    21: _each(_Items(_ADMIN, more={"low_watermark": -1})),
    22: _init_producer_id,
    23: _each(
        _Items(
            _DESCRIBE,
            name="topic",
            answered_name="topic",
            parts=_Parts("partitions", "partition", "partitions", "partition"),
        )
    ),
    24: _add_partitions,
    25: _needs((_WRITE, _ID, "transactional_id"), (_READ, _GROUP, "group_id")),
    26: _needs((_WRITE, _ID, "transactional_id")),
    28: _needs((_WRITE, _ID, "transactional_id"), (_READ, _GROUP, "group_id"), items=_Items(_READ)),
    32: _configs("results"),
    33: _configs("responses"),
    35: _cluster,
    37: _each(_Items(_ADMIN, answered="results", parts=None)),
    42: _each(_Items(_ADMIN, _GROUP, "groups_names", None, "results", "group_id", None)),
    44: _configs("responses"),
    47: _needs((_ADMIN, _GROUP, "group_id"), items=_Items(_READ)),
    61: _each(_Items(_READ, parts=_Parts("partition_indexes", None))),
    65: _each(_Items(_DESCRIBE, _ID, "transactional_ids", None, "transaction_states", "transactional_id", None)),
    66: _seen("transaction_states", _ID, "transactional_id"),
    68: _heartbeat_of_consumer,
    69: _each(_Items(_DESCRIBE, _GROUP, "group_ids", None, "groups", "group_id", None)),
    74: _cluster,
    75: _seen("topics", _TOPIC, "name", asked=_each(_Items(_DESCRIBE, parts=None))),
}


def guarded(asked: Asked) -> Verdict:
    """Look at a request.  Raises: AuthenticationError for one that no guard knows."""
    guard = GUARDS.get(asked.api_key)
    if guard is None:
        raise AuthenticationError(f"no rule says who may send requests of api {asked.api_key}")
    return guard(asked)
