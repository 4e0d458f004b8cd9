"""FailingLog: what a failure makes of a log that is written. Layer 5."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kstore.errors import LogFailedError, StorageError
from kstore.log.checkpoints import EpochEntry
from kstore.log.leader_epochs import LeaderEpochCache
from kstore.log.log_segments import LogSegments
from kstore.log.published_log import PublishedLog
from kstore.log.writer_files import WriterFiles

_logger = logging.getLogger("kstore.log")


class FailingLog(PublishedLog):
    """The part of WritableLog that decides whether it may go on after an error, and refuses what it may not."""

    leader_epochs: LeaderEpochCache
    _parts: LogSegments
    _writer_files: WriterFiles
    _is_writable: bool = False
    _failure: BaseException | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a failure made the log take no more, or kept it from being closed cleanly."""
        return self._failure is not None

    def _fail(self, error: BaseException) -> None:
        self._is_writable = False
        if self._failure is None:
            self._failure = error
            _logger.error("%s takes no more until it is opened anew: %r", self.path, error)

    @contextmanager
    def _failing_unless_undone(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._fail_unless_undone(error)
            raise

    def _fail_unless_undone(self, error: BaseException) -> None:
        """Take no more after an error that may leave something behind: any of the disk's but a lack of space, or an
        interrupt between a write and its publication."""
        active, (_, published, size, end) = self._parts.active, self._appender.published
        is_undone = active is published and active.size_in_bytes == size and active.base_offset <= end
        if isinstance(error, StorageError):
            is_undone = is_undone and error.is_out_of_space and not active.records.has_failed
        if not is_undone:
            self._fail(error)

    @contextmanager
    def _restoring_epochs(self) -> Iterator[None]:
        """Take the leader epochs of an append back if it leaves nothing else behind."""
        before = self.leader_epochs.entries
        try:
            yield
        except BaseException:
            if self._failure is None:
                self._restore_epochs(before)
            raise

    def _restore_epochs(self, entries: tuple[EpochEntry, ...]) -> None:
        try:
            self.leader_epochs.restore(entries)
        except StorageError as error:
            self._fail(error)
        self._appender.leader_epoch = self.leader_epochs.latest_epoch

    def _check_writable(self) -> None:
        self._check_open()
        self._writer_files.check_owner()
        if self._failure is not None:
            raise LogFailedError(
                f"the log of {self.topic_partition} in {self.path} takes no more since an earlier call failed: "
                f"{str(self._failure) or type(self._failure).__name__}",
                path=self.path,
                errno=getattr(self._failure, "errno", None),
            ) from self._failure

    @contextmanager
    def _cutting(self, offset: int) -> Iterator[None]:
        """Tell readers that what lies at an offset and behind it goes, and take no more if that fails on the way."""
        self._is_cutting = True
        self._cuts = self._cuts.with_cut(offset)
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            # Once more, for who began to read meanwhile.
            self._cuts = self._cuts.with_cut(offset)
            self._is_cutting = False
