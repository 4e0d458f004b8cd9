"""ConsumerSettings: the types of a consumer's settings as keyword arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypedDict

from kstore.config import NO_BROKER, unknown_setting
from kstore.env import StrPath
from kstore.log.following.tail import AutoOffsetReset
from kstore.log.reads import Isolation
from kstore.serializers import Deserializer
from kstore.store.store import WritableStore


class UntypedSettings(TypedDict, total=False):
    """The settings of a Consumer but its deserializers, which give it its types."""

    group: str | None
    topics: Collection[str]
    partitions: Iterable[tuple[str, int]]
    auto_offset_reset: AutoOffsetReset
    isolation: Isolation
    offsets: StrPath | WritableStore | None
    timeout: float | None
    max_poll_records: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int


class ConsumerSettings(UntypedSettings, total=False):
    """The settings of a Consumer as keyword arguments, each optional; for type checkers."""

    key_deserializer: Deserializer | str | None
    value_deserializer: Deserializer | str | None


_NO_MEMBERSHIP = "a consumer is in no membership of its group, and reads all partitions that it is given"
_NO_AUTO_COMMIT = "there is no auto-commit, call commit()"
# What other consumers of Kafka have, and kstore does not.
_ADVICE = {
    "client_id": NO_BROKER,
    "enable_auto_commit": _NO_AUTO_COMMIT,
    "auto_commit_interval_ms": _NO_AUTO_COMMIT,
    "group_instance_id": _NO_MEMBERSHIP,
    "group_protocol": _NO_MEMBERSHIP,
    "session_timeout_ms": _NO_MEMBERSHIP,
    "heartbeat_interval_ms": _NO_MEMBERSHIP,
    "max_poll_interval_ms": _NO_MEMBERSHIP,
    "partition_assignment_strategy": _NO_MEMBERSHIP,
    "consumer_timeout_ms": "poll() takes a timeout, in seconds",
    "fetch_max_wait_ms": "poll() takes a timeout, in seconds",
    "fetch_wait_max_ms": "poll() takes a timeout, in seconds",
    "fetch_min_bytes": "poll() returns what there is",
    "check_crcs": "each batch is checked",
}


def check_settings(names: Iterable[str]) -> None:
    """Raise TypeError for a name that is no setting of a consumer, with what to write instead."""
    known = ConsumerSettings.__annotations__
    for name in names:
        if name not in known:
            raise unknown_setting("a consumer", name, known, advice=_ADVICE, where="kstore.Consumer")
