"""export: one run, from the plan to the commit. Where the tasks run is the caller's choice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kstore.archive.manifest import MANIFEST_FILE, ExportedFile, ExportedPartition, Manifest, SealedManifest
from kstore.archive.options import ExportOptions
from kstore.archive.parts import PartResult, Plan, Waiting, Work
from kstore.archive.plan import MOST_ATTEMPTS, Source, damage_of, make_plan, marker_lost, work_of
from kstore.archive.target import Commit, LocalTarget, PartitionNotes, Target
from kstore.archive.tasks import Job, run_part
from kstore.config import MAX_INT32, LogConfig, config_or_default
from kstore.env import DEFAULT_ENV, Env, StrPath, is_local, join_path, split_path
from kstore.errors import CorruptManifestError, ExportError, LogReplacedError, checked_int
from kstore.log.files.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from kstore.waiting import Call, Workers

if TYPE_CHECKING:
    from kstore.archive.typed.topics import TypedTopic

OnBytes = Callable[[int], None]


class ExportSummary(NamedTuple):
    """What a run did, and what the target holds now.

    format: of the files; partitions, file_count, record_count, size_in_bytes: what the target holds.
    new_records, new_files: of this run, without files that only join others; joined_files: how many files of earlier
    runs were joined; was_resumed: whether this run finished an earlier one first. damage: what this run left out with
    on_error="skip", as JSON objects. waiting: offsets not exported because a transaction is open.
    """

    target: str
    format: str
    new_records: int
    new_files: int
    joined_files: int
    was_resumed: bool
    record_count: int
    file_count: int
    size_in_bytes: int
    partitions: tuple[ExportedPartition, ...]
    damage: tuple[dict[str, Any], ...] = ()
    waiting: tuple[Waiting, ...] = ()


class _MarkersLostError(Exception):
    """A cleaner removed markers of the source between the plan and the copy."""


class Executor(Protocol):
    """Runs tasks somewhere, and yields their results in any order."""

    def __call__(self, todo: Sequence[Work], job: Job) -> Iterator[PartResult]:
        """Run the tasks of all parts."""


class LocalThreads:
    """Runs tasks in threads of this process, one a part; several threads decode a part if there are fewer parts.

    Args: on_bytes: called, by one thread at a time, with the number of source bytes processed since the last call.
    """

    def __init__(self, threads: int, on_bytes: OnBytes | None = None) -> None:
        self._threads = checked_int("threads", threads, least=1, greatest=MAX_INT32)
        self._on_bytes = on_bytes
        self._lock = threading.Lock()
        self._is_stopped = False

    def __call__(self, todo: Sequence[Work], job: Job) -> Iterator[PartResult]:
        """Run the tasks; after an error or an interrupt the other tasks stop at their next batch."""
        self._is_stopped = False
        decoders = max(self._threads // max(len(todo), 1), 1)
        run = partial(run_part, job=job, threads=decoders, on_bytes=self._reached)
        if self._threads == 1 or len(todo) == 1:
            yield from map(run, todo)
            return
        left = iter(todo)
        done: SimpleQueue[Call[PartResult]] = SimpleQueue()
        workers = Workers(min(self._threads, max(len(todo), 1)), name="kstore-export")
        try:
            running = len([workers.submit(partial(run, work), done) for work in islice(left, self._threads)])
            while running:
                ended = done.get()
                running -= 1
                for work in islice(left, 1):
                    workers.submit(partial(run, work), done)
                    running += 1
                yield ended.result()
        finally:
            self._is_stopped = True
            workers.close()

    def _reached(self, size: int) -> None:
        if self._is_stopped:
            raise ExportError("the export was stopped")
        if self._on_bytes is not None:
            with self._lock:
                self._on_bytes(size)


def run_export(
    source: Source,
    target: StrPath,
    options: ExportOptions,
    execute: Executor,
    *,
    tasks: int,
    on_plan: Callable[[int], None] = lambda _: None,
    storage_options: Mapping[str, str] | None = None,
    env: Env = DEFAULT_ENV,
) -> ExportSummary:
    """Finish an earlier run that was interrupted, then export what is new.

    Args: tasks: how many run at a time; on_plan: called with the number of source bytes to process; storage_options: of
        a target that is a URL; env: of the target, if it is local.
    Raises: ExportOptionsError, ExportSourceError, ExportError; as the tasks. The same call then resumes the run.
    """
    with _opened(target, options, storage_options, env) as place:
        run = _Run(source, place, options, execute, tasks=tasks, on_plan=on_plan)
        return run.all()


@contextmanager
def _opened(
    target: StrPath, options: ExportOptions, storage_options: Mapping[str, str] | None, env: Env
) -> Iterator[Target]:
    """Context manager: the target of a run, by what its name says."""
    if is_local(target):
        if storage_options:
            raise ValueError("storage_options are for targets that are URLs")
        with LocalTarget.opened(target, is_root=options.is_verbatim, env=env) as directory:
            yield directory
        return
    from kstore.archive.objects.target import ObjectTarget

    with ObjectTarget.opened(str(target), options, storage_options or {}) as objects:
        yield objects


class _Run:
    def __init__(
        self,
        source: Source,
        target: Target,
        options: ExportOptions,
        execute: Executor,
        *,
        tasks: int,
        on_plan: Callable[[int], None],
    ) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._execute = execute
        self._tasks = tasks
        self._on_plan = on_plan
        self._new: list[ExportedFile] = []
        self._joined = 0
        self._damage: list[dict[str, Any]] = []

    def all(self) -> ExportSummary:
        target, options = self._target, self._options
        was_resumed = target.resume_commit(finish=self._finish)
        sealed, plan = target.manifest(), target.plan()
        manifest = None if sealed is None else sealed.manifest
        for described, name in ((manifest, target.path), (plan, target.staging)):
            if described is not None:
                self._check(described.options, described.source, path=name)
        if options.topic_ids:
            options.check_topic_ids(self._directories)
        if sealed is not None:
            _check_files(target, sealed, options)
        if plan is not None:
            was_resumed = True
            plan.check_earlier("" if manifest is None else manifest.run_id, path=target.staging)
            with suppress(_MarkersLostError):
                manifest = self._carry_out(plan, manifest)
                sealed = SealedManifest(manifest, is_sealed=True)
        is_sealed = sealed is not None and sealed.is_sealed
        plan, manifest = self._export_new(manifest, is_sealed=is_sealed)
        self._write_topic_ids(manifest)
        return ExportSummary(
            target=target.path,
            format=options.format,
            new_records=sum(file.record_count for file in self._new),
            new_files=len(self._new),
            joined_files=self._joined,
            was_resumed=was_resumed,
            record_count=manifest.record_count,
            file_count=len(manifest.files),
            size_in_bytes=manifest.size_in_bytes,
            partitions=manifest.partitions,
            damage=tuple(self._damage),
            waiting=plan.waiting,
        )

    def _export_new(self, manifest: Manifest | None, *, is_sealed: bool) -> tuple[Plan, Manifest]:
        """Export what is new; return the plan and the manifest. Plan again if a cleaner removes planned markers.

        Args: is_sealed: whether the manifest has a checksum; one without is rewritten.
        """
        plans_left = MOST_ATTEMPTS
        while True:
            plans_left -= 1
            plan = make_plan(self._source, self._options, manifest, tasks=self._tasks)
            is_unchanged = manifest is not None and _with_counts(plan.partitions, manifest.files) == manifest.partitions
            if manifest is not None and is_sealed and is_unchanged and not plan.parts:
                return plan, manifest
            self._target.begin(plan)
            try:
                return plan, self._carry_out(plan, manifest)
            except _MarkersLostError as error:
                if not plans_left:
                    message = f"{self._source.name} is cleaned again and again while it is exported: export again"
                    raise LogReplacedError(message, path=self._source.name) from error

    def _check(self, described: dict[str, Any], source: str, *, path: str) -> None:
        self._options.check_same({**described, "source": source}, path=path, source=self._source.name)

    def _carry_out(self, plan: Plan, manifest: Manifest | None) -> Manifest:
        target, options = self._target, self._options
        results = target.results(plan)
        typed = self._typed(plan, manifest)
        parts = [part for part in plan.parts if part.number not in results]
        todo = list(work_of(parts, self._source, options, manifest, planned=plan.partitions))
        self._on_plan(sum(work.part.size_in_bytes for work in todo))
        for result in self._execute(todo, Job(options, target.place(plan), self._source, typed)) if todo else ():
            results[result.part] = result
        self._check_markers(plan, manifest, results)
        commit = self._commit_of(plan, manifest, results, typed)
        target.commit(commit, finish=self._finish)
        return commit.manifest

    def _check_markers(self, plan: Plan, manifest: Manifest | None, results: dict[int, PartResult]) -> None:
        """Check that no cleaner removed a planned marker from the source before it was copied.

        Raises: ExportTransactionError for a transaction of an earlier run, _MarkersLostError for one of this run.
        """
        losing = [part for part in plan.parts if results[part.number].lost_markers]
        for part in losing:
            known = None if manifest is None else manifest.partition(part.topic_partition)
            for lost in results[part.number].lost_markers:
                if known is not None and lost.first_offset < known.end_offset:
                    raise marker_lost(self._directories[part.topic_partition], known, lost)
        if losing:
            raise _MarkersLostError

    def _typed(self, plan: Plan, manifest: Manifest | None) -> dict[str, TypedTopic] | None:
        """Return the columns of the topics of a plan, by the schemas that there are now, None for bytes."""
        if not self._options.formats:
            return None
        from kstore.archive.typed.topics import typed_topics

        topics = {part.topic for part in plan.parts}
        selected = self._source.selected(self._options)
        directories = [directory for directory in selected if directory.topic_partition.topic in topics]
        return typed_topics(self._options, directories, _types_of(manifest), path=self._target.path)

    def _commit_of(
        self,
        plan: Plan,
        manifest: Manifest | None,
        results: dict[int, PartResult],
        typed: Mapping[str, TypedTopic] | None,
    ) -> Commit:
        files = {file.path: file for file in (() if manifest is None else manifest.files)}
        moves: list[tuple[str, str]] = []
        joined: list[str] = []
        partitions = {partition.topic_partition: partition for partition in plan.partitions}
        notes: dict[str, PartitionNotes] = {}
        self._damage += damage_of(plan, manifest)
        for part in plan.parts:
            result = results[part.number]
            for path in part.inputs:
                del files[path]
                joined.append(path)
            for staged in result.files:
                files[staged.file.path] = staged.file
                moves += [(name, path) for path, name in staged.companions]
                moves.append((staged.staged, staged.file.path))
            place = part.topic_partition
            partition = partitions[place]
            partition = partition._replace(
                missing=(*partition.missing, *result.missing), damage=(*partition.damage, *result.damage)
            )
            if not part.inputs:
                self._new += [staged.file for staged in result.files]
                if self._options.is_verbatim:
                    partition = partition._replace(end_offset=max(partition.end_offset, result.next_offset))
            self._joined += len(part.inputs)
            self._damage += ({**place._asdict(), **left_out} for left_out in result.damage)
            partitions[place] = partition
            if self._options.is_verbatim:
                before = notes.get(str(place)) or self._notes_of(place)
                notes[str(place)] = before.joined_with(result)
        finals = {final for _, final in moves}
        return Commit(
            manifest=Manifest(
                format=self._options.format,
                source=plan.source,
                options=plan.options,
                run_id=plan.run_id,
                partitions=_with_counts(
                    tuple(partitions[place] for place in sorted(partitions)), tuple(files.values())
                ),
                files=tuple(sorted(files.values(), key=lambda file: (file.topic_partition, file.first_offset))),
                types=None
                if typed is None
                else _types_of(manifest) | {topic: each.encoded_types() for topic, each in typed.items()},
            ),
            moves=tuple(moves),
            removed=tuple(path for name in joined if name not in finals for path in _files_of(name)),
            notes=notes,
        )

    def _write_topic_ids(self, manifest: Manifest) -> None:
        if not self._options.topic_ids:
            return
        from kstore.archive.segments import write_topic_ids

        write_topic_ids(manifest, self._target.path, dict(self._options.topic_ids), env=self._target.env)

    @cached_property
    def _directories(self) -> dict[TopicPartition, str]:
        """The directories of the partitions in the source."""
        return {directory.topic_partition: directory.path for directory in self._source.selected(self._options)}

    def _notes_of(self, place: TopicPartition) -> PartitionNotes:
        # A partition that was deleted has no directory.
        directory = self._directories.get(place, join_path(self._source.name, str(place)))
        return PartitionNotes(directory, dict(self._options.topic_ids).get(place.topic))

    def _finish(self, commit: Commit) -> None:
        if commit.manifest.format != "kstore":
            return
        from kstore.archive.segments import finish_segments

        finish_segments(
            commit,
            self._target.path,
            config=self._source.config,
            source_env=self._source.located.env,
            env=self._target.env,
        )


def _files_of(path: str) -> Iterator[str]:
    """Yield the path of a file of the target, and for a segment those of its side files."""
    yield path
    if path.endswith(LOG_SUFFIX):
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX):
            yield path.removesuffix(LOG_SUFFIX) + suffix


def _with_counts(
    partitions: tuple[ExportedPartition, ...], files: Iterable[ExportedFile]
) -> tuple[ExportedPartition, ...]:
    counts: dict[TopicPartition, int] = {}
    for file in files:
        counts[file.topic_partition] = counts.get(file.topic_partition, 0) + file.record_count
    return tuple(partition._replace(record_count=counts.get(partition.topic_partition, 0)) for partition in partitions)


def _check_unchanged(target: Target, manifest: Manifest) -> None:
    """Raise ExportError if a broker or kstore has written to the segments since the last run."""
    expected = {file.path: file.size_in_bytes for file in manifest.files}
    for directory in {split_path(path)[0] for path in expected}:
        path = target.path_of(directory)
        for name in target.env.listdir(path):
            relative = join_path(directory, name)
            if not name.endswith(LOG_SUFFIX):
                continue
            status = target.env.stat(join_path(path, name))
            if status is None or expected.get(relative) != status.size_in_bytes:
                message = f"{join_path(path, name)} was written since it was exported: export into another directory"
                raise ExportError(message, path=join_path(path, name))


def _check_files(target: Target, sealed: SealedManifest, options: ExportOptions) -> None:
    """Check the manifest against the files before a run relies on it: against the end of each log, or the last file of
    each partition; against all files if the manifest has no checksum.

    Missing files, such as those moved to an archive, are not checked.
    Raises: CorruptManifestError; ExportError for segments that were written since.
    """
    manifest = sealed.manifest
    if options.is_verbatim:
        if manifest.files:
            _check_unchanged(target, manifest)
        _check_ends(target, manifest)
        return
    from kstore.archive.columns import check_content, check_row_file

    last = {file.topic_partition: file for file in sorted(manifest.files, key=lambda file: file.last_offset)}
    for file in last.values() if sealed.is_sealed else manifest.files:
        target.check_is_own_directory(split_path(file.path)[0])
        path = target.path_of(file.path)
        if target.env.stat(path) is None:
            continue
        check_row_file(path, file, options, target.env)
        if not sealed.is_sealed:
            check_content(path, file, target.env)


def _check_ends(target: Target, manifest: Manifest) -> None:
    for partition in manifest.partitions:
        path = target.path_of(str(partition.topic_partition))
        target.check_is_own_directory(str(partition.topic_partition))
        if target.env.stat(path) is None:
            continue
        with open_log(path, env=target.env) as log:
            start, end = log.log_start_offset, log.log_end_offset
        if partition.start_offset > start:
            raise _differs(target, partition, "start_offset", expected=start, found=partition.start_offset)
        if partition.end_offset != end:
            raise _differs(target, partition, "end_offset", expected=end, found=partition.end_offset)


def _differs(
    target: Target, partition: ExportedPartition, field: str, *, expected: int, found: int
) -> CorruptManifestError:
    reason = f"{field} of {partition.topic_partition}: expected that of its segments, {expected}, found {found}"
    path = target.path_of(MANIFEST_FILE)
    return CorruptManifestError(f"{path}: {reason}", path=path, reason=reason, expected=expected, found=found)


def local_export(
    source: StrPath,
    target: StrPath,
    options: ExportOptions,
    *,
    threads: int = 2,
    fail_on_data_loss: bool = True,
    config: LogConfig | None = None,
    env: Env | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_env: Env = DEFAULT_ENV,
    on_plan: Callable[[int], None] = lambda _: None,
    on_bytes: OnBytes | None = None,
) -> ExportSummary:
    """Export in this process; see kstore.export. on_plan, on_bytes: as in run_export and LocalThreads."""
    opened = Source(source, config_or_default(config), env, fail_on_data_loss)
    execute = LocalThreads(threads, on_bytes)
    return run_export(
        opened,
        target,
        options,
        execute,
        tasks=threads,
        on_plan=on_plan,
        storage_options=storage_options,
        env=target_env,
    )


def _types_of(manifest: Manifest | None) -> dict[str, str]:
    """Return the types of keys and values of earlier runs, by topic."""
    return {} if manifest is None or manifest.types is None else manifest.types
