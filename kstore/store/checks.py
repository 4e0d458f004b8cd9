"""verify and recover: check or repair the logs at a path, one partition or all of a root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from kstore._deprecated import with_old_names
from kstore._html import table_html
from kstore._progress import Progress, ProgressBar
from kstore.config import LogConfig, config_or_default
from kstore.env import Env, StrPath, locate
from kstore.errors import LogNotFoundError, LogReplacedError
from kstore.log.damage import Damage, SuspectedLoss
from kstore.log.files.names import PartitionDirectory, find_partitions
from kstore.log.recovery.evidence import losses_of_root
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.verify import Verification, VerifiedPartition, verify_checkpoints
from kstore.store.opening import log_size_in_bytes, open_found, tiered_env
from kstore.store.upkeep.recovering import RecoveredPartition, passes_of, recover_partitions, recoverable
from kstore.types import TopicPartition


class VerificationReport(NamedTuple):
    """The result of verify: each partition, by topic and number, the damage of the root's own files (root_damage), and
    what is lost with partitions that have no directory (root_losses).
    """

    partitions: tuple[VerifiedPartition, ...]
    root_damage: tuple[Damage, ...]
    root_losses: tuple[SuspectedLoss, ...] = ()

    @property
    def damage(self) -> tuple[Damage, ...]:
        """All damage: that of the partitions, then that of the root's files."""
        return (*(damage for partition in self.partitions for damage in partition.damage), *self.root_damage)

    @property
    def losses(self) -> tuple[SuspectedLoss, ...]:
        """All records that are gone without damage, proven or likely: those of the partitions, then the others."""
        return (*(loss for partition in self.partitions for loss in partition.losses), *self.root_losses)

    @property
    def is_unharmed(self) -> bool:
        """Whether nothing was found damaged, and no loss is proven."""
        return not self.damage and not any(loss.is_proven for loss in self.losses)

    def _repr_html_(self) -> str:
        """Return the verdict, what is damaged or lost, and the partitions as tables, for notebooks: damaged first."""
        damage, losses = self.damage, self.losses
        title = (
            f"VerificationReport of {len(self.partitions)} partitions: "
            f"{len(damage)} damaged ranges, {sum(loss.is_proven for loss in losses)} proven losses, "
            f"{sum(not loss.is_proven for loss in losses)} likely losses"
        )
        worst_first = sorted(self.partitions, key=lambda verified: (verified.is_unharmed, verified.topic_partition))
        rows = (
            (
                *verified.topic_partition,
                verified.log_start_offset,
                verified.log_end_offset,
                verified.batch_count,
                verified.record_count,
                len(verified.damage),
            )
            for verified in worst_first
        )
        names = ("topic", "partition", "log_start_offset", "log_end_offset", "batches", "records", "damaged ranges")
        tables = [table_html(title, names, rows, count=len(worst_first))]
        if damage:
            tables.append(table_html("Damage", Damage._fields, damage, count=len(damage)))
        if losses:
            lost = (
                (str(loss.topic_partition), loss.first_offset, loss.last_offset, loss.is_proven, loss.evidence)
                for loss in losses
            )
            of_loss = ("partition", "first_offset", "last_offset", "is_proven", "evidence")
            tables.append(table_html("Losses", of_loss, lost, count=len(losses)))
        return "".join(tables)


def verify(
    path: StrPath,
    *,
    topics: str | Iterable[str] | None = None,
    deep: bool = True,
    progress: Progress = False,
    tier: StrPath | None = None,
    tier_keys: Mapping[str, StrPath] | None = None,
    tier_epoch: int | None = None,
    config: LogConfig | None = None,
    env: Env | None = None,
) -> VerificationReport:
    """Check the logs at a path and return what is damaged; writes nothing and takes no lock.

    Every batch is checked (framing, CRC, order of offsets), every index entry, the leader epochs and the checkpoints of
    the root; if deep, also every record, transaction index and producer snapshot. See `kstore verify` in docs/cli.md.
    Args: path: a partition directory or a log.dirs root, also one that a broker writes; topics: only this topic or
        these; progress: True to show a bar of tqdm (in a notebook a widget), or a function that is called with
        the numbers of bytes that are done and in total, and whose errors end the call; tier, tier_keys, tier_epoch: as
        of open_log, to check the records of the segments there as well; config: the limits for reading.
    Raises: LogNotFoundError if there is no log at the path; ValueError for a topic that is not there; StorageError;
        LogReplacedError if a log is replaced while it is read. A log that is deleted during the call is left out.
        ModuleNotFoundError for a bar without tqdm.
    Cost: reads everything once, a damaged segment twice, or five times while another process writes the log.
    """
    settings = config_or_default(config)
    env = tiered_env([path], tier, keys=tier_keys, epoch=tier_epoch, config=settings, env=env)
    directories = _selected(path, topics, env)
    with ProgressBar(progress, "verify") as bar:
        if bar.is_wanted:
            bar.begin(log_size_in_bytes(directories))
        verified = list(_verified(directories, settings, deep=deep, on_read=bar.add))
    roots = {directory.root: directory.env for directory in directories}
    root_damage = (damage for root in sorted(roots) for damage in verify_checkpoints(root, roots[root]))
    _, absolute = locate(path, env)
    wanted = {topics} if isinstance(topics, str) else set(topics or ())
    listed = {directory.topic_partition for directory in directories}

    def is_wanted(partition: TopicPartition) -> bool:
        return partition not in listed and (topics is None or partition.topic in wanted)

    lost = () if absolute not in roots else losses_of_root(absolute, roots[absolute], is_wanted=is_wanted)
    return VerificationReport(tuple(verified), tuple(root_damage), tuple(lost))


