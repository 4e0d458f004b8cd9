"""AdoptionReport: what an adoption did, or would do: per topic, what is lost, and the lines for server.properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class AdoptedTopic:
    """A topic as the metadata has it.

    name, topic_id: as there; partitions: how many; holes: the numbers of those that have no directory, which a broker
    makes, empty; settings: by Kafka's names; settings_from: who says them; notes: what was changed or has to be
    known, in words. has_new_id: the topic had no id. highest_epoch: the largest leader epoch of its partitions from
    now on.
    """

    name: str
    topic_id: UUID
    has_new_id: bool
    partitions: int
    holes: tuple[int, ...] = ()
    highest_epoch: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    settings_from: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AdoptionReport:
    """What kstore.adopt did, or in a dry run would do.

    Attributes: roots (absolute paths; the metadata is in the first, or where it was); node_id, cluster_id; features
        (levels by name); topics; next_producer_id; snapshot (the path of the metadata); is_changed (False if the root
        was adopted before, and nothing has changed since); is_dry_run; set_aside (the directory that has the files of
        an earlier cluster, None if there were none); lost (what of the earlier cluster is not carried over, in words);
        left_alone (directories that a broker set aside); notices (what has to be known, in words); server_properties
        (the lines that a broker needs).
    """

    roots: tuple[str, ...]
    node_id: int
    cluster_id: str
    features: Mapping[str, int]
    topics: tuple[AdoptedTopic, ...]
    next_producer_id: int
    snapshot: str
    is_changed: bool
    is_dry_run: bool
    set_aside: str | None = None
    lost: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    server_properties: tuple[str, ...] = ()

    @property
    def partition_count(self) -> int:
        """How many partitions the metadata has."""
        return sum(topic.partitions for topic in self.topics)
