"""Staged writes: several processes encode records into files of a root, and one commits all of them in one transaction.

A StagingSink takes the batches of a Producer without an id; commit_staged appends them, exactly once per version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore._lazy import lazy_names

if TYPE_CHECKING:
    from kstore.staging.area import AppVersion as AppVersion
    from kstore.staging.area import StagedFile as StagedFile
    from kstore.staging.area import StagingArea as StagingArea
    from kstore.staging.area import job_name as job_name
    from kstore.staging.area import partitions_by_topic as partitions_by_topic
    from kstore.staging.commit import commit_staged as commit_staged
    from kstore.staging.preparing import prepare_root as prepare_root
    from kstore.staging.sink import StagingSink as StagingSink

_MODULES = {
    "kstore.staging.area": ("AppVersion", "StagedFile", "StagingArea", "job_name", "partitions_by_topic"),
    "kstore.staging.commit": ("commit_staged",),
    "kstore.staging.preparing": ("prepare_root",),
    "kstore.staging.sink": ("StagingSink",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
