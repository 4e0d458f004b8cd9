"""collect: the facts of a root or a partition as one JSON object, which the page shows (docs/report.md: its fields)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstore.compression import codec_name
from kstore.config import LogConfig
from kstore.consumer.groups import read_groups
from kstore.env import Env, join_path
from kstore.errors import KStoreError
from kstore.log.cleaning.cleanable import LogBounds, find_cleanable
from kstore.log.cleaning.retention import RetentionBounds, plan_retention
from kstore.log.cleaning.savings import compaction_savings
from kstore.log.damage import Damage, SuspectedLoss
from kstore.log.files.checkpoints import read_checkpoint, read_leader_epoch_checkpoint
from kstore.log.files.names import (
    CLEANER_CHECKPOINT,
    DURABLE_POINT,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    QUARANTINE_DIRECTORY,
    QUORUM_STATE,
    PartitionDirectory,
    is_metadata_snapshot_name,
    parse_segment_name,
    retired_state,
)
from kstore.log.files.root_files import read_clean_shutdown, read_meta_properties
from kstore.log.log import Log
from kstore.log.recovery.evidence import losses_of_root
from kstore.log.verify import Verification, verify_checkpoints
from kstore.reporting.statistics import LargestKeys, LogStatistics
from kstore.reporting.walk import LogWalk
from kstore.store.opening import open_found
from kstore.store.settings.known import KnownSettings
from kstore.types import GROUP_OFFSETS_TOPIC, NO_TIMESTAMP, TopicPartition

Json = dict[str, Any]
COUNTED_KEYS = 10_000
SHOWN_KEYS = 10
MOST_LISTED = 100
_PARTITION_FILES = frozenset(
    {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, QUORUM_STATE, DURABLE_POINT, QUARANTINE_DIRECTORY}
)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a report reads: is_deep: records too; now_ms: the time that ages are counted from; config: limits of reads.

    on_partition: called before a partition is read. on_read: called with the number of bytes that were read since.
    """

    is_deep: bool
    now_ms: int
    config: LogConfig
    on_partition: Callable[[str], object] = lambda _: None
    on_read: Callable[[int], object] = lambda _: None


def collect(directories: Sequence[PartitionDirectory], *, place: str, is_root: bool, options: ReportOptions) -> Json:
    """Return the facts of partitions.

    Args: place: the path that was asked for; is_root: whether that is a log.dirs root.
    Raises: StorageError of the root itself; what is wrong with a partition is in the result.
    Cost: reads every log once, with options.is_deep four times.
    """
    settings = {found.root: KnownSettings(found.root, found.env) for found in directories}
    partitions = [_partition(found, settings[found.root], options) for found in directories]
    roots = {found.root: found.env for found in directories}
    root_damage: list[Json] = []
    losses: list[Json] = []
    for root, env in sorted(roots.items()):
        root_damage += [_damage(damage) for damage in verify_checkpoints(root, env)]
    if is_root:
        listed = {found.topic_partition for found in directories}
        for root, env in sorted(roots.items()):
            lost = losses_of_root(root, env, is_wanted=lambda partition: partition not in listed)
            losses += [{"partition": str(loss.topic_partition), **_loss(loss)} for loss in lost]
    root, env = next(iter(roots.items()))
    groups, group_errors = _groups(root, env) if is_root and _has_groups(directories) else ([], [])
    report = {
        "place": _name(place),
        "is_root": is_root,
        "is_deep": options.is_deep,
        "made_at_ms": options.now_ms,
        "root": _root(root, env),
        "partitions": partitions,
        "root_damage": root_damage,
        "losses_without_directory": losses,
        "groups": groups,
        "group_errors": group_errors,
    }
    report["health"] = _health(report)
    return report


def is_unharmed(report: Mapping[str, Any]) -> bool:
    """Whether the facts of a report have no damage, no proven loss and nothing that could not be read."""
    return bool(report["health"]["is_unharmed"])


def _partition(found: PartitionDirectory, settings: KnownSettings, options: ReportOptions) -> Json:
    topic, number = found.topic_partition
    options.on_partition(str(found.topic_partition))
    shown: Json = {"topic": _name(topic), "partition": number, "error": None}
    try:
        with open_found(found, options.config) as log:
            return shown | _log(log, found, settings, options)
    except KStoreError as error:
        return shown | {"error": _name(str(error)), "is_deleted": found.was_deleted()}


