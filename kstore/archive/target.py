"""Target: where an export is written, its manifest, and the staging directory of the current run; LocalTarget, a
directory with a lock.

Tasks write into the staging directory only. A commit first writes there what it is going to do, so that the next run
can finish it: files are renamed into place, the manifest last. Of a target in an object store, see objects/target.py.
"""

from __future__ import annotations

import errno
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kstore.archive.files import OutputFile
from kstore.archive.manifest import (
    MANIFEST_FILE,
    Manifest,
    SealedManifest,
    check_topic_id,
    content_of,
    corruption_of,
    sealed_manifest,
)
from kstore.archive.options import DELTA, ICEBERG
from kstore.archive.parts import PartResult, Plan, state_of
from kstore.env import (
    DEFAULT_ENV,
    ENOENT,
    Env,
    FileKind,
    StrPath,
    join_path,
    locate,
    split_path,
)
from kstore.errors import ExportError, LogLockedError, StorageError, UnsupportedError
from kstore.log.files.checkpoints import replace_file
from kstore.log.files.json_state import FieldError, check_relative_path, with_checksum
from kstore.log.files.lock import PartitionLock
from kstore.log.files.names import LOCK_FILE

# Readers of Parquet directories ignore names with this prefix. A broker refuses a root with it.
STAGING_DIRECTORY = "_kstore_export"
PLAN_FILE, COMMIT_FILE = "plan.json", "commit.json"


class Place(NamedTuple):
    """Where tasks write: the target's path, the Env of its files, and the staging directory of the run. Picklable.

    name_end: at the end of the names of files, before the suffix; keeps_results: whether the results of tasks are
    written to the staging directory, from which a later run takes them.
    """

    target: str
    env: Env
    staging: str
    name_end: str = ""
    keeps_results: bool = True


class PartitionNotes(NamedTuple):
    """What the side files of an exported partition are made from.

    directory: of the partition in the source; topic_id: the one passed in topic_ids; epochs: (leader epoch, first
    offset) of each change in the new segments; new: the paths of the new segments.
    """

    directory: str
    topic_id: str | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    new: tuple[str, ...] = ()
    has_producers: bool = False
    has_transactions: bool = False

    def joined_with(self, result: PartResult) -> PartitionNotes:
        """Return these notes with those of one more part."""
        return self._replace(
            epochs=tuple(sorted([*self.epochs, *result.epochs], key=lambda entry: entry[1])),
            new=(*self.new, *(staged.file.path for staged in result.files)),
            has_producers=self.has_producers or result.has_producers,
            has_transactions=self.has_transactions or result.has_transactions,
        )


class _CommitFields(NamedTuple):
    manifest: dict[str, Any]
    moves: tuple[tuple[str, str], ...]
    removed: tuple[str, ...]
    notes: dict[str, PartitionNotes]


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The steps of a commit: the manifest to write, (staged name, path below the target) of the files to move, the
    paths to remove after that, and the notes for the side files of each partition of segments.
    """

    manifest: Manifest
    moves: tuple[tuple[str, str], ...]
    removed: tuple[str, ...]
    notes: dict[str, PartitionNotes]

    def encoded(self) -> bytes:
        """Return the commit as JSON, with a checksum."""
        fields = {**vars(self), "manifest": self.manifest.to_json()}
        fields["notes"] = {name: notes._asdict() for name, notes in self.notes.items()}
        return json.dumps(with_checksum(fields)).encode()

    @classmethod
    def decoded(cls, content: bytes, *, path: str) -> Commit:
        """Return the commit of encoded().  Raises: CorruptManifestError."""
        with corruption_of(path):
            fields: _CommitFields = state_of(_CommitFields, content)
            for at, (staged, final) in enumerate(fields.moves):
                check_relative_path(f"moves[{at}][0]", staged, most_components=1)
                check_relative_path(f"moves[{at}][1]", final, most_components=3)
            for at, removed in enumerate(fields.removed):
                check_relative_path(f"removed[{at}]", removed, most_components=3)
            for name, notes in fields.notes.items():
                check_topic_id(f"notes.{name}.topic_id", notes.topic_id)
            commit = cls(
                manifest=Manifest.of_json(fields.manifest, field="manifest"),
                moves=fields.moves,
                removed=fields.removed,
                notes=fields.notes,
            )
            commit.check()
            return commit

    def check(self) -> None:
        """Raise FieldError for partitions or numbers that do not fit together."""
        self.manifest.check(field="manifest.")
        with_segments = {str(file.topic_partition) for file in self.manifest.files}
        for name in self.notes:
            if name not in with_segments:
                raise FieldError(f"notes.{name}", "a partition with segments", name)

    def check_moves(self, earlier: Manifest | None) -> None:
        """Raise FieldError unless each file is one of the earlier manifest, or is moved into place."""
        placed = {final for _, final in self.moves}
        if earlier is not None:
            placed |= {file.path for file in earlier.files}
        for file in self.manifest.files:
            if file.path not in placed:
                raise FieldError("moves", f"a move to {file.path}", "none")


class Target(Protocol):
    """Where one run of an export is written.

    Attributes: path, staging (the path of the staging directory), env.
    Raises: StorageError from every method that touches files; CorruptManifestError for files that are malformed.
    Threads: not thread-safe.
    """

    path: str
    staging: str

    @property
    def env(self) -> Env:
        """The Env of the target's files."""

    def check_is_own_directory(self, relative: str) -> None:
        """Raise ExportError if a path below the target leads out of it."""

    def path_of(self, relative: str) -> str:
        """Return the path of a file below the target."""

    def manifest(self) -> SealedManifest | None:
        """Return the manifest, None if no run has ended yet."""

    def plan(self) -> Plan | None:
        """Return the plan of a run that did not end and that this one can go on with, None if there is none."""

    def begin(self, plan: Plan) -> None:
        """Durably write the plan of a run into an empty staging directory."""

    def place(self, plan: Plan) -> Place:
        """Return where the tasks of a plan write."""

    def results(self, plan: Plan) -> dict[int, PartResult]:
        """Return the results of finished tasks by part number, and remove the files of unfinished ones."""

    def commit(self, commit: Commit, *, finish: Callable[[Commit], None]) -> None:
        """Put the files into place, write the manifest, and remove what is no longer needed."""

    def resume_commit(self, *, finish: Callable[[Commit], None]) -> bool:
        """Finish the commit of a run that ended early; return whether there was one."""


