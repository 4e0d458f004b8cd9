"""Damage: one damaged range of a file, as verify reports it; corruption: the error for one; SkippedRange: what a reader
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from kstore.errors import CorruptionError, StorageError
from kstore.log.env import ENOENT, Env
from kstore.types import MAX_OFFSET, TopicPartition

_Error = TypeVar("_Error", bound=CorruptionError)


class Damage(NamedTuple):
    """The bytes [position, position + size_in_bytes) of a file that are wrong, and why."""

    path: str
    position: int
    size_in_bytes: int
    reason: str


class SkippedRange(NamedTuple):
    """What a reader with on_error="skip" left out: the bytes [position, position + size_in_bytes) of a .log, and the
    records from first_missing_offset to last_missing_offset.

    The offsets are those between the records before and after it, within the offsets that are read; those that a
    cleaner had removed count too. last_missing_offset is first_missing_offset - 1 if no offset is missing, and None if
    the damage reaches the end of the log, so that nothing shows how many records it held. path: of the file; reason:
    the phrase of the error that reading the bytes raises. Picklable.
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
