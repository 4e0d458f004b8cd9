"""read_groups: the groups of a root."""

from __future__ import annotations

from collections.abc import Callable, Collection

from kstore.coordinator.group.metadata import Group, groups_in
from kstore.env import Env, StrPath
from kstore.errors import KStoreError
from kstore.store.store import Store, WritableStore, open_store


def read_groups(
    root: StrPath | Store | WritableStore,
    *,
    groups: Collection[str] | None = None,
    on_error: Callable[[KStoreError], object] | None = None,
    env: Env | None = None,
) -> tuple[Group, ...]:
    """Return the groups whose coordinator state is in a root, by group id.

    Reads `__consumer_offsets` to its end, with records of every broker since 0.8.2: classic groups, those of KIP-848,
    share groups and those of Kafka Streams. The offsets of share groups are elsewhere, in `__share_group_state`.
    Args: root: a log.dirs root, by path, URL or as a store; groups: only these; on_error: called with the error of a
        partition that can't be read, whose groups, log end or topic name are then missing; None to raise it.
    Raises: LogNotFoundError without a root; InvalidRecordError, CorruptRecordError and the other errors of a read;
        UnsupportedError for a record of a version that kstore does not know.
    Cost: one pass over the topic; memory for one record per key.
    Source: Kafka GroupMetadataManager, OffsetMetadataManager, kafka-consumer-groups.sh.
    """
    if isinstance(root, Store | WritableStore):
        return groups_in(root, groups=groups, on_error=on_error)
    with open_store(root, env=env) as store:
        return groups_in(store, groups=groups, on_error=on_error)
