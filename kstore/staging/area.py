"""StagingArea: the directory of a root for batches that are not committed yet, one directory a job inside of it.

It imports neither stores nor producers, since a process that only plans a write needs neither.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from kstore.config import DAY_MS
from kstore.env import DEFAULT_ENV, ENOENT, Env, FileKind, StrPath, absolute_path, join_path
from kstore.errors import StorageError, UnknownTopicOrPartitionError
from kstore.log.files.names import STAGING_DIRECTORY
from kstore.types import INTERNAL_TOPICS, SINK_TOPIC, TopicPartition, parse_partition_directory_name

_logger = logging.getLogger("kstore.staging")

CONTROL_PARTITION = TopicPartition(SINK_TOPIC, 0)
# Kafka's transactional.id.expiration.ms: no running job leaves its files unchanged for so long.
RETENTION_MS = 7 * DAY_MS
_NS_PER_MS = 1_000_000
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_VERSIONED_JOB = re.compile(r"([A-Za-z0-9_-]{1,100})\.([0-9]{1,20})")


class AppVersion(NamedTuple):
    """What a commit counts by: an application, such as a streaming query, and a number that rises, as its batch's."""

    app_id: str
    version: int


class StagedFile(NamedTuple):
    """Batches of one partition, in order, as one attempt of a task encoded them. Small, can be pickled.

    job, name: the directory of the job in the staging area, and the file in it.
    """

    topic: str
    partition: int
    job: str
    name: str
    size_in_bytes: int
    record_count: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def job_name(app_id: str, version: int) -> str:
    """Return the name of the job that stages one version of an application, such as a micro-batch of a query."""
    return f"{_as_name(app_id)}.{version}"


def partitions_by_topic(root: StrPath, env: Env = DEFAULT_ENV) -> dict[str, list[int]]:
    """Return the sorted partition numbers of each topic in a root that records can be sent to.

    Raises: StorageError.  Cost: one listing.
    """
    numbers_of: dict[str, list[int]] = {}
    for name in env.listdir(absolute_path(root)):
        topic_partition = parse_partition_directory_name(name)
        if topic_partition is not None and topic_partition.topic not in INTERNAL_TOPICS:
            numbers_of.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return {topic: sorted(numbers) for topic, numbers in numbers_of.items()}


def unknown_topic_error(topic: str, root: str, known: Iterable[str]) -> UnknownTopicOrPartitionError:
    """Return the error of a topic that a root does not have.  Args: known: the topics that it has."""
    names = ", ".join(sorted(known)[:10]) or "none"
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} is not in {root}, which has: {names}. Create it, or say how many partitions a missing topic "
        "gets: the option createTopics in Spark, new_topic_partitions of a StagingSink"
    )


def _as_name(app_id: str) -> str:
    return (
        app_id if _SAFE_NAME.fullmatch(app_id) else hashlib.sha256(app_id.encode("utf-8", "surrogatepass")).hexdigest()
    )


class StagingArea:
    """Where the files of a root's staged writes are: `kstore-staging` in the partition directory `__kstore_sink-0`.

    Brokers and kstore ignore directories in a partition directory.
    Raises: StorageError from every method that touches files.
    Threads: safe; processes do not disturb each other, since each file has its own name.
    """

    def __init__(self, root: StrPath, env: Env = DEFAULT_ENV) -> None:
        self.root = absolute_path(root)
        self.path = join_path(join_path(self.root, str(CONTROL_PARTITION)), STAGING_DIRECTORY)
        self._env = env

    @property
    def is_ready(self) -> bool:
        """Whether prepare_root() made the area."""
        return self._env.stat(self.path) is not None

    def make(self) -> None:
        """Create the area, if it does not exist, in the partition directory, which must exist."""
        if self._env.make_directory(self.path):
            self._env.sync_directory(join_path(self.root, str(CONTROL_PARTITION)))

    def make_job(self, job: str) -> str:
        """Create the directory of a job, if it does not exist, and return its path."""
        path = join_path(self.path, job)
        if self._env.make_directory(path):
            self._env.sync_directory(self.path)
        return path

    def path_of(self, staged: StagedFile) -> str:
        """Return the path of a staged file."""
        return join_path(join_path(self.path, staged.job), staged.name)

    def remove(self, files: Iterable[StagedFile]) -> None:
        """Remove staged files, and the directories of their jobs if these are empty. Missing files are no error."""
        jobs: dict[str, None] = {}
        for staged in files:
            self._env.unlink(self.path_of(staged))
            jobs[staged.job] = None
        for job in jobs:
            self._env.remove_directory(join_path(self.path, job))

    def remove_job(self, job: str) -> bool:
        """Remove all files of a job, also those of attempts that failed, and return whether its directory is gone.

        Directories and links in it, which no job makes, are left, and then so is the job's directory. A missing
        directory is no error.
        """
        path = join_path(self.path, job)
        for name in self._names_in(path):
            if self._kind_of(join_path(path, name)) is FileKind.FILE:
                self._env.unlink(join_path(path, name))
        return self._env.remove_directory(path) or self._env.stat(path) is None

    def remove_versions_below(self, app_id: str, version: int) -> None:
        """Remove the jobs of an application's earlier versions. A job that can't be removed is logged and left."""
        wanted = _as_name(app_id)
        for job in self._jobs():
            match = _VERSIONED_JOB.fullmatch(job)
            if match is not None and match[1] == wanted and int(match[2]) < version:
                self._remove_or_warn(job)

    def collect(self, *, retention_ms: int = RETENTION_MS) -> int:
        """Remove the jobs in which nothing was written for retention_ms, and return their number.

        If the job still runs, its commit fails without writing to a log. Files that no job makes are left; a job that
        can't be removed is logged and left.
        """
        oldest_ns = (self._env.wall_clock_ms() - retention_ms) * _NS_PER_MS
        old_jobs = [job for job in self._jobs() if self._last_change_ns(join_path(self.path, job)) < oldest_ns]
        return sum(self._remove_or_warn(job) for job in old_jobs)

    def _jobs(self) -> list[str]:
        kind = self._kind_of(self.path)
        if kind not in (None, FileKind.DIRECTORY):
            raise StorageError(f"{self.path}: expected a directory, found a link or a file", path=self.path)
        names = self._names_in(self.path)
        return [name for name in names if self._kind_of(join_path(self.path, name)) is FileKind.DIRECTORY]

    def _kind_of(self, path: str) -> FileKind | None:
        status = self._env.stat(path, follow_symlinks=False)
        return None if status is None else status.kind

    def _remove_or_warn(self, job: str) -> bool:
        try:
            is_gone = self.remove_job(job)
            reason = "it has directories or links, which no job makes"
        except StorageError as error:
            is_gone, reason = False, str(error)
        if not is_gone:
            _logger.warning("the staged files of %s were not all removed: %s", join_path(self.path, job), reason)
        return is_gone

    def _last_change_ns(self, path: str) -> int:
        paths = [path, *(join_path(path, name) for name in self._names_in(path))]
        statuses = (self._env.stat(entry, follow_symlinks=False) for entry in paths)
        return max((status.identity[2] for status in statuses if status is not None), default=0)

    def _names_in(self, path: str) -> list[str]:
        try:
            return self._env.listdir(path)
        except StorageError as error:
            if error.errno != ENOENT:
                raise
            return []


def remove_quietly(area: StagingArea, files: Iterable[StagedFile]) -> None:
    """Remove staged files; those that cannot be removed are left to StagingArea.collect."""
    with suppress(StorageError):
        area.remove(files)
