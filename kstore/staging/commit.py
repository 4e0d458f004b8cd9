"""commit_staged: append staged files to a store in one transaction, exactly once per version of an application.

The commit point is the PREPARE_COMMIT record in `__transaction_state`: before it nothing of the transaction counts,
after it the next commit, producer or broker completes what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

from kstore._core import stamp_batches
from kstore.config import MIB, LogConfig
from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.coordinator.store import flush_together
from kstore.coordinator.transaction.coordinator import TransactionCoordinator, coordinator_of
from kstore.coordinator.transaction.log import TRANSACTION_STATE_CONFIG, TransactionLog
from kstore.env import DEFAULT_ENV, ENOENT, Env, ReadFile, StrPath
from kstore.errors import (
    CorruptRecordError,
    KStoreError,
    LogNotFoundError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from kstore.log.write.writable_log import WritableLog
from kstore.record.batches import MemoryRecords
from kstore.staging.area import CONTROL_PARTITION, AppVersion, StagedFile, StagingArea, remove_quietly
from kstore.staging.committed import SINK_TOPIC_CONFIG, CommittedVersions
from kstore.store.store import WritableStore, open_store
from kstore.types import SINK_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

_logger = logging.getLogger("kstore.staging")

# How many bytes are read and stamped together, so few that they stay in the cache; a larger batch is read whole.
_RUN_BYTES = MIB
# A topic may have other limits, which a root does not show: what a producer was allowed to encode is appended.
_CONFIG = LogConfig(max_message_bytes=LogConfig().max_batch_bytes)
_TOPIC_CONFIGS = {SINK_TOPIC: SINK_TOPIC_CONFIG, TRANSACTION_STATE_TOPIC: TRANSACTION_STATE_CONFIG}


@contextmanager
def _opened(root: StrPath, *, max_block_ms: int, env: Env) -> Iterator[WritableStore]:
    """Open a root as its only writer, waiting up to max_block_ms for another one to close it.

    As a broker after a crash, it reads no segment before that of the recovery point. An error of close() is only
    logged: everything committed is durable by then, and the next opening recovers the rest.
    """
    store = open_store(
        root,
        "a",
        _CONFIG,
        topic_configs=_TOPIC_CONFIGS,
        trusts_recovery_point=True,
        timeout=max_block_ms / 1000,
        env=env,
    )
    try:
        store.on_topic_change = partial(_keep_topics, store)
        yield store
    finally:
        with _errors_logged(f"closing {root}"):
            store.close()


def _keep_topics(store: WritableStore, topic: str, settings: Mapping[str, object]) -> None:
    """Write a topic into the metadata of the root, and from now on every change of one. Few commits change any."""
    from kstore.adoption.changes import keep_topics_in_metadata

    keep_topics_in_metadata(store)
    if store.on_topic_change is not None:
        store.on_topic_change(topic, settings)


@contextmanager
def _errors_logged(what: str) -> Iterator[None]:
    try:
        yield
    except KStoreError as error:
        _logger.warning("%s: %s", what, error)


def make_area(area: StagingArea, topics: Collection[tuple[str, int]], *, max_block_ms: int, env: Env) -> None:
    """Create what a root lacks for commits, see prepare_root: topics, those of commits themselves, and the area."""
    with _opened(area.root, max_block_ms=max_block_ms, env=env) as store:
        _create_sink_topic(store)
        TransactionLog(store).create_if_missing()
        for topic, partitions in topics:
            if topic not in store.topics:
                store.create_topic(topic, partitions)
        area.make()


def _create_sink_topic(store: WritableStore) -> None:
    if SINK_TOPIC not in store.topics:
        store.create_topic(SINK_TOPIC, config=SINK_TOPIC_CONFIG)


def commit_staged(
    root: StrPath,
    files: Sequence[StagedFile],
    *,
    transactional_id: str,
    app: AppVersion | None = None,
    new_topic_partitions: int | None = None,
    max_block_ms: int = 60_000,
    transaction_timeout_ms: int = 60_000,
    env: Env = DEFAULT_ENV,
) -> bool:
    """Append staged files in one transaction, flush it, and remove the files; return whether this call did it.

    False: the version was committed before, or there is no record. Readers of committed records see all records or
    none, after a crash too, and brokers load the result. A commit that raised can be repeated, with these files or with
    others that were staged for the same version; it does nothing if the first one had passed the commit point.
    Args:
        files: in the order in which their records go into each partition.
        transactional_id: of one application; any transactions of this sink that a crash left open are ended first.
            app: None to commit without a version, at least once.
        new_topic_partitions: how many partitions a missing topic gets, None to refuse it.
        max_block_ms: how long to wait for another writer to close the root. transaction_timeout_ms: after which brokers
            and producers abort a transaction that a crash left open.
    Raises: LogLockedError after max_block_ms; UnknownTopicOrPartitionError; CorruptRecordError for a damaged staged
        file; AppendError for records that the log refuses; StorageError. Nothing of the transaction is visible then,
        unless the error came after the commit point, in which case all of it will be.
    Cost: reads and writes each staged byte once; syncs each log once before the commit point and once after it.
    Source: Kafka KIP-98.
    """
    area = StagingArea(root, env)
    wanted = [staged for staged in files if staged.size_in_bytes]
    is_new = False
    if wanted:
        with _opened(area.root, max_block_ms=max_block_ms, env=env) as store:
            _create_sink_topic(store)
            coordinator = coordinator_of(store)
            committer = _Committer(store, coordinator, area=area, env=env)
            is_new = committer.commit(
                wanted,
                app,
                transactional_id=transactional_id,
                new_topic_partitions=new_topic_partitions,
                timeout_ms=transaction_timeout_ms,
            )
    remove_quietly(area, files)
    with _errors_logged("collecting staged files"):
        if app is not None:
            area.remove_versions_below(app.app_id, app.version)
        area.collect()
    return is_new


class _Committer:
    """One commit, in a store that this process holds."""

    def __init__(
        self, store: WritableStore, coordinator: TransactionCoordinator, *, area: StagingArea, env: Env
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._area = area
        self._env = env
        # Reused: new memory would have to be cleared. The start holds the incomplete batch of the last read.
        self._run = bytearray(_RUN_BYTES)

    def commit(
        self,
        files: Sequence[StagedFile],
        app: AppVersion | None,
        *,
        transactional_id: str,
        new_topic_partitions: int | None,
        timeout_ms: int,
    ) -> bool:
        store, coordinator = self._store, self._coordinator
        control = store.log(*CONTROL_PARTITION)
        if store.recovery_reports or control.last_stable_offset < control.log_end_offset:
            coordinator.end_transactions_in(CONTROL_PARTITION, ack="flushed")
        # Before the snapshot is read, since this may complete the very commit that is repeated.
        producer = coordinator.init_producer_id(transactional_id, timeout_ms=timeout_ms)
        committed = CommittedVersions.read(control)
        committed.delete_older(control)
        if app is not None:
            last = committed.version_of(app.app_id)
            if last is not None and app.version <= last:
                # Only the last version is ever repeated by a query that was not tampered with.
                level = logging.INFO if app.version == last else logging.WARNING
                message = "%s: version %d is not written again; the last committed one is %d"
                _logger.log(level, message, app.app_id, app.version, last)
                return False
            committed = committed.with_version(*app)
        logs = self._logs_of(files, new_topic_partitions)
        try:
            coordinator.add_partitions(transactional_id, producer, [CONTROL_PARTITION, *logs], ack="flushed")
            # The record of the version first, so that any open transaction shows in that partition alone.
            with coordinator.appending(producer, [CONTROL_PARTITION, *logs]):
                self._append_control(control, committed, producer)
                self._append_files(logs, files, producer)
            flush_together([control, *logs.values()])
            coordinator.end_transaction(transactional_id, producer, is_commit=True, ack="flushed")
        except BaseException:
            self._abort(transactional_id, producer)
            raise
        with _errors_logged("condensing the state of transactions"):
            coordinator.condense(transactional_id)
        return True

    def _abort(self, transactional_id: str, producer: ProducerIdAndEpoch) -> None:
        """Abort the transaction if it is open and not decided; if that fails, the next commit does it."""
        state = self._coordinator.state(transactional_id)
        if state is None or state.is_prepared or not state.partitions:
            return
        with _errors_logged(f"the transaction of {transactional_id} stays open until the next commit"):
            self._coordinator.end_transaction(transactional_id, producer, is_commit=False)

    def _logs_of(
        self, files: Sequence[StagedFile], new_topic_partitions: int | None
    ) -> dict[TopicPartition, WritableLog]:
        """Return the logs that the files go to; create missing topics if that is allowed."""
        store = self._store
        for topic in dict.fromkeys(staged.topic for staged in files):
            if topic not in store.topics:
                if new_topic_partitions is None:
                    raise UnknownTopicOrPartitionError(f"topic {topic!r} is no longer in {store.root}")
                store.create_topic(topic, new_topic_partitions)
        try:
            return {staged.topic_partition: store.log(*staged.topic_partition) for staged in files}
        except LogNotFoundError as error:
            raise UnknownTopicOrPartitionError(f"{error}: records were staged for it") from error

    def _append_control(self, log: WritableLog, committed: CommittedVersions, producer: ProducerIdAndEpoch) -> None:
        batch = committed.to_batch(timestamp_ms=self._env.wall_clock_ms())
        _append_run(log, batch, producer, sequence=0, position=0, path=None)

    def _append_files(
        self, logs: dict[TopicPartition, WritableLog], files: Sequence[StagedFile], producer: ProducerIdAndEpoch
    ) -> None:
        sequences = dict.fromkeys(logs, 0)
        for staged in files:
            to = staged.topic_partition
            sequences[to] = self._append_file(logs[to], staged, producer, sequence=sequences[to])

    def _append_file(self, log: WritableLog, staged: StagedFile, producer: ProducerIdAndEpoch, *, sequence: int) -> int:
        """Append the batches of a staged file, with sequences from `sequence` on; return the next one."""
        path, size = self._area.path_of(staged), staged.size_in_bytes
        with self._opened_file(path) as file:
            actual = file.size()
            if actual != size:
                raise CorruptRecordError(
                    f"{path}: expected the {size} bytes that were staged, found {actual}",
                    path=path,
                    position=0,
                    expected=size,
                    found=actual,
                )
            position = held = 0
            while position < size:
                end = min(len(self._run), size - position)
                with memoryview(self._run) as run:
                    read = file.pread_into(run[held:end], position=position + held)
                    if read < end - held:
                        at = position + held + read
                        raise CorruptRecordError(f"{path}: ends at {at}, expected {size} bytes", path=path, position=at)
                    done, sequence = _append_run(
                        log, run[:end], producer, sequence=sequence, position=position, path=path
                    )
                position, held = position + done, end - done
                if done:
                    self._run[:held] = self._run[done:end]
                elif position + end == size:
                    raise CorruptRecordError(f"{path}: ends inside a batch", path=path, position=position)
                else:
                    # A batch is larger than the buffer.
                    self._run = self._run + bytes(len(self._run))
        return sequence

    def _opened_file(self, path: str) -> ReadFile:
        try:
            return self._env.open_read(path)
        except StorageError as error:
            if error.errno != ENOENT:
                raise
            message = f"{path} is gone: expected the file that a task staged; write the batch again"
            raise StorageError(message, path=path, errno=ENOENT) from error


def _append_run(
    log: WritableLog,
    run: bytearray | memoryview,
    producer: ProducerIdAndEpoch,
    *,
    sequence: int,
    position: int,
    path: str | None,
) -> tuple[int, int]:
    """Stamp the complete batches of a buffer and append them; return their size in bytes and the next sequence."""
    ends, following = stamp_batches(
        run,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        position=position,
        path=path,
    )
    view = memoryview(run).toreadonly()
    for done in log.append_batches([MemoryRecords(view[start:end]) for start, end in pairwise([0, *ends])]):
        if isinstance(done, KStoreError):
            raise done
    return (ends[-1] if ends else 0), following
