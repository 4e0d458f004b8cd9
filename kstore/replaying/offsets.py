"""Offsets of groups, translated from the source to the cluster as MirrorMaker 2 does, and committed there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from kstore.consumer.groups import read_groups
from kstore.coordinator.group.metadata import CLASSIC, CONSUMER, Group
from kstore.env import Env, StrPath
from kstore.errors import ReplayError
from kstore.replaying.cluster import Cluster
from kstore.replaying.flow import Flow
from kstore.types import TopicPartition


class TranslatedOffset(NamedTuple):
    """A committed offset of a group, in the source and in the cluster.

    group: its name; source_topic, partition, source_offset: what the root has of it; topic, offset: of the cluster;
    committed: the offset that the group had in the cluster before, None if it had none; note: why the offset is not
    committed, None if it is.
    """

    group: str
    source_topic: str
    partition: int
    source_offset: int
    topic: str
    offset: int
    committed: int | None
    note: str | None


def groups_of(root: StrPath, patterns: Sequence[str], env: Env | None) -> list[Group]:
    """Return the groups of a root whose names match one of the patterns, and whose offsets are committed offsets.

    Raises: as read_groups.
    """
    return [
        group
        for group in read_groups(root, env=env)
        if group.type in (CLASSIC, CONSUMER) and any(fnmatchcase(group.group_id, pattern) for pattern in patterns)
    ]


def points_of(groups: Iterable[Group], place: TopicPartition) -> set[int]:
    """Return the offsets that groups have committed in a partition."""
    return {group.offsets[place].committed.offset for group in groups if place in group.offsets}


def translate(groups: Sequence[Group], flows: Sequence[Flow], cluster: Cluster) -> list[TranslatedOffset]:
    """Return the offsets of groups in the cluster, by group and partition, with why some are not committed.

    A group is left alone that has members in the cluster; an offset never goes back (Kafka: MirrorCheckpointTask).
    Raises: ReplayError if the cluster refuses to show its groups.
    """
    wanted = [group for group in groups if any(flow.source in group.offsets for flow in flows)]
    idle = cluster.idle_groups([group.group_id for group in wanted]) if wanted else set()
    found = []
    for group in wanted:
        committed = cluster.committed(group.group_id)
        for flow in flows:
            offset = group.offsets.get(flow.source)
            if offset is None:
                continue
            translated, before = flow.translated(offset.committed.offset), committed.get(flow.target)
            note = None
            if offset.problem is not None and offset.committed.offset >= (offset.log_start_offset or 0):
                note = offset.problem
            elif group.group_id not in idle:
                note = "the group has members in the cluster"
            elif before is not None and before >= translated:
                note = f"the group is at {before} in the cluster"
            found.append(
                TranslatedOffset(
                    group.group_id,
                    *flow.source,
                    offset.committed.offset,
                    flow.target.topic,
                    translated,
                    before,
                    note,
                )
            )
    return found


def commit(offsets: Sequence[TranslatedOffset], cluster: Cluster) -> list[TranslatedOffset]:
    """Commit those offsets that have no note; return all, with what was refused."""
    refused: dict[tuple[str, TopicPartition], str] = {}
    for name in dict.fromkeys(offset.group for offset in offsets):
        own = {
            TopicPartition(offset.topic, offset.partition): offset.offset
            for offset in offsets
            if offset.group == name and offset.note is None
        }
        if not own:
            continue
        try:
            answers = cluster.commit(name, own)
        except ReplayError as error:
            answers = dict.fromkeys(own, str(error))
        refused.update({(name, place): text for place, text in answers.items()})
    return [
        offset._replace(note=refused.get((offset.group, TopicPartition(offset.topic, offset.partition)), offset.note))
        for offset in offsets
    ]
