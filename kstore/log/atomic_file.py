"""Small files, read as text and replaced as a whole, so that a power cut leaves the old content or the new. Layer 5."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kstore.errors import CorruptCheckpointError, StorageError
from kstore.log.env import DEFAULT_ENV, ENOENT, Env, split_path

TEMPORARY_SUFFIX = ".tmp"


def read_text(path: str, env: Env, *, max_bytes: int) -> str | None:
    """Return the content of a file, None if there is none.

    Raises: CorruptCheckpointError if it is larger or not UTF-8; StorageError.
    """
    try:
        return env.read_file(path, max_bytes=max_bytes).decode("utf-8")
    except StorageError as error:
        if error.errno == ENOENT:
            return None
        if error.errno is None:
            raise malformed(path, str(error)) from error
        raise
    except UnicodeDecodeError as error:
        raise malformed(path, f"not UTF-8: {error.reason} at position {error.start}") from error


def malformed(path: str, reason: str) -> CorruptCheckpointError:
    """Return the error of a file that breaks a rule."""
    return CorruptCheckpointError(f"malformed {path}: {reason}", path=path, position=0, reason=reason)


def replace_file(path: str, content: bytes | Iterable[bytes], env: Env = DEFAULT_ENV) -> None:
    """Write a file beside `path`, then rename it over `path`; when this returns the content survives a power cut.

    Args: content: in one piece or several, which may be read from the file that is replaced.
    After an error the file has the old content or the new, and the one beside it is gone if it could be removed.
    Threads: one at a time for a path.
    Raises: StorageError.
    Source: Kafka CheckpointFile.write.
    """
    temporary = path + TEMPORARY_SUFFIX
    try:
        with env.open_write(temporary) as file:
            if not file.is_new:
                file.truncate(0)
            position = 0
            for piece in (content,) if isinstance(content, bytes) else content:
                file.pwrite(piece, position=position)
                position += len(piece)
            file.sync()
        env.rename(temporary, path)
    except StorageError:
        with suppress(StorageError):
            env.unlink(temporary)
        raise
    env.sync_directory(split_path(path)[0])
