"""Staged writes: several processes encode records into files of a root, and one commits all of them in one transaction.

A StagingSink takes the batches of a Producer without an id; commit_staged appends them, exactly once per version.
"""

from kstore.staging.area import StagedFile, StagingArea, job_name
from kstore.staging.commit import AppVersion, commit_staged, prepare_root
from kstore.staging.sink import StagingSink, partitions_by_topic

__all__ = [
    "AppVersion",
    "StagedFile",
    "StagingArea",
    "StagingSink",
    "commit_staged",
    "job_name",
    "partitions_by_topic",
    "prepare_root",
]
