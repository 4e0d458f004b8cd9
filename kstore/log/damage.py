"""Damage: one damaged range of a file, as verify reports it; corruption: the error for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from kstore.errors import CorruptionError, StorageError
from kstore.log.env import ENOENT, Env

_Error = TypeVar("_Error", bound=CorruptionError)


class Damage(NamedTuple):
    """The bytes [position, position + size_in_bytes) of a file that are wrong, and why."""

    path: str
    position: int
    size_in_bytes: int
    reason: str


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
