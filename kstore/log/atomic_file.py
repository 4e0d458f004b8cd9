"""Small files that are replaced as a whole, so that a power cut leaves the old content or the new. Layer 5."""

from __future__ import annotations

from contextlib import suppress

from kstore.errors import StorageError
from kstore.log.env import DEFAULT_ENV, Env, split_path

TEMPORARY_SUFFIX = ".tmp"


def replace_file(path: str, content: bytes, env: Env = DEFAULT_ENV) -> None:
    """Write a file beside `path`, then rename it over `path`; when this returns the content survives a power cut.

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
            file.pwrite(content, position=0)
            file.sync()
        env.rename(temporary, path)
    except StorageError:
        with suppress(StorageError):
            env.unlink(temporary)
        raise
    env.sync_directory(split_path(path)[0])
