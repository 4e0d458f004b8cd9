"""Replays: records of a root sent to a cluster that runs, and the offsets of groups that go with them."""

from kstore.replaying.offsets import TranslatedOffset
from kstore.replaying.run import ReplayedPartition, ReplaySummary, replay
from kstore.replaying.wanted import ReplayArguments

__all__ = ["ReplayArguments", "ReplaySummary", "ReplayedPartition", "TranslatedOffset", "replay"]
