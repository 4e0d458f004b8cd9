"""Damage: one damaged range of a file, as verify reports it; corruption: the error for one; SkippedRange: what a reader
left out; SuspectedLoss: records that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from kstore._lazy import lazy_logger
from kstore.env import ENOENT, Env
from kstore.errors import CorruptionError, StorageError
from kstore.types import MAX_OFFSET, TopicPartition

_Error = TypeVar("_Error", bound=CorruptionError)

_logger = lazy_logger("kstore.log")


class Damage(NamedTuple):
    """The bytes [position, position + size_in_bytes) of a file that are wrong, and why.

    path: of the file; reason: the phrase of the error that reading them raises.
    """

    path: str
    position: int
    size_in_bytes: int
    reason: str


class SkippedRange(NamedTuple):
    """What a reader with on_error="skip" left out: the bytes [position, position + size_in_bytes) of a .log, and the
    records from first_missing_offset to last_missing_offset.

    The offsets are those between the records before and after it, within the offsets that are read; those that a
    cleaner had removed count too. last_missing_offset is first_missing_offset - 1 if no offset is missing, and None if
    the damage reaches the end of the log, so that nothing shows how many records it held. path: of the file, in
    topic_partition; reason: the phrase of the error that reading the bytes raises. Picklable.
    """

    topic_partition: TopicPartition
    path: str
    position: int
    size_in_bytes: int
    first_missing_offset: int
    last_missing_offset: int | None
    reason: str

    def __str__(self) -> str:
        first, last = self.first_missing_offset, self.last_missing_offset
        offsets = f"offsets from {first} on" if last is None else f"offsets {first} to {last}"
        return (
            f"skipped {offsets if last is None or first <= last else 'no offset'} of {self.topic_partition}: "
            f"{self.size_in_bytes} bytes at position {self.position} of {self.path}: {self.reason}"
        )

    def within(self, *, start_offset: int, end_offset: int) -> SkippedRange | None:
        """Return the range with the missing offsets that are in [start_offset, end_offset), None if there are none."""
        first, last = self.first_missing_offset, self.last_missing_offset
        if last is not None and last < first:
            return self if start_offset <= first <= end_offset else None
        first = max(first, start_offset)
        if end_offset < MAX_OFFSET:
            last = end_offset - 1 if last is None else min(last, end_offset - 1)
        if last is not None and last < first:
            return None
        return self._replace(first_missing_offset=first, last_missing_offset=last)


class LostOffsets(NamedTuple):
    """The offsets from start_offset up to, not including, end_offset, which is None if nothing shows where they end."""

    start_offset: int
    end_offset: int | None


def joined_ranges(ranges: Iterable[LostOffsets]) -> tuple[LostOffsets, ...]:
    """Return ranges as few separate ones in rising order; empty ones are left out."""
    joined: list[LostOffsets] = []
    for start, end in sorted(ranges, key=lambda lost: lost.start_offset):
        if end is not None and end <= start:
            continue
        before = joined[-1] if joined else None
        if before is None or (before.end_offset is not None and before.end_offset < start):
            joined.append(LostOffsets(start, end))
        elif before.end_offset is not None:
            joined[-1] = before._replace(end_offset=None if end is None else max(end, before.end_offset))
    return tuple(joined)


class SuspectedLoss(NamedTuple):
    """Records of a partition that are gone, or seem to be: the offsets first_offset to last_offset.

    last_offset: None if nothing shows where they end. path: the file that refers to them. is_proven: False if a crash
    of a broker may leave such files without a loss of records that were durable. evidence: one sentence. log_path,
    position: the .log, and the place in it, after which they are missing; without any .log what is missing itself.
    """

    topic_partition: TopicPartition
    first_offset: int
    last_offset: int | None
    path: str
    is_proven: bool
    evidence: str
    log_path: str
    position: int

    @property
    def end_offset(self) -> int | None:
        """The offset after the last one that is gone, None if nothing shows it."""
        return None if self.last_offset is None else self.last_offset + 1


OnError: TypeAlias = Literal["raise", "skip"]
OnSkip: TypeAlias = Callable[[SkippedRange], object]


def corruption(kind: type[_Error], what: str, *, path: str, position: int, expected: object, found: object) -> _Error:
    """Return the error for bytes that differ from what is expected."""
    return kind(
        f"{what} at position {position} of {path}: expected {expected}, found {found}",
        path=path,
        position=position,
        reason=f"{what}: expected {expected}, found {found}",
        expected=expected,
        found=found,
    )


def damage_of_file(
    path: str, read: Callable[[], object], *, env: Env, entry_size: int | None = None
) -> Iterator[Damage]:
    """Read a whole file with `read` and yield its damage; a missing file is not damaged.

    Args: entry_size: in bytes, for a file in which single entries are damaged; None if damage affects all of it.
    """
    try:
        read()
    except CorruptionError as error:
        position, size = error.position or 0, size_of_file(path, env)
        damaged = size if entry_size is None else entry_size
        yield Damage(path, position, max(min(damaged, size - position), 0), error.reason)
    except StorageError as error:
        if error.errno != ENOENT:
            yield Damage(path, 0, 0, str(error))


def size_of_file(path: str, env: Env) -> int:
    """Return the size of a file in bytes, 0 if it does not exist."""
    status = env.stat(path)
    return 0 if status is None else status.size_in_bytes


def skips_damage(on_error: OnError) -> bool:
    """Whether a read leaves out damage and continues after it.

    Raises: ValueError for a value that does not exist.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    return on_error == "skip"


class SkipReport:
    """Calls a caller's function with each range that a read leaves out, once; without a function it logs a warning.

    Threads: for the thread that reads.
    """

    def __init__(self, on_skip: OnSkip | None) -> None:
        if on_skip is not None and not callable(on_skip):
            raise TypeError(f"on_skip must be callable, got {on_skip!r}")
        self._on_skip = on_skip
        # A read that has to start again meets the same damage again.
        self._reported: set[SkippedRange] = set()

    def __call__(self, skipped: SkippedRange | None) -> None:
        if skipped is None or skipped in self._reported:
            return
        self._reported.add(skipped)
        if self._on_skip is None:
            _logger.warning("%s", skipped)
        else:
            self._on_skip(skipped)
