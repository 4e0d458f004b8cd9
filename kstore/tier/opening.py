"""open_tier: the Env that shows what a root, or a tier alone, has in tiered storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstore.config import MAX_INT32, LogConfig, config_or_default
from kstore.env import Env, Location, StrPath, join_path, locate, split_path
from kstore.errors import checked_int
from kstore.log.files.checkpoints import read_checkpoint, read_leader_epoch_checkpoint
from kstore.log.files.names import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, PartitionDirectory
from kstore.tier.files import TierFiles, first_local_offset
from kstore.tier.keys import KeyRing
from kstore.types import parse_partition_directory_name


def open_tier(
    paths: Sequence[StrPath],
    tier: StrPath,
    *,
    keys: Mapping[str, StrPath] | None = None,
    epoch: int | None = None,
    config: LogConfig | None = None,
    env: Env | None = None,
) -> TierFiles:
    """Return the files of a tier as the directories of roots, or of partitions in them, show them.

    Args: paths: of one or several log.dirs of one broker, or of partitions in them, for which one Env is enough; the
        tier itself, or partitions in it as if it were a root, to read it alone. keys: the paths of private keys by key
        id; epoch: as of TierFiles; env: reads the paths, None for that of the first one.
    Raises: StorageError for a path or URL that cannot be located; ValueError, TypeError for an impossible epoch.
    Cost: no request.
    """
    remote, path = locate(tier)
    located = [locate(one, env) for one in paths]
    is_alone = env is None and all(_is_of_tier(one, path) for one in located)
    return TierFiles(
        None if is_alone or not located else located[0].env,
        remote,
        tier=path,
        roots=sorted({root for one in located for root in _roots_of(one)}),
        keys=KeyRing.of(keys, config),
        config=config_or_default(config),
        epoch=None if epoch is None else checked_int("tier_epoch", epoch, least=0, greatest=MAX_INT32),
    )


def _is_of_tier(location: Location, tier: str) -> bool:
    """Whether a path is a tier, or a partition in it that only a root could have."""
    root, name = split_path(location.path)
    is_partition = root == tier and parse_partition_directory_name(name) is not None
    return location.path == tier or (is_partition and not location.env.is_directory(location.path))


def _roots_of(location: Location) -> list[str]:
    """Return where the partitions of the metadata topic may be: a path, or its parent if it may be a partition's."""
    root, name = split_path(location.path)
    return [location.path] if parse_partition_directory_name(name) is None else [location.path, root]


def moved_to_tier(directory: PartitionDirectory) -> tuple[int, int] | None:
    """Return the offsets [first, last] that the log of a partition has in tiered storage alone, by what is in its root;
    None if nothing tells of any.

    Requires: has_tiered_storage of its root.
    Raises: CorruptCheckpointError, StorageError.
    Cost: the names in the partition, its epochs and the checkpoint of log starts.
    """
    env = directory.env
    first_local = first_local_offset(directory.path, env)
    epochs = read_leader_epoch_checkpoint(join_path(directory.path, LEADER_EPOCH_CHECKPOINT), env)
    if first_local is None or not epochs or env.has_views:
        return None
    checkpointed = read_checkpoint(directory.root, LOG_START_OFFSET_CHECKPOINT, env).get(directory.topic_partition, 0)
    start = max(checkpointed, epochs[0].start_offset)
    return None if start >= first_local else (start, first_local - 1)
