"""ObjectTarget: an export in an object store, which has no lock and no rename.

Each run has a directory of its own, _kstore_export/RUN, with its plan and the files of its tasks. The commit copies
them into place, under names that end with the run's id, and then writes the manifest by one conditional PUT: only if it
is still the one that the run read. So of two runs at the same time one commits, and the other removes what it wrote.

A run cannot see whether another one is alive. It does not need to: a run whose plan continues another manifest than the
one that is there can no longer commit, and its files are removed by the next one that does.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from kstore.archive.manifest import MANIFEST_FILE, Manifest, SealedManifest, corruption_of, sealed_manifest
from kstore.archive.options import ExportOptions
from kstore.archive.parts import PartResult, Plan
from kstore.archive.target import COMMIT_FILE, PLAN_FILE, STAGING_DIRECTORY, Commit, Place, check_names
from kstore.config import GIB
from kstore.env import join_path, shown_path
from kstore.env.objects import ObjectEnv, ObjectTag
from kstore.errors import (
    CorruptManifestError,
    ExportConflictError,
    KStoreError,
    StorageError,
    UnsupportedError,
)
from kstore.log.files.json_state import FieldError
from kstore.waiting import Workers

_logger = logging.getLogger("kstore.archive")
# S3 copies an object of up to 5 GiB in one request, and a file may get a row group larger than file_bytes.
_MOST_FILE_BYTES = 4 * GIB
_COPIES_AT_A_TIME = 16
# What no store answers with.
_WRONG_TAG = ObjectTag('"00000000000000000000000000000000"', "1")


class _Current(NamedTuple):
    """The manifest that is in the store, None if there is none, with its tag."""

    sealed: SealedManifest | None
    tag: ObjectTag | None

    @property
    def run_id(self) -> str:
        return "" if self.sealed is None else self.sealed.manifest.run_id

    @property
    def paths(self) -> set[str]:
        """The paths of the files that it names."""
        return set() if self.sealed is None else {file.path for file in self.sealed.manifest.files}


class ObjectTarget:
    """The export below a URL; see Target.

    Attributes: path (the URL), staging, env.
    Raises: StorageError from every method that sends requests; CorruptManifestError for objects that are malformed.
    Threads: not thread-safe.
    """

    def __init__(self, path: str, env: ObjectEnv) -> None:
        self.path = path
        self.staging = join_path(path, STAGING_DIRECTORY)
        self.env = env
        # What this run read, and what it continues.
        self._read = _Current(None, None)
        # Of this run, while its files are removed if it ends early.
        self._run_id = ""

    @classmethod
    @contextmanager
    def opened(cls, url: str, options: ExportOptions, storage_options: Mapping[str, str]) -> Iterator[ObjectTarget]:
        """Context manager: the target, whose files of this run are removed if it fails.

        Raises: UnsupportedError for format "kstore", and for a store without conditional writes; ValueError;
            ExportError for a URL that holds something else.
        """
        shown = shown_path(url).rstrip("/")
        if options.is_verbatim:
            raise UnsupportedError(
                f'cannot write {shown}: format "kstore" makes a directory for a broker, whose files have fixed names; '
                "export to a local directory, and copy that",
                path=shown,
            )
        if options.file_bytes > _MOST_FILE_BYTES:
            raise ValueError(f"file_bytes of a target in an object store: at most 4 GiB, got {options.file_bytes}")
        target = cls(shown, ObjectEnv(url, storage_options))
        check_names(set(target.env.listdir(shown)), path=shown)
        try:
            yield target
        except BaseException as error:
            is_overtaken = isinstance(error, KStoreError) and target._is_overtaken()
            target._discard()
            if is_overtaken and not isinstance(error, ExportConflictError):
                # Who committed has removed files that this run needs.
                raise target._conflict() from error
            raise

    def check_is_own_directory(self, relative: str) -> None:
        """Return: there are no links in a store."""

    def path_of(self, relative: str) -> str:
        """Return the path of a file below the target."""
        return join_path(self.path, relative)

    def manifest(self) -> SealedManifest | None:
        """Return the manifest, None if no run has ended yet. The run continues this one, and no other."""
        self._read = self._current()
        return self._read.sealed

    def plan(self) -> Plan | None:
        """Return None: a run that did not end may be alive, and is not continued."""
        return None

    def begin(self, plan: Plan) -> None:
        """Write the plan of a run into a directory of its own, and see that the store checks conditions.

        Raises: UnsupportedError for a store that writes an object whatever the condition says.
        """
        self._run_id = plan.run_id
        path = join_path(self._directory(plan.run_id), PLAN_FILE)
        content = plan.encoded()
        is_written = self.env.write_if(path, content, expected=None)
        # A retried request finds what it wrote itself.
        if not is_written and self.env.read_tagged(path) is None:
            raise StorageError(f"cannot write {path}: the store says that it exists, and has no such object", path=path)
        ignored = [
            name
            for name, tag in (("If-None-Match", None), ("If-Match", _WRONG_TAG))
            if self.env.write_if(path, content, expected=tag)
        ]
        if ignored:
            raise UnsupportedError(
                f"cannot write {self.path}: this store wrote an object although the condition of the request "
                f"({', '.join(ignored)}) did not hold, so that two exports could replace the manifest of each other",
                path=self.path,
            )

    def place(self, plan: Plan) -> Place:
        """Return where the tasks of a plan write."""
        directory = self._directory(plan.run_id)
        return Place(self.path, self.env, directory, name_end=f"-{plan.run_id}", keeps_results=False)

    def results(self, plan: Plan) -> dict[int, PartResult]:  # noqa: ARG002
        """Return nothing: each run does all of its parts."""
        return {}

    def commit(self, commit: Commit, *, finish: Callable[[Commit], None]) -> None:  # noqa: ARG002
        """Copy the files into place, write the manifest, and remove what is no longer needed.

        Raises: ExportConflictError if the manifest is not the one that the run read.
        """
        with corruption_of(self.staging):
            commit.manifest.check()
        if self._current().tag != self._read.tag:
            raise self._conflict()
        directory = self._directory(commit.manifest.run_id)
        # With the names of the copies, by which another run removes them if this one ends here.
        self.env.write(join_path(directory, COMMIT_FILE), commit.encoded())
        copies = [(join_path(directory, staged), self.path_of(final)) for staged, final in commit.moves]
        _in_threads(partial(self.env.copy, *each) for each in copies)
        self._write_manifest(commit.manifest)
        self._run_id = ""
        self._sweep()

    def resume_commit(self, *, finish: Callable[[Commit], None]) -> bool:  # noqa: ARG002
        """Remove what runs left that ended early, unless they may still commit; return whether there was one that had
        written its manifest.
        """
        return self._sweep()

    def _directory(self, run_id: str) -> str:
        return join_path(self.staging, run_id)

    def _current(self) -> _Current:
        path = self.path_of(MANIFEST_FILE)
        found = self.env.read_tagged(path)
        return _Current(None, None) if found is None else _Current(sealed_manifest(found.content, path=path), found.tag)

    def _write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest, if it is still the one that was read.

        After an error that does not say whether it was written, the files of the run stay: the next one that commits
        removes them if it was not.
        """
        path = self.path_of(MANIFEST_FILE)
        run_id, self._run_id = self._run_id, ""
        try:
            is_written = self.env.write_if(path, manifest.encoded(), expected=self._read.tag)
            # A request whose answer was lost is sent again, and then finds the manifest that it wrote.
            is_ours = is_written or self._current().run_id == manifest.run_id
        except UnsupportedError:
            self._run_id = run_id
            raise
        except StorageError as error:
            if self._is_committed(manifest):
                return
            if error.errno == errno.EACCES:
                self._run_id = run_id
                raise
            raise StorageError(
                f"{error}; it is not known whether the manifest was written: export again, which finds out",
                path=path,
                errno=error.errno,
            ) from error
        if not is_ours:
            self._run_id = run_id
            raise self._conflict()

    def _is_committed(self, manifest: Manifest) -> bool:
        try:
            return self._current().run_id == manifest.run_id
        except (StorageError, CorruptManifestError):
            return False

    def _is_overtaken(self) -> bool:
        """Whether this run has begun, and another one has committed since."""
        try:
            return bool(self._run_id) and self._current().tag != self._read.tag
        except (StorageError, CorruptManifestError):
            return False

    def _conflict(self) -> ExportConflictError:
        before = self._read.run_id
        expected = f"that of run {before}" if before else "none"
        message = (
            f"another export to {self.path} committed first: expected its manifest to be {expected}, found another; "
            "nothing of this run was added, export again"
        )
        return ExportConflictError(message, path=self.path)

    def _sweep(self) -> bool:
        """Remove what runs left that can no longer commit; return whether one of them wrote the manifest that is there.

        A run that did not end continues the manifest of its plan. If that is there, the run may be alive, and its files
        stay. A file that the manifest names is never removed.
        """
        runs: dict[str, list[str]] = {}
        for path in self.env.below(self.staging):
            run_id, slash, name = path.partition("/")
            if slash:
                runs.setdefault(run_id, []).append(name)
        if not runs:
            return False
        # Before the manifest is read: whatever it says then is not older than the plans.
        plans = {run_id: self._plan_of(run_id) for run_id in runs}
        current = self._current()
        for run_id, names in runs.items():
            plan = plans[run_id]
            if run_id != current.run_id and plan is not None:
                if plan.earlier_run_id == current.run_id:
                    continue
                if current.sealed is None:
                    plan.check_earlier("", path=self._directory(run_id))
            self._remove_run(run_id, names, current)
        return current.run_id in runs

    def _plan_of(self, run_id: str) -> Plan | None:
        path = join_path(self._directory(run_id), PLAN_FILE)
        found = self.env.read_tagged(path)
        return None if found is None else Plan.decoded(found.content, path=path)

    def _remove_run(self, run_id: str, names: Iterable[str], current: _Current) -> None:
        """Remove the files of a run: those of its tasks first, so that it cannot copy them any more, its plan last."""
        directory = self._directory(run_id)
        own = {PLAN_FILE, COMMIT_FILE}
        path = join_path(directory, COMMIT_FILE)
        self.env.remove(join_path(directory, name) for name in names if name not in own)
        found = self.env.read_tagged(path)
        if found is not None:
            commit = Commit.decoded(found.content, path=path)
            if commit.manifest.run_id != run_id:
                with corruption_of(path):
                    raise FieldError("manifest.run_id", run_id, commit.manifest.run_id)
            listed = {*(final for _, final in commit.moves), *commit.removed} - current.paths
            self.env.remove(self.path_of(path) for path in sorted(listed))
        self.env.remove([path])
        self.env.remove([join_path(directory, PLAN_FILE)])

    def _discard(self) -> None:
        """Remove what this run wrote; what cannot be removed now is by a later run."""
        if not self._run_id:
            return
        run_id, self._run_id = self._run_id, ""
        try:
            self._remove_run(run_id, self.env.below(self._directory(run_id)), self._current())
        except (StorageError, CorruptManifestError) as error:
            _logger.warning("left files of run %s in %s: %s", run_id, self.staging, error)


def _in_threads(calls: Iterable[Callable[[], None]]) -> None:
    """Run calls at the same time, a few in all, and raise the first error."""
    todo = list(calls)
    if not todo:
        return
    workers = Workers(min(len(todo), _COPIES_AT_A_TIME), name="kstore-copy")
    try:
        for call in [workers.submit(each) for each in todo]:
            call.result()
    finally:
        workers.close()
