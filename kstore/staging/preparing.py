"""prepare_root: the first step of a write, before any task. It imports no store unless something is missing."""

from __future__ import annotations

from collections.abc import Collection

from kstore.env import DEFAULT_ENV, ENOENT, Env, StrPath
from kstore.errors import LogNotFoundError
from kstore.staging.area import StagingArea
from kstore.types import parse_partition_directory_name


def prepare_root(
    root: StrPath, *, new_topics: Collection[tuple[str, int]] = (), max_block_ms: int = 60_000, env: Env = DEFAULT_ENV
) -> StagingArea:
    """Return the staging area of a root, created if necessary, as are the topics that are missing.

    Args: new_topics: name and number of partitions of each; max_block_ms: how long to wait for the root's lock.
    Raises: LogLockedError if another writer, such as a broker, holds the root for longer; ValueError for an invalid
        topic name; LogNotFoundError, StorageError; as open_store.
    Cost: without anything to create, one listing and one stat.
    """
    area = StagingArea(root, env)
    if env.stat(area.root) is None:
        raise LogNotFoundError(f"no such directory: {area.root}", path=area.root, errno=ENOENT)
    places = map(parse_partition_directory_name, env.listdir(area.root))
    there = {place.topic for place in places if place is not None}
    missing = [(topic, partitions) for topic, partitions in new_topics if topic not in there]
    if not area.is_ready or missing:
        from kstore.staging.commit import make_area

        make_area(area, missing, max_block_ms=max_block_ms, env=env)
    return area