@with_old_names
def recover(
    path: StrPath,
    recovery: RecoveryMode = "strict",
    *,
    topics: str | Iterable[str] | None = None,
    dry_run: bool = False,
    keeps_copies: bool = True,
    trusts_recovery_point: bool = False,
    progress: Progress = False,
    config: LogConfig | None = None,
    env: Env | None = None,
) -> tuple[RecoveredPartition, ...]:
    """Repair the logs at a path so that they can be appended to, whether or not they were closed; see
    docs/durability.md.

    Opening for writing does the same with logs that were not closed. If all partitions of a root are recovered, a
    broker that starts on it recovers nothing. __cluster_metadata is left alone.
    Args: path: a partition directory or a log.dirs root that nothing else writes; recovery: what to do about damage of
        durable records: "strict" refuses the log, "point_in_time" truncates it there, "salvage" keeps every batch that
        is still whole; topics: only this topic or these; dry_run: change nothing and take no lock, but report;
        keeps_copies: move what is removed to quarantine; trusts_recovery_point: read only the segments above the
        recovery point, as Kafka does; progress: as of verify; config: of the logs.
    Returns: for each partition, by topic and number, the report, or the error with which strict recovery refused it, or
        with which a call failed on its files, or of a topic id that is unreadable and unknown.
    Raises: LogNotFoundError if there is no log at the path; LogLockedError; StorageError of the root's own files,
        after which the partitions before it are recovered; CorruptCheckpointError for a malformed meta.properties, with
        nothing changed; ValueError for a topic that is not there, an unknown
        recovery, or salvage with trusts_recovery_point.
    Cost: reads the logs once.
    """
    env, root = locate(path, env)
    if not dry_run:
        env.check_writable(root)
    directories = recoverable(_selected(root, topics, env))
    with ProgressBar(progress, "recover") as bar:
        if bar.is_wanted:
            bar.begin(passes_of(recovery) * log_size_in_bytes(directories))
        recovered = recover_partitions(
            directories,
            recovery,
            config=config_or_default(config),
            dry_run=dry_run,
            keeps_copies=keeps_copies,
            trusts_recovery_point=trusts_recovery_point,
            on_read=bar.add,
            env=env,
        )
        return tuple(recovered)


def _verified(
    directories: Iterable[PartitionDirectory], config: LogConfig, *, deep: bool, on_read: Callable[[int], None]
) -> Iterator[VerifiedPartition]:
    for directory in directories:
        try:
            with open_found(directory, config) as log:
                yield Verification(log, is_deep=deep, env=directory.env, on_read=on_read).result()
        except (LogNotFoundError, LogReplacedError):
            if not directory.was_deleted():
                raise


def _selected(path: StrPath, topics: str | Iterable[str] | None, env: Env | None) -> list[PartitionDirectory]:
    """Return the partitions at a path, by topic and number."""
    wanted = None if topics is None else {topics} if isinstance(topics, str) else set(topics)
    directories = find_partitions(path, env, is_wanted=lambda partition: wanted is None or partition.topic in wanted)
    if wanted is None:
        return directories
    missing = wanted - {directory.topic_partition.topic for directory in directories}
    if missing:
        raise ValueError(f"topics not found: {', '.join(sorted(missing))}")
    return [directory for directory in directories if directory.topic_partition.topic in wanted]
