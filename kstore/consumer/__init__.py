"""The consumer, and the groups of a root; exports the public names."""

from kstore.consumer.consumer import Consumer
from kstore.consumer.groups import read_groups
from kstore.coordinator.group.metadata import Group, GroupMember, GroupOffset

__all__ = ["Consumer", "Group", "GroupMember", "GroupOffset", "read_groups"]
