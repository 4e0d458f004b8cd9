"""Exports and archives: records as Parquet or Arrow files, or batches verbatim as segments that a broker loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.archive.manifest import ExportedFile, ExportedPartition, Manifest, read_manifest
from kstore.archive.options import ExportArguments, Format, export_options
from kstore.archive.run import ExportSummary, local_export
from kstore.config import LogConfig
from kstore.env import Env, StrPath

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "ExportArguments",
    "ExportSummary",
    "ExportedFile",
    "ExportedPartition",
    "Manifest",
    "export",
    "read_manifest",
]


def export(
    source: StrPath,
    target: StrPath,
    format: Format = "parquet",
    *,
    threads: int = 2,
    fail_on_data_loss: bool = True,
    config: LogConfig | None = None,
    env: Env | None = None,
    **options: Unpack[ExportArguments],
) -> ExportSummary:
    """Export what a log.dirs root or a partition holds into a directory; called again, what was written since.

    With format "parquet" or "arrow" the target has files topic=<topic>/date=<YYYY-MM-DD>/<topic>-<partition>-<first
    offset>-<last offset>; the date is that of the timestamp in UTC, __HIVE_DEFAULT_PARTITION__ without one. With format
    "kstore" it is a log.dirs root of its own, with the batches byte for byte, in segments that a broker loads. In both
    cases _kstore_manifest.json, which is written last, lists the finished files (docs/export.md).
    The same call resumes a run that ended early. Files of earlier runs are joined up to file_bytes.
    Args: options: see kstore.archive.ExportArguments; threads: how many parts are exported at a time;
        fail_on_data_loss: False to go on where the source has deleted records before they were exported; the manifest
        lists their offsets as missing.
    Raises: ValueError, TypeError for a wrong option; ExportOptionsError if the target holds an export with other
        options; ExportSourceError if the source was truncated below what was exported, has deleted records that were
        not, or is another log now; ExportError for a target that is no export; UnsupportedError for a URL as target;
        LogLockedError; LogNotFoundError, CorruptionError, UnsupportedError, LogReplacedError, StorageError, after each
        of which the same call resumes this run.
    Threads: safe; one run at a time per target.
    Cost: one pass; memory for two decoded batches and one row group for each thread.
    """
    return local_export(
        source,
        target,
        export_options(format, **options),
        threads=threads,
        fail_on_data_loss=fail_on_data_loss,
        config=config,
        env=env,
    )