def _log(log: Log, found: PartitionDirectory, settings: KnownSettings, options: ReportOptions) -> Json:
    start_offset, end_offset = log.log_start_offset, log.log_end_offset
    walk = LogWalk(log.config, start_offset=start_offset, end_offset=end_offset, now_ms=options.now_ms)
    verification = Verification(
        log, is_deep=options.is_deep, env=found.env, on_segment=walk.on_segment, on_read=options.on_read
    )
    verified = verification.result()
    facts, segments = walk.facts, walk.segments
    statistics = facts.statistics
    deep = _deep_statistics(log, options) if options.is_deep else None
    first_ms, last_ms = statistics.first_timestamp_ms, statistics.last_timestamp_ms
    records = statistics.records if deep is None else deep.records
    first_open = min((first for first, _ in facts.open.values()), default=None)
    return {
        "log_start_offset": verified.log_start_offset,
        "log_end_offset": verified.log_end_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": verified.log_end_offset if first_open is None else max(first_open, start_offset),
        "size_in_bytes": sum(segment.size_in_bytes for segment in segments),
        "batches": statistics.batches,
        "control_batches": statistics.control_batches,
        "records": records,
        "first_timestamp": first_ms,
        "last_timestamp": last_ms,
        "magics": sorted(facts.magics),
        "rates": {
            "bucket_ms": statistics.rates.bucket_ms,
            "buckets": [[start, *counts] for start, counts in sorted(statistics.rates.buckets.items())],
        },
        "codecs": _codecs(statistics, deep),
        "batch_sizes": _by_size(facts.batch_sizes),
        "stored_record_sizes": _by_size(facts.stored_record_sizes),
        "record_sizes": None if deep is None else _by_size(deep.record_sizes),
        "segments": [vars(segment) for segment in segments],
        "damage": [_damage(damage) for damage in verified.damage],
        "damaged_offsets": facts.damaged_offsets,
        "losses": [_loss(loss) for loss in verified.losses],
        "gaps": {
            "count": facts.gap_count,
            "offsets": facts.gap_offsets,
            "removed_in_batches": facts.removed_in_batches,
            "first": facts.gaps[:MOST_LISTED],
        },
        "timestamps": {
            "late_batches": facts.late_batches,
            "late_by_at_most_ms": facts.latest_ms,
            "future_batches": facts.future_batches,
            "batches_without": facts.batches_without_timestamp,
            "by_offset": [[walk.bin_start(bin_), *bounds] for bin_, bounds in sorted(facts.times.items())],
        },
        "transactions": _transactions(walk, options),
        "producers": _producers(walk),
        "leader_epochs": [[epoch, start] for epoch, start in facts.epochs[:MOST_LISTED]],
        "leader_epoch_checkpoint": _epochs_of_file(log, found.env),
        "unknown_files": _unknown_files(log.path, found.env),
        "outlook": _outlook(log, found, settings, options, last_stable_offset=first_open),
    } | _deep(log, deep, options, found.env)


def _deep_statistics(log: Log, options: ReportOptions) -> LogStatistics:
    statistics = LogStatistics(LargestKeys(COUNTED_KEYS))
    for batch in log.batches(on_error="skip", on_skip=lambda _: None):
        statistics.add(batch, config=options.config)
        options.on_read(batch.size_in_bytes)
    return statistics


def _deep(log: Log, deep: LogStatistics | None, options: ReportOptions, env: Env) -> Json:
    """Return what only the records show: the largest keys, and what compaction would save."""
    if deep is None:
        return {"largest_keys": None, "tombstones": None, "records_without_key": None, "compaction": None}
    try:
        transactions = log.transactions()
        savings: Json | None = compaction_savings(
            log.segments,
            log_start_offset=log.log_start_offset,
            end_offset=transactions.last_stable_offset,
            aborted=transactions.aborted,
            now_ms=options.now_ms,
            config=log.config,
            env=env,
        )._asdict()
    except KStoreError as error:
        savings = {"error": _name(str(error))}
    return {
        "largest_keys": [
            {
                "key": _bytes_text(key.key) + ("..." if len(key.key) < key.key_size else ""),
                "key_size": key.key_size,
                "records": key.records,
                "bytes": key.size_in_bytes,
                "bytes_at_most": key.at_most_bytes,
            }
            for key in deep.keys.top(SHOWN_KEYS)
        ],
        "tombstones": deep.tombstones,
        "records_without_key": deep.records_without_key,
        "compaction": savings,
    }


