"""ConsumerMember: a member of a group of KIP-848, and how it comes from what it has to what it is to have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from kstore.coordinator.group.consumer.assignors import Places
from kstore.wire.codes import ErrorCode

# What a request and a record have instead of an epoch: that of a member that leaves, and of a static one that will be
# back.
LEAVES, LEAVES_FOR_A_WHILE = -1, -2


class RefusedError(Exception):
    """A request that is refused: the code and the message of the answer."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class MemberState(IntEnum):
    """The states of a member, as records have them (Kafka: MemberState)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member as its records describe it.

    topics, pattern: what it subscribes to, by name and by a regular expression ("" for none). assigned: what it was
    told to have. revoking: what it has to give up before it goes on.
    Source: Kafka ConsumerGroupMember.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Places = frozenset()
    revoking: Places = frozenset()

    def metadata(self) -> dict[str, Any]:
        """Return the value of its ConsumerGroupMemberMetadata record."""
        return {
            "instanceId": self.instance_id,
            "rackId": self.rack_id,
            "clientId": self.client_id,
            "clientHost": self.client_host,
            "subscribedTopicNames": sorted(self.topics),
            "subscribedTopicRegex": self.pattern,
            "rebalanceTimeoutMs": self.rebalance_timeout_ms,
            "serverAssignor": self.assignor,
            "classicMemberMetadata": None,
        }

    def with_metadata(self, value: Mapping[str, Any]) -> ConsumerMember:
        """Return the member with what such a record says."""
        return replace(
            self,
            instance_id=value["instanceId"],
            rack_id=value["rackId"],
            client_id=value["clientId"],
            client_host=value["clientHost"],
            topics=frozenset(value["subscribedTopicNames"]),
            pattern=value["subscribedTopicRegex"] or "",
            rebalance_timeout_ms=value["rebalanceTimeoutMs"],
            assignor=value["serverAssignor"],
        )

    def current(self) -> dict[str, Any]:
        """Return the value of its ConsumerGroupCurrentMemberAssignment record."""
        return {
            "memberEpoch": self.epoch,
            "previousMemberEpoch": self.previous_epoch,
            "state": self.state.value,
            "assignedPartitions": listed(self.assigned),
            "partitionsPendingRevocation": listed(self.revoking),
        }

    def with_current(self, value: Mapping[str, Any]) -> ConsumerMember:
        """Return the member with what such a record says."""
        is_known = value["state"] in set(MemberState)
        return replace(
            self,
            epoch=value["memberEpoch"],
            previous_epoch=value["previousMemberEpoch"],
            state=MemberState(value["state"]) if is_known else MemberState.UNKNOWN,
            assigned=places_of(value["assignedPartitions"]),
            revoking=places_of(value["partitionsPendingRevocation"]),
        )

    def check_epoch(self, epoch: int, owned: Places | None) -> None:
        """Raise RefusedError unless a heartbeat's epoch is the member's; with 0 it begins again.

        Its last one will do, if the answer that told it of the next one can have been lost.
        """
        if epoch in (0, self.epoch):
            return
        is_late = owned is not None and owned <= self.assigned
        if not (epoch == self.previous_epoch and epoch < self.epoch and is_late):
            which = "greater" if epoch > self.epoch else "smaller"
            raise RefusedError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group "
                f"coordinator ({self.epoch}). The member must abandon all its partitions and rejoin.",
            )

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def reconciled(self, *, target_epoch: int, target: Places, taken: Places, owned: Places | None) -> ConsumerMember:
        """Return the member one step nearer to its target, or as it is.

        It first gives up what it is not to have and then gets what nobody else has; what others have, it waits for.
        Args: taken: what other members have, or have not given up; owned: what it says that it has.
        Raises: RefusedError in a state that a later version of Kafka has.
        Source: Kafka CurrentAssignmentBuilder.
        """
        if self.is_reconciled(target_epoch):
            return self
        epoch = self.epoch
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if owned is None or owned & self.revoking:
                return self
            epoch += 1
        elif self.state is MemberState.UNKNOWN:
            if owned is None or owned:
                raise RefusedError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                    "rejoin.",
                )
            epoch = target_epoch
        kept = self.assigned & target
        revoking = self.assigned - target
        missing = target - kept
        free = missing - taken
        if revoking and (owned is None or owned & revoking):
            state, assigned = MemberState.UNREVOKED_PARTITIONS, kept
        else:
            state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
            epoch, assigned, revoking = target_epoch, kept | free, frozenset()
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)


def places_of(listing: Iterable[Mapping[str, Any]]) -> Places:
    """Return the partitions that a record lists by topic."""
    return frozenset((one["topicId"], number) for one in listing for number in one["partitions"])


def listed(places: Places) -> list[dict[str, Any]]:
    """Return partitions as records list them."""
    numbers: dict[Any, list[int]] = defaultdict(list)
    for topic_id, number in sorted(places):
        numbers[topic_id].append(number)
    return [{"topicId": topic_id, "partitions": of_topic} for topic_id, of_topic in numbers.items()]
