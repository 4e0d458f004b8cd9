"""The consumer, and the groups of a root; exports the public names."""

from kstore.consumer.config import ConsumerSettings
from kstore.consumer.consumer import Consumer
from kstore.consumer.groups import delete_group, delete_offsets, read_groups, reset_offsets
from kstore.coordinator.group.metadata import Group, GroupMember, GroupOffset

__all__ = [
    "Consumer",
    "ConsumerSettings",
    "Group",
    "GroupMember",
    "GroupOffset",
    "delete_group",
    "delete_offsets",
    "read_groups",
    "reset_offsets",
]
