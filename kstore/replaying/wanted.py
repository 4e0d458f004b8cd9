"""The arguments of a replay, checked: what is read, under which names it arrives, and how fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from kstore._core import Record
from kstore.config import MIB, LogConfig, config_or_default
from kstore.env import Env, StrPath, absolute_path
from kstore.errors import ReplayError
from kstore.log.damage import OnError, OnSkip
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.selection import Offsets, Selection
from kstore.log.log import Log
from kstore.log.reads import Isolation
from kstore.replaying.cluster import check_bootstrap, check_client
from kstore.types import GROUP_OFFSETS_TOPIC, INTERNAL_TOPICS, Time, TopicPartition, is_topic_name, time_ms

Rename: TypeAlias = "Mapping[str, str] | str"
NAME_OF_SOURCE = "{topic}"
DEFAULT_TIMEOUT_S = 60.0
_MOST_PART_RECORDS = 1000
_MOST_PART_BYTES = MIB


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which records of a log are sent.

    since_ms, until_ms: since_ms <= timestamp < until_ms, None for no bound; isolation: as in Log.read.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    isolation: Isolation = "read_committed"

    def parts(
        self,
        log: Log,
        *,
        start_offset: int,
        end_offset: int | None,
        on_error: OnError = "raise",
        on_skip: OnSkip | None = None,
    ) -> Iterator[tuple[list[Record], int]]:
        """Yield the records of [start_offset, end_offset) that are sent, in lists that may be empty, each with the size
        in bytes of the batches that it begins; no control records.

        Raises: as Log.read.  Cost: one batch of the log in memory, and 1,000 records or about 1 MiB of it as objects.
        """
        first, end = log._held_offsets(
            start_offset, end_offset, since_ms=self.since_ms, isolation=self.isolation, on_error=on_error
        )
        if first >= end:
            return
        for batch in log.batches(first, end, isolation=self.isolation, on_error=on_error, on_skip=on_skip):
            size = batch.size_in_bytes
            if batch.is_control or (self.since_ms is not None and batch.max_timestamp_ms < self.since_ms):
                yield [], size
                continue
            records = iter(batch)
            while part := records.take(most_records=_MOST_PART_RECORDS, most_bytes=_MOST_PART_BYTES):
                if part[0].offset < first or part[-1].offset >= end:
                    part = [record for record in part if first <= record.offset < end]
                if self.since_ms is not None or self.until_ms is not None:
                    part = [record for record in part if self._selects(record)]
                yield part, size
                size = 0

    def _selects(self, record: Record) -> bool:
        timestamp_ms = record.timestamp_ms
        return (self.since_ms is None or timestamp_ms >= self.since_ms) and (
            self.until_ms is None or timestamp_ms < self.until_ms
        )


class ReplayArguments(TypedDict, total=False):
    """The keyword arguments of kstore.replay.

    topics, partitions, start_offset, end_offset, since, until, isolation, on_error, on_skip: as in kstore.scan;
    isolation is "read_committed" unless it is given. rename: new names by the old, or a rule with {topic} in it.
    create_topics: create topics and partitions that the cluster lacks, with the source's number of partitions and
    settings. groups: names or shell patterns of groups whose committed offsets are translated and committed; ["*"] for
    all. state: a file, made if missing. records_per_s, bytes_per_s: bounds on speed, the bytes of keys and values.
    timeout: in seconds without any acknowledgement, after which the call ends, and of each request. client: settings of
    librdkafka, as those of security. config: for reading; env: as for kstore.open_store.
    """

    topics: Iterable[str] | None
    partitions: Iterable[int] | int | None
    start_offset: Offsets | None
    end_offset: Offsets | None
    since: Time | None
    until: Time | None
    rename: Rename | None
    isolation: Isolation
    on_error: OnError
    on_skip: OnSkip | None
    create_topics: bool
    groups: Iterable[str] | None
    state: StrPath | None
    records_per_s: float | None
    bytes_per_s: float | None
    timeout: float
    client: Mapping[str, Any] | None
    config: LogConfig | None
    env: Env | None


@dataclass(frozen=True, kw_only=True)
class ReplayWanted:
    """The arguments of a replay; see kstore.replay."""

    source: StrPath
    bootstrap_servers: str
    selection: Selection
    filter: Filter
    rename: Rename
    on_error: OnError
    on_skip: OnSkip | None
    creates_topics: bool
    groups: tuple[str, ...] | None
    state: str | None
    records_per_s: float | None
    bytes_per_s: float | None
    timeout_s: float
    client: Mapping[str, Any]
    config: LogConfig
    env: Env | None

    def find(self) -> list[PartitionDirectory]:
        """Return the partitions of the source.

        Raises: as Selection.find; ReplayError for names that contradict each other, and for topics that no client
            writes.
        """
        found = self.selection.find(self.source, self.env)
        topics = sorted({directory.topic_partition.topic for directory in found})
        if isinstance(self.rename, Mapping) and (unknown := sorted(set(self.rename) - set(topics))):
            raise ReplayError(f"rename names topics that are not replayed: {', '.join(unknown)}")
        targets: dict[str, str] = {}
        for topic in topics:
            name = self.name_of(topic)
            other = targets.setdefault(name, topic)
            if other != topic:
                raise ReplayError(f"two topics would become {name}: {other} and {topic}")
            if name in INTERNAL_TOPICS:
                hint = "; offsets of groups are translated (--offsets)" if name == GROUP_OFFSETS_TOPIC else ""
                raise ReplayError(f"{name} is a topic that a cluster writes itself: give it another name{hint}")
        return found

    def name_of(self, topic: str) -> str:
        """Return the name of a topic in the cluster."""
        if isinstance(self.rename, str):
            return self.rename.replace(NAME_OF_SOURCE, topic)
        return self.rename.get(topic, topic)

    def target_of(self, topic_partition: TopicPartition) -> TopicPartition:
        """Return the partition of the cluster that gets the records of one of the source."""
        return TopicPartition(self.name_of(topic_partition.topic), topic_partition.partition)

    def bounds_of(self, topic_partition: TopicPartition) -> tuple[int, int | None]:
        """Return the first offset that is asked for, and the one after the last, None for the end of the log."""
        start, end = self.selection.bounds_of(topic_partition)
        return start or 0, end


def check_rename(rename: Rename) -> None:
    """Raise ValueError for a rule without {topic}, and for new names that Kafka does not allow."""
    if isinstance(rename, str) and NAME_OF_SOURCE not in rename:
        raise ValueError(f"a rule for new names must have {NAME_OF_SOURCE} in it, got {rename!r}")
    names = [rename.replace(NAME_OF_SOURCE, "t")] if isinstance(rename, str) else list(rename.values())
    for name in names:
        if not is_topic_name(name):
            raise ValueError(f"Kafka allows no topic of the name {name!r}")


def replay_wanted(
    source: StrPath,
    bootstrap_servers: str,
    *,
    topics: Iterable[str] | None = None,
    partitions: Iterable[int] | int | None = None,
    start_offset: Offsets | None = None,
    end_offset: Offsets | None = None,
    since: Time | None = None,
    until: Time | None = None,
    rename: Rename | None = None,
    isolation: Isolation = "read_committed",
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
    create_topics: bool = False,
    groups: Iterable[str] | None = None,
    state: StrPath | None = None,
    records_per_s: float | None = None,
    bytes_per_s: float | None = None,
    timeout: float = DEFAULT_TIMEOUT_S,
    client: Mapping[str, Any] | None = None,
    config: LogConfig | None = None,
    env: Env | None = None,
) -> ReplayWanted:
    """Check the arguments of a replay.  Raises: ValueError, TypeError."""
    if isolation not in ("read_committed", "read_uncommitted"):
        raise ValueError(f'isolation must be "read_committed" or "read_uncommitted", got {isolation!r}')
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    for name, rate in (("records_per_s", records_per_s), ("bytes_per_s", bytes_per_s), ("timeout", timeout)):
        if rate is not None and not rate > 0:
            raise ValueError(f"{name} must be above 0, got {rate}")
    since_ms, until_ms = time_ms("since", since), time_ms("until", until)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise ValueError(f"since must not be after until, got {since_ms} and {until_ms} ms")
    check_rename(rename or {})
    check_client(client or {})
    check_bootstrap(bootstrap_servers)
    return ReplayWanted(
        source=source,
        bootstrap_servers=bootstrap_servers,
        selection=Selection.of(topics=topics, partitions=partitions, start_offset=start_offset, end_offset=end_offset),
        filter=Filter(since_ms=since_ms, until_ms=until_ms, isolation=isolation),
        rename=rename or {},
        on_error=on_error,
        on_skip=on_skip,
        creates_topics=create_topics,
        groups=None if groups is None else tuple([groups] if isinstance(groups, str) else groups),
        state=None if state is None else absolute_path(state),
        records_per_s=records_per_s,
        bytes_per_s=bytes_per_s,
        timeout_s=float(timeout),
        client=dict(client or {}),
        config=config_or_default(config),
        env=env,
    )
