"""Membership: the members of a classic group, its leader and its protocol, and the record that holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kstore.record.schemas.topics import encode_group_record

_GROUP_METADATA_TYPE = 2
# Brokers of Kafka 2.3 and newer read it; it has the group instance ids.
_GROUP_METADATA_VERSION = 3

Protocols = tuple[tuple[str, bytes], ...]
KeyValue = tuple[bytes, bytes | None]


class Call(NamedTuple):
    """A request that waits for its answer: the caller's token for it, and the version of the api."""

    token: object
    version: int


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group (Kafka: ClassicGroupMember).

    protocols: names with the member's metadata, by its preference. is_new: it has not had the answer to its first
    join. join, sync: its calls that wait. session_ends_ms: None while a call that waits keeps it alive.
    has_to_sync: it has joined the generation and not yet asked for its assignment.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    has_to_sync: bool = False
    join: Call | None = None
    sync: Call | None = None
    session_ends_ms: int | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not have it."""
        return dict(self.protocols).get(protocol or "", b"")

    def renew_session(self, now_ms: int) -> None:
        self.session_ends_ms = now_ms + self.session_timeout_ms


@dataclass(slots=True, kw_only=True)
class Membership:
    """The members of a classic group by id, in the order in which they came, and what follows from them.

    protocol_type: None before the first member. protocol: of the generation; None in a group without members.
    Source: Kafka ClassicGroup.
    """

    group_id: str
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    _ids: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        # The ids of the static members by group instance id.
        self._ids = {one.instance_id: name for name, one in self.members.items() if one.instance_id is not None}

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._ids[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member and return it, None if it is not there; if it led, the oldest of the others does."""
        removed = self.members.pop(member_id, None)
        if removed is not None and removed.instance_id is not None:
            del self._ids[removed.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return removed

    def rename(self, old_id: str, new_id: str) -> ClassicMember:
        """Give a member another id, in its place, and return it."""
        self.members = {new_id if name == old_id else name: member for name, member in self.members.items()}
        member = self.members[new_id]
        member.member_id = new_id
        if member.instance_id is not None:
            self._ids[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def member_of(self, instance_id: str) -> str | None:
        """Return the id of the member with a group instance id, None if there is none."""
        return self._ids.get(instance_id)

    def supports(self, protocols: Protocols) -> bool:
        """Whether all members support one of the protocols."""
        names = {name for name, _ in protocols}
        return bool(names & self.common_protocols()) if self.members else bool(names)

    def common_protocols(self) -> set[str]:
        of_members = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*of_members) if of_members else set()

    def chosen_protocol(self) -> str | None:
        """Return the protocol with the most votes: each member votes for the first of its own that all support.

        Of protocols with as many votes, that of the oldest member.
        """
        common = self.common_protocols()
        votes = Counter(next(name for name, _ in one.protocols if name in common) for one in self.members.values())
        return max(votes, key=votes.__getitem__, default=None) if common else None

    def elect_joined_leader(self) -> bool:
        """Let a member lead whose join waits: the leader if its does, else the oldest. Returns whether there is one."""
        joined = [name for name, member in self.members.items() if member.join is not None]
        if self.leader not in joined and joined:
            self.leader = joined[0]
        return bool(joined)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def to_record(self, now_ms: int, assignments: Mapping[str, bytes]) -> KeyValue:
        """Return key and value of the group's GroupMetadata record.

        Args: now_ms: since when the group has its state; assignments: by member id.
        """
        members = [
            {
                "memberId": one.member_id,
                "groupInstanceId": one.instance_id,
                "clientId": one.client_id,
                "clientHost": one.client_host,
                "rebalanceTimeout": one.rebalance_timeout_ms,
                "sessionTimeout": one.session_timeout_ms,
                "subscription": one.metadata(self.protocol),
                "assignment": assignments.get(one.member_id, b""),
            }
            for one in self.members.values()
        ]
        value = {
            "protocolType": self.protocol_type or "",
            "generation": self.generation,
            "protocol": self.protocol,
            "leader": self.leader,
            "currentStateTimestamp": now_ms,
            "members": members,
        }
        return encode_group_record(
            {"group": self.group_id}, value, type_id=_GROUP_METADATA_TYPE, version=_GROUP_METADATA_VERSION
        )


def restored_membership(group_id: str, value: Mapping[str, Any]) -> Membership:
    """Return the membership in a GroupMetadata value with the members' subscriptions and assignments as bytes.

    A member has the protocol of the generation alone: a record does not hold the others.
    """
    protocol = value["protocol"]
    members = (_restored_member(fields, protocol) for fields in value["members"])
    return Membership(
        group_id=group_id,
        generation=value["generation"],
        protocol_type=value["protocolType"] or None,
        protocol=protocol,
        leader=value["leader"],
        members={member.member_id: member for member in members},
    )


def _restored_member(fields: Mapping[str, Any], protocol: str | None) -> ClassicMember:
    session_ms, rebalance_ms = fields["sessionTimeout"], fields.get("rebalanceTimeout", -1)
    return ClassicMember(
        member_id=fields["memberId"],
        instance_id=fields.get("groupInstanceId"),
        client_id=fields["clientId"],
        client_host=fields["clientHost"],
        rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        session_timeout_ms=session_ms,
        protocols=((protocol or "", fields["subscription"]),),
        assignment=fields["assignment"],
    )


def protocols_of(listed: Iterable[Any]) -> Protocols:
    """Return the protocols of a JoinGroupRequest."""
    return tuple((one.name, bytes(one.metadata)) for one in listed)
