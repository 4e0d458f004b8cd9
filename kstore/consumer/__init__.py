"""The consumer: groups and their offsets from `__consumer_offsets`, and Consumer. Uses log, record and producer."""

from kstore.consumer.consumer import Consumer
from kstore.consumer.groups import Group, GroupMember, GroupOffset, read_groups

__all__ = ["Consumer", "Group", "GroupMember", "GroupOffset", "read_groups"]
