"""The levels of a cluster's features, as `kafka-storage format` of a release finalizes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from kstore.store.metadata.image import METADATA_VERSION

Release: TypeAlias = Literal["3.9", "4.1", "4.4"]
RELEASES: tuple[Release, ...] = get_args(Release)
# That of Kafka 3.9, which every later broker starts with too.
DEFAULT_RELEASE: Release = "3.9"
# From this level on partitions name the directories of their replicas (3.7-IV2, KIP-858).
LEAST_LEVEL = 17
_ELIGIBLE_LEADERS = "eligible.leader.replicas.version"
_OF_RELEASE: Mapping[str, Mapping[str, int]] = {
    "3.9": {METADATA_VERSION: 21},
    "4.1": {METADATA_VERSION: 27, _ELIGIBLE_LEADERS: 1, "group.version": 1, "transaction.version": 2},
    "4.4": {
        METADATA_VERSION: 33,
        _ELIGIBLE_LEADERS: 1,
        "group.version": 1,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    },
}


def features_of(release: Release | None, kept: Mapping[str, int]) -> dict[str, int]:
    """Return the levels by name, metadata.version first.

    Args: release: None for the levels that the root's cluster had, if it had one that directories are known in; else
        those of DEFAULT_RELEASE. kept: the levels of that cluster.
    Raises: ValueError for an unknown release.
    """
    if release is None and kept.get(METADATA_VERSION, 0) >= LEAST_LEVEL:
        # Which version of the quorum's protocol there is is in its control records.
        others = {name: level for name, level in sorted(kept.items()) if name != "kraft.version" and level}
        return {METADATA_VERSION: others.pop(METADATA_VERSION), **others}
    if release is not None and release not in _OF_RELEASE:
        raise ValueError(f"release must be one of {', '.join(RELEASES)}, got {release!r}")
    return dict(_OF_RELEASE[release or DEFAULT_RELEASE])


def has_eligible_leaders(features: Mapping[str, int]) -> bool:
    """Whether the controller keeps eligible leader replicas (KIP-966), for which it needs min.insync.replicas of the
    cluster.
    """
    return features.get(_ELIGIBLE_LEADERS, 0) > 0