def _codecs(statistics: LogStatistics, deep: LogStatistics | None) -> list[Json]:
    decoded = {} if deep is None else deep.by_codec
    return [
        {
            "codec": codec_name(codec),
            "batches": weight.batches,
            "size_in_bytes": weight.size_in_bytes,
            "ratio": None if codec not in decoded else decoded[codec].ratio,
        }
        for codec, weight in sorted(statistics.by_codec.items())
    ]


def _by_size(counts: Mapping[int, int]) -> list[list[int]]:
    """Return [smallest size, count] of each power of two, from counts by the number of bits of the size."""
    return [[1 << bits >> 1, counts.get(bits, 0)] for bits in range(min(counts), max(counts) + 1)] if counts else []


def _transactions(walk: LogWalk, options: ReportOptions) -> Json:
    facts = walk.facts
    opened = sorted(facts.open.items(), key=lambda item: item[1])
    return {
        "committed": facts.committed_count,
        "aborted": facts.aborted_count,
        "aborted_first": facts.aborted[:MOST_LISTED],
        "open_count": len(opened),
        "open": [
            {
                "producer_id": producer_id,
                "first_offset": first_offset,
                "first_timestamp": None if timestamp_ms == NO_TIMESTAMP else timestamp_ms,
                "age_ms": None if timestamp_ms == NO_TIMESTAMP else max(0, options.now_ms - timestamp_ms),
            }
            for producer_id, (first_offset, timestamp_ms) in opened[:MOST_LISTED]
        ],
    }


def _producers(walk: LogWalk) -> Json:
    facts = walk.facts
    latest = sorted(facts.producers.items(), key=lambda item: -item[1].last_offset)
    return {
        "count": len(latest),
        "is_whole": not facts.producers_left_out,
        "latest": [{"producer_id": producer_id, **vars(producer)} for producer_id, producer in latest[:MOST_LISTED]],
    }


def _epochs_of_file(log: Log, env: Env) -> list[list[int]] | None:
    try:
        entries = read_leader_epoch_checkpoint(join_path(log.path, LEADER_EPOCH_CHECKPOINT), env)
    except KStoreError:
        return None  # it is among the damage
    return None if entries is None else [list(entry) for entry in entries[-MOST_LISTED:]]


def _unknown_files(path: str, env: Env) -> list[str]:
    """Return the names in a partition's directory that neither Kafka nor kstore gives."""

    def is_known(name: str) -> bool:
        stem = name.removesuffix(".deleted").removesuffix(".cleaned").removesuffix(".swap")
        return parse_segment_name(stem) is not None or name in _PARTITION_FILES or is_metadata_snapshot_name(name)

    return sorted(_name(name) for name in env.listdir(path) if not is_known(name))[:MOST_LISTED]


def _outlook(
    log: Log,
    found: PartitionDirectory,
    settings: KnownSettings,
    options: ReportOptions,
    *,
    last_stable_offset: int | None,
) -> Json:
    """Return what retention and compaction would do now, as far as the root says what holds for the topic."""
    try:
        known = settings.of(found.topic_partition.topic)
        shown: Json = {"policy": _name(known.policy), "settings": dict(known.settings), "error": None}
        config = LogConfig(**known.settings)
        stable = log.log_end_offset if last_stable_offset is None else last_stable_offset
        high_watermark = log.high_watermark
        needed = stable if high_watermark is None else min(stable, high_watermark)
        shown["retention"] = shown["cleanable"] = None
        has_limit = known.settings.keys() & {"retention_ms", "retention_bytes"}
        if known.is_deleted_from and has_limit:
            bounds = RetentionBounds(log.log_start_offset, log.log_end_offset, needed)
            due = plan_retention(log.segments, bounds, now_ms=options.now_ms, config=config, env=found.env)
            size = sum(segment.size_in_bytes for segment in due)
            shown["retention"] = {"due_segments": len(due), "due_bytes": size}
        if known.is_compacted:
            cleaned = read_checkpoint(found.root, CLEANER_CHECKPOINT, found.env).get(found.topic_partition)
            of_log = LogBounds(log.log_start_offset, log.log_end_offset, stable, cleaned)
            part = find_cleanable(log.segments, of_log, now_ms=options.now_ms, config=config, env=found.env)
            shown["cleanable"] = {
                "first_dirty_offset": part.first_dirty_offset,
                "first_uncleanable_offset": part.first_uncleanable_offset,
                "cleanable_bytes": part.cleanable_bytes,
                "dirty_ratio": part.dirty_ratio,
                "is_due": part.is_due(config),
            }
    except (KStoreError, TypeError, ValueError) as error:
        return {"policy": "-", "settings": {}, "error": _name(str(error)), "retention": None, "cleanable": None}
    return shown