class LocalTarget:
    """The directory of an export, locked; see Target.

    Attributes: path, staging (the staging directory's path), env.
    Raises: StorageError from every method that touches files; CorruptManifestError for files that are malformed.
    Threads: not thread-safe.
    """

    def __init__(self, path: str, env: Env) -> None:
        self.path = path
        self.staging = join_path(path, STAGING_DIRECTORY)
        self.env = env
        # Paths that were found to be directories.
        self._own: set[str] = set()

    @classmethod
    @contextmanager
    def opened(cls, path: StrPath, *, is_root: bool, env: Env = DEFAULT_ENV) -> Iterator[LocalTarget]:
        """Context manager: create the directory if its parent exists, and lock it.

        Args: is_root: whether it is a log.dirs root, which brokers lock too.
        Raises: UnsupportedError for the name of a table; LogLockedError; ExportError for a directory that holds
            something else.
        """
        check_is_no_table(path)
        absolute = locate(path).path
        if env.make_directory(absolute):
            env.sync_directory(split_path(absolute)[0])
        lock = PartitionLock.acquire(absolute, None, env) if is_root else _locked(absolute, env)
        try:
            target = cls(absolute, env)
            target.check_is_export()
            target.check_is_own_directory(STAGING_DIRECTORY)
            yield target
        finally:
            if isinstance(lock, PartitionLock):
                lock.release()
            else:
                lock.close()

    def check_is_export(self) -> None:
        """Raise ExportError unless the directory is empty or an export."""
        check_names(set(self.env.listdir(self.path)) - {LOCK_FILE}, path=self.path)

    def check_is_own_directory(self, relative: str) -> None:
        """Raise ExportError if a path below the target, or a directory on the way to it, is anything but a directory: a
        link would lead out of the target. One that does not exist is created as a directory.
        """
        path = self.path
        for name in filter(None, relative.split("/")):
            path = join_path(path, name)
            if path in self._own:
                continue
            status = self.env.stat(path, follow_symlinks=False)
            if status is None:
                return
            if status.kind is not FileKind.DIRECTORY:
                raise ExportError(
                    f"{path} is no directory of the export: expected a directory, found a link", path=path
                )
            self._own.add(path)

    def path_of(self, relative: str) -> str:
        """Return the path of a file below the target."""
        return join_path(self.path, relative)

    def manifest(self) -> SealedManifest | None:
        """Return the manifest, None if no run has ended yet."""
        path = join_path(self.path, MANIFEST_FILE)
        content = content_of(path, self.env)
        return None if content is None else sealed_manifest(content, path=path)

    def plan(self) -> Plan | None:
        """Return the plan of a run that did not end, None if there is none."""
        path = join_path(self.staging, PLAN_FILE)
        content = content_of(path, self.env)
        return None if content is None else Plan.decoded(content, path=path)

    def begin(self, plan: Plan) -> None:
        """Durably write the plan of a run into an empty staging directory."""
        if self.env.make_directory(self.staging):
            self.env.sync_directory(self.path)
        self._empty_staging()
        replace_file(join_path(self.staging, PLAN_FILE), plan.encoded(), self.env)

    def place(self, plan: Plan) -> Place:  # noqa: ARG002
        """Return where the tasks of a plan write."""
        return Place(self.path, self.env, self.staging)

    def results(self, plan: Plan) -> dict[int, PartResult]:
        """Return the results of finished tasks by part number, and remove the files of unfinished ones."""
        results: dict[int, PartResult] = {}
        kept = {PLAN_FILE}
        for part in plan.parts:
            name = result_name(part.number)
            path = join_path(self.staging, name)
            content = content_of(path, self.env)
            if content is None:
                continue
            result = PartResult.decoded(content, path=path)
            results[part.number] = result
            kept |= {name, *names_of(result)}
        self._empty_staging(but=kept)
        return results

    def commit(self, commit: Commit, *, finish: Callable[[Commit], None]) -> None:
        """Move the files into place, write the manifest, and remove what is no longer needed.

        After an interruption, resume_commit finishes it.
        Args: finish: called between the moves and the manifest.
        """
        # It includes results that an earlier run left in files.
        with corruption_of(self.staging):
            commit.check()
        replace_file(join_path(self.staging, COMMIT_FILE), commit.encoded(), self.env)
        self._carry_out(commit, finish=finish)

    def resume_commit(self, *, finish: Callable[[Commit], None]) -> bool:
        """Finish an interrupted commit; return whether there was one."""
        path = join_path(self.staging, COMMIT_FILE)
        content = content_of(path, self.env)
        if content is None:
            return False
        commit, sealed = Commit.decoded(content, path=path), self.manifest()
        with corruption_of(path):
            commit.check_moves(None if sealed is None else sealed.manifest)
        self._carry_out(commit, finish=finish)
        return True

    def _carry_out(self, commit: Commit, *, finish: Callable[[Commit], None]) -> None:
        env = self.env
        for path in (*(final for _, final in commit.moves), *commit.removed):
            self.check_is_own_directory(split_path(path)[0])
        directories: dict[str, None] = {}
        for staged, final in commit.moves:
            source, path = join_path(self.staging, staged), self.path_of(final)
            directory = split_path(path)[0]
            if directory not in directories:
                self._make(split_path(final)[0])
                directories[directory] = None
            try:
                env.rename(source, path)
            except StorageError as error:
                # An earlier attempt moved it.
                if error.errno != ENOENT or env.stat(path) is None:
                    raise
        for directory in directories:
            env.sync_directory(directory)
        finish(commit)
        replace_file(join_path(self.path, MANIFEST_FILE), commit.manifest.encoded(), env)
        for path in commit.removed:
            env.unlink(self.path_of(path))
        # Before the commit goes: after a power cut, nothing would remove files that came back.
        for directory in {split_path(path)[0]: None for path in commit.removed}:
            if env.stat(self.path_of(directory)) is not None:
                env.sync_directory(self.path_of(directory))
        self._empty_staging(but={COMMIT_FILE})
        env.unlink(join_path(self.staging, COMMIT_FILE))
        env.remove_directory(self.staging)
        env.sync_directory(self.path)

    def _make(self, relative: str) -> None:
        """Durably create the directories of a path below the target."""
        path = self.path
        for name in filter(None, relative.split("/")):
            outer, path = path, join_path(path, name)
            if self.env.make_directory(path):
                self.env.sync_directory(outer)

    def _empty_staging(self, *, but: Iterable[str] = ()) -> None:
        """Durably remove all files of the staging directory except those in `but`."""
        gone = set(self.env.listdir(self.staging)) - set(but)
        for name in gone:
            self.env.unlink(join_path(self.staging, name))
        if gone:
            self.env.sync_directory(self.staging)


