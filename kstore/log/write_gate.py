"""WriteGate: what every change of a log passes: two locks, and whether there may be changes at all. Layer 5."""

from __future__ import annotations

import logging
import threading

from kstore.errors import LogClosedError, LogFailedError, StorageError
from kstore.log.file_records import FileRecords
from kstore.log.lock import disown_in_child
from kstore.log.writer_files import WriterFiles
from kstore.types import TopicPartition

_logger = logging.getLogger("kstore.log")


class WriteGate:
    """Who may change a log now, and whether anybody may.

    It shuts for good when the log is closed, when a call failed that may have left something behind, and in a child
    made by fork().
    Attributes: flush_lock (for what must not happen while files are synced; taken first), append_lock (for what the log
    is), is_open (whether check would pass), failure (the first one).
    """

    def __init__(self, topic_partition: TopicPartition, path: str, *, files: WriterFiles) -> None:
        self.flush_lock = threading.Lock()
        self.append_lock = threading.Lock()
        self.is_open = True
        self.failure: BaseException | None = None
        self._name = f"{topic_partition} in {path}"
        self._path = path
        self._is_closed = False
        self._files = files
        disown_in_child(self)

    def check(self) -> None:
        """Raise LogClosedError, LogLockedError after a fork, or LogFailedError if the log takes no more."""
        if self._is_closed:
            raise LogClosedError(f"the log of {self._name} was closed", path=self._path)
        self._files.check_owner()
        if self.failure is not None:
            raise LogFailedError(
                f"the log of {self._name} takes no more since an earlier call failed: "
                f"{str(self.failure) or type(self.failure).__name__}",
                path=self._path,
                errno=getattr(self.failure, "errno", None),
            ) from self.failure

    def check_place(self, records: FileRecords) -> None:
        """Fail unless the lock keeps others out still and the active segment's records are where they belong.

        Asked before what could harm another writer's files (a roll, a truncation, the end of a log), and by each flush,
        so that nothing counts as durable that nobody will find; an append does not ask.
        Raises: LogLockedError, StorageError.  Cost: four stats.
        """
        try:
            self._files.check_held()
            records.check_in_place()
        except StorageError as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Let nothing pass any more, since the files may hold what nobody was told of."""
        self.is_open = False
        if self.failure is None:
            self.failure = error
            _logger.error("%s takes no more until it is opened anew: %r", self._path, error)

    def close(self) -> None:
        """Let nothing pass any more, as the log is about to be closed."""
        self.is_open = False
        self._is_closed = True

    def disown(self) -> None:
        self.is_open = False
        self.append_lock, self.flush_lock = threading.Lock(), threading.Lock()