def _has_groups(directories: Iterable[PartitionDirectory]) -> bool:
    return any(found.topic_partition.topic == GROUP_OFFSETS_TOPIC for found in directories)


def _groups(root: str, env: Env) -> tuple[list[Json], list[str]]:
    errors: list[str] = []
    try:
        groups = read_groups(root, on_error=lambda error: errors.append(_name(str(error))), env=env)
    except KStoreError as error:
        return [], [_name(str(error))]
    return [
        {
            "group": _name(group.group_id),
            "type": group.type,
            "state": group.state,
            "members": len(group.members),
            "lag": sum(max(offset.lag or 0, 0) for offset in group.offsets.values()),
            "offsets": [
                {
                    "partition": _name(str(partition)),
                    "offset": offset.committed.offset,
                    "log_end_offset": offset.log_end_offset,
                    "lag": offset.lag,
                    "committed": offset.committed.commit_timestamp_ms,
                }
                for partition, offset in group.offsets.items()
            ],
        }
        for group in groups
    ], errors


def _root(root: str, env: Env) -> Json:
    shown: Json = {"path": _name(root), "is_clean": None, "cluster_id": None, "node_id": None, "retired": []}
    try:
        shown["is_clean"] = read_clean_shutdown(root, env) is not None
        meta = read_meta_properties(root, env)
        if meta is not None:
            shown |= {"cluster_id": _name(str(meta.cluster_id)), "node_id": meta.node_id}
        shown["retired"] = sorted(_name(name) for name in env.listdir(root) if retired_state(name) is not None)
    except KStoreError:
        pass  # a malformed meta.properties is among the damage
    return shown


def _health(report: Mapping[str, Any]) -> Json:
    partitions = report["partitions"]
    damaged = sum(len(partition.get("damage", ())) for partition in partitions) + len(report["root_damage"])
    losses = [loss for partition in partitions for loss in partition.get("losses", ())]
    losses += report["losses_without_directory"]
    unreadable = sum(partition["error"] is not None and not partition["is_deleted"] for partition in partitions)
    proven = sum(loss["is_proven"] for loss in losses)
    return {
        "is_unharmed": not (damaged or proven or unreadable or report["group_errors"]),
        "damaged_ranges": damaged,
        "damaged_partitions": sum(bool(partition.get("damage")) for partition in partitions),
        "proven_losses": proven,
        "likely_losses": len(losses) - proven,
        "unreadable_partitions": unreadable,
    }


def _damage(damage: Damage) -> Json:
    path, position, size_in_bytes, reason = damage
    return {"file": _name(path), "position": position, "size_in_bytes": size_in_bytes, "reason": _name(reason)}


def _loss(loss: SuspectedLoss) -> Json:
    return {
        "first_offset": loss.first_offset,
        "last_offset": loss.last_offset,
        "file": _name(loss.path),
        "is_proven": loss.is_proven,
        "evidence": _name(loss.evidence),
    }


def _name(text: str) -> str:
    """Return a name or a message with escapes for what is not printable, and bytes that are not UTF-8."""
    if text.isprintable():
        return text
    shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in shown)


def _bytes_text(data: bytes) -> str:
    return _name(data.decode("utf-8", "surrogateescape").replace("\\", "\\\\")) if data else "<empty>"


def name_of(partition: Mapping[str, Any]) -> str:
    """Return the name of a partition of a report."""
    return str(TopicPartition(partition["topic"], partition["partition"]))
