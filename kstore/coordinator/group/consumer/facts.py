"""ConsumerFacts: what the records of a group of KIP-848 say, and Draft, which changes it by records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kstore.coordinator.group.consumer.assignors import ASSIGNORS, Assignments, Places, Subscriber
from kstore.coordinator.group.consumer.members import ConsumerMember, listed, places_of
from kstore.coordinator.group.consumer.topics import TopicsImage
from kstore.coordinator.group.membership import KeyValue
from kstore.record.schemas.topics import encode_group_record

# The types of keys: of groups, of their topics in Kafka 4.0, of members, of targets, of what members have, of patterns.
GROUP, OLD_TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, PATTERN = 3, 4, 5, 6, 7, 8, 16
KEY_TYPES = (GROUP, OLD_TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, PATTERN)


class Resolved(NamedTuple):
    """The topics that a pattern matched, and at which version of the metadata (Kafka: ResolvedRegularExpression)."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(slots=True, kw_only=True)
class ConsumerFacts:
    """The state of a group.

    epoch: grows with each change of members, of what they subscribe to and of those topics; 0 for a group without a
    record. target_epoch: that of `targets`, who is to have what. patterns: those that members subscribe to.
    has_old_topics: there is a record of Kafka 4.0 that later versions have no use for.
    Source: Kafka ConsumerGroup, and GroupMetadataManager.replay.
    """

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    targets: Assignments = field(default_factory=dict)
    patterns: dict[str, Resolved] = field(default_factory=dict)
    has_old_topics: bool = False

    def copy(self) -> ConsumerFacts:
        return ConsumerFacts(
            group_id=self.group_id,
            epoch=self.epoch,
            metadata_hash=self.metadata_hash,
            target_epoch=self.target_epoch,
            members=self.members.copy(),
            ids=self.ids.copy(),
            targets=self.targets.copy(),
            patterns=self.patterns.copy(),
            has_old_topics=self.has_old_topics,
        )

    def replay(self, type_id: int, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Apply a record; the newest ones of all keys make the same state in any order."""
        if type_id == GROUP:
            self.epoch = 0 if value is None else value["epoch"]
            self.metadata_hash = 0 if value is None else value.get("metadataHash", 0)
        elif type_id == OLD_TOPICS:
            self.has_old_topics = value is not None
        elif type_id == TARGET_EPOCH:
            self.target_epoch = 0 if value is None else value["assignmentEpoch"]
        elif type_id == PATTERN:
            source = key["regularExpression"]
            if value is None:
                self.patterns.pop(source, None)
            else:
                self.patterns[source] = Resolved(frozenset(value["topics"]), value["version"], value["timestamp"])
        elif type_id == TARGET:
            if value is None:
                self.targets.pop(key["memberId"], None)
            else:
                self.targets[key["memberId"]] = places_of(value["topicPartitions"])
        else:
            self._replay_member(type_id, key["memberId"], value)

    def _replay_member(self, type_id: int, member_id: str, value: Mapping[str, Any] | None) -> None:
        known = self.members.get(member_id)
        if value is not None:
            member = known or ConsumerMember(member_id=member_id)
            member = member.with_metadata(value) if type_id == MEMBER else member.with_current(value)
            self.members[member_id] = member
            if member.instance_id is not None:
                self.ids[member.instance_id] = member_id
        elif type_id == MEMBER and known is not None:
            del self.members[member_id]
            if known.instance_id is not None and self.ids.get(known.instance_id) == member_id:
                del self.ids[known.instance_id]
        elif known is not None:
            # What it has belongs to nobody; its other tombstone removes it.
            nothing = ConsumerMember(member_id=member_id).current()
            self.members[member_id] = known.with_current(nothing)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to."""
        resolved = self.patterns.get(member.pattern)
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribed(self) -> frozenset[str]:
        """Return the names of the topics that anybody subscribes to."""
        return frozenset().union(*map(self.topics_of, self.members.values()))

    def taken_from(self, member_id: str) -> Places:
        """Return what other members have."""
        others = (member for name, member in self.members.items() if name != member_id)
        return frozenset().union(*(part for member in others for part in (member.assigned, member.revoking)))

    @property
    def assignor(self) -> str:
        """The one that most members ask for; of as many, the first."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor in ASSIGNORS)
        return max(ASSIGNORS, key=lambda name: votes[name])

    def assigned(self, image: TopicsImage) -> Assignments:
        """Return who is to have what."""
        ids: dict[frozenset[str], frozenset[UUID]] = {}
        subscribers = {}
        for name, member in self.members.items():
            topics = self.topics_of(member)
            if topics not in ids:
                ids[topics] = frozenset(image.topics[topic].topic_id for topic in topics if topic in image.topics)
            subscribers[name] = Subscriber(member.instance_id, ids[topics], self.targets.get(name, frozenset()))
        counts = {topic.topic_id: topic.partitions for topic in image.topics.values()}
        return ASSIGNORS[self.assignor](subscribers, counts)


class Draft:
    """The state that records would make of another one, and those records, in order.

    Attributes: facts, records.
    """

    def __init__(self, facts: ConsumerFacts, records: Iterable[KeyValue] = ()) -> None:
        self.facts = facts.copy()
        self.records = list(records)

    def set_group(self, epoch: int, *, metadata_hash: int) -> None:
        if self.facts.has_old_topics:
            self._write(OLD_TOPICS, None)
        value = {"epoch": epoch}
        if metadata_hash:
            value["metadataHash"] = metadata_hash
        self._write(GROUP, value)

    def set_member(self, member: ConsumerMember) -> None:
        self._write(MEMBER, member.metadata(), memberId=member.member_id)

    def set_current(self, member: ConsumerMember) -> None:
        self._write(CURRENT, member.current(), memberId=member.member_id)

    def set_target(self, member_id: str, places: Places) -> None:
        self._write(TARGET, {"topicPartitions": listed(places)}, memberId=member_id)

    def set_target_epoch(self, epoch: int) -> None:
        self._write(TARGET_EPOCH, {"assignmentEpoch": epoch})

    def set_pattern(self, source: str, resolved: Resolved | None) -> None:
        value = None
        if resolved is not None:
            topics = sorted(resolved.topics)
            value = {"topics": topics, "version": resolved.version, "timestamp": resolved.timestamp_ms}
        self._write(PATTERN, value, regularExpression=source)

    def remove_member(self, member_id: str) -> None:
        for type_id in (CURRENT, TARGET, MEMBER):
            self._write(type_id, None, memberId=member_id)

    def remove_group(self) -> None:
        """Remove a group without members."""
        self._write(TARGET_EPOCH, None)
        for source in list(self.facts.patterns):
            self.set_pattern(source, None)
        if self.facts.has_old_topics:
            self._write(OLD_TOPICS, None)
        self._write(GROUP, None)

    def _write(self, type_id: int, value: dict[str, Any] | None, **names: str) -> None:
        key = {"groupId": self.facts.group_id, **names}
        self.facts.replay(type_id, key, value)
        self.records.append(encode_group_record(key, value, type_id=type_id, version=0))
