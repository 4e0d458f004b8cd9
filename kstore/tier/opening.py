"""open_tier: the Env that shows what a root, or a tier alone, has in tiered storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstore.config import LogConfig, config_or_default
from kstore.env import Env, Location, StrPath, locate, split_path
from kstore.tier.files import TierFiles
from kstore.tier.keys import KeyRing
from kstore.types import parse_partition_directory_name


def open_tier(
    paths: Sequence[StrPath],
    tier: StrPath,
    *,
    keys: Mapping[str, StrPath] | None = None,
    config: LogConfig | None = None,
    env: Env | None = None,
) -> TierFiles:
    """Return the files of a tier as the directories of roots, or of partitions in them, show them.

    Args: paths: of one or several log.dirs of one broker, or of partitions in them, for which one Env is enough; the
        tier itself, or partitions in it as if it were a root, to read it alone. keys: the paths of private keys by key
        id; env: reads the paths, None for that of the first one.
    Raises: StorageError for a path or URL that cannot be located.
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
        keys=KeyRing.of(keys),
        config=config_or_default(config),
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
