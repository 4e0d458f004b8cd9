"""The groups of a root: read_groups; reset_offsets, delete_offsets and delete_group change those without members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kstore.coordinator.group.metadata import SHARE, Group, groups_in
from kstore.coordinator.group.offsets import GroupOffsets, check_place, checked_group, checked_offsets
from kstore.env import Env, StrPath
from kstore.errors import GroupStateError, KStoreError
from kstore.store.store import Store, WritableStore, open_store
from kstore.types import GROUP_OFFSETS_TOPIC, OffsetAndMetadata, TopicPartition
from kstore.wire.codes import ErrorCode


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


def reset_offsets(
    store: WritableStore, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
) -> Group | None:
    """Durably commit offsets of a group that has no members, and return the group as it was; None for a new one.

    A group that does not exist is made by that, as by kafka-consumer-groups.sh --reset-offsets. The offsets need not be
    inside of the logs: a consumer begins at auto.offset.reset if they are not.
    Raises: GroupStateError for a group with members, or a share group; UnknownTopicOrPartitionError; TypeError,
        ValueError for offsets that can't be committed; StorageError and the other errors of an append.
    Cost: reads all of `__consumer_offsets`.
    Source: Kafka ConsumerGroupCommand, the request OffsetCommit.
    """
    checked = checked_offsets(offsets)
    found = group_to_change(store, group)
    GroupOffsets(store).commit(group, checked, ack="flushed")
    return found


def delete_offsets(store: WritableStore, group: str, partitions: Collection[TopicPartition]) -> int:
    """Durably remove the committed offsets of a group without members in partitions, and return how many it had.

    Raises: GroupStateError as reset_offsets, and for a group that does not exist; StorageError and the other errors of
        an append.
    Cost: reads all of `__consumer_offsets`.
    Source: Kafka's request OffsetDelete.
    """
    _existing(group, group_to_change(store, group))
    return GroupOffsets(store).remove(group, set(partitions))


def delete_group(store: WritableStore, group: str) -> int:
    """Durably remove a group without members, with its offsets, and return the number of its records.

    Raises, Cost: as delete_offsets.
    Source: Kafka's request DeleteGroups.
    """
    _existing(group, group_to_change(store, group))
    return GroupOffsets(store).remove(group)


def group_to_change(store: Store | WritableStore, group: str) -> Group | None:
    """Return a group that may be changed, None if there is none of that id.

    Raises: GroupStateError for a group with members, or a share group, whose offsets are elsewhere; ValueError for an
        impossible id; UnknownTopicOrPartitionError for a new group whose partition of `__consumer_offsets` is not in
        the root, or not known; as read_groups.
    """
    name = checked_group(group)
    found = next(iter(groups_in(store, groups=[name]) if GROUP_OFFSETS_TOPIC in store.topics else ()), None)
    if found is None:
        check_place(store, name)
    if found is not None and found.type == SHARE:
        raise GroupStateError(f"group {group!r}: expected one with committed offsets, found a share group")
    if found is not None and found.members:
        member = found.members[0]
        raise GroupStateError(
            f"group {group!r}: expected no members, found {len(found.members)}, such as {member.member_id!r} of "
            f"{member.host}; a broker that loads the group forgets them after their session timeout",
            kafka_code=ErrorCode.NON_EMPTY_GROUP,
        )
    return found


def _existing(name: str, found: Group | None) -> None:
    if found is None:
        raise GroupStateError(f"there is no group {name!r} in the root", kafka_code=ErrorCode.GROUP_ID_NOT_FOUND)