# Such as delta:NAME, or the scheme of a URL without its slashes; a drive has one letter.
_KIND_OF_TABLE = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:(?!//)")


def check_names(names: set[str], *, path: str) -> None:
    """Raise ExportError unless these are the names in an empty directory, or in an export."""
    if names and not names & {MANIFEST_FILE, STAGING_DIRECTORY}:
        what = ", ".join(sorted(names)[:3])
        message = f"{path} is no export: expected an empty directory or one with {MANIFEST_FILE}, found {what}"
        raise ExportError(message, path=path)


def check_is_no_table(path: StrPath) -> None:
    """Raise UnsupportedError for what looks like a table (word:NAME)."""
    name = str(path)
    if _KIND_OF_TABLE.match(name):
        raise UnsupportedError(
            f"cannot write files to {name}: rows go to a table ({DELTA}URI or {ICEBERG}CATALOG.NAMESPACE.TABLE) by "
            f"table= of the function or `kstore export --to-table`; a directory of that name is ./{name}",
            path=name,
        )


def result_name(part: int) -> str:
    """Return the name of a task's result in the staging directory."""
    return f"part-{part:06d}.json"


def save_result(result: PartResult, place: Place) -> None:
    """Durably write the result of a task, whose files are durable already, if it is kept."""
    if not place.keeps_results:
        return
    env, staging = place.env, place.staging
    # Under a unique name: another attempt of the task may write its result at the same time.
    apart = join_path(staging, uuid.uuid4().hex)
    with OutputFile(apart, env) as file:
        file.write(result.encoded())
        file.sync()
    # So that the files that it lists have durable names before the result does.
    env.sync_directory(staging)
    env.rename(apart, join_path(staging, result_name(result.part)))
    env.sync_directory(staging)


def names_of(result: PartResult) -> Iterator[str]:
    """Yield the names in the staging directory of the files of a result."""
    for file in result.files:
        yield file.staged
        for _, staged in file.companions:
            yield staged


def _locked(path: str, env: Env) -> Any:
    lock = env.lock_directory(path)
    if lock is None:
        raise LogLockedError(f"another export writes {path}", path=path, errno=errno.EAGAIN)
    return lock
