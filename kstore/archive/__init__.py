"""Exports and archives: records as Parquet or Arrow files, or batches verbatim as segments that a broker loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from kstore._progress import Progress, ProgressBar
from kstore.archive.manifest import ExportedFile, ExportedPartition, Manifest, read_manifest
from kstore.archive.options import ExportArguments, Format, export_options
from kstore.archive.restoring.run import RestoredPartition, RestoreSummary, restore
from kstore.archive.run import ExportSummary, local_export
from kstore.archive.tables.appending import TablePartition, TableSummary, export_to_table
from kstore.archive.tables.naming import check_destination, check_no_storage_options
from kstore.config import LogConfig
from kstore.env import Env, StrPath
from kstore.store.opening import tiered_env

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Unpack

__all__ = [
    "ExportArguments",
    "ExportSummary",
    "ExportedFile",
    "ExportedPartition",
    "Manifest",
    "RestoreSummary",
    "RestoredPartition",
    "TablePartition",
    "TableSummary",
    "export",
    "read_manifest",
    "restore",
]


@overload
def export(
    source: StrPath,
    target: StrPath,
    format: Format = ...,
    *,
    table: None = ...,
    partition_by: None = ...,
    storage_options: Mapping[str, str] | None = ...,
    threads: int = ...,
    fail_on_data_loss: bool = ...,
    progress: Progress = ...,
    tier: StrPath | None = ...,
    tier_keys: Mapping[str, StrPath] | None = ...,
    tier_epoch: int | None = ...,
    config: LogConfig | None = ...,
    env: Env | None = ...,
    **options: Unpack[ExportArguments],
) -> ExportSummary: ...


@overload
def export(
    source: StrPath,
    target: None = ...,
    format: Format = ...,
    *,
    table: str,
    partition_by: Iterable[str] | str | None = ...,
    storage_options: None = ...,
    threads: int = ...,
    fail_on_data_loss: bool = ...,
    progress: Progress = ...,
    tier: StrPath | None = ...,
    tier_keys: Mapping[str, StrPath] | None = ...,
    tier_epoch: int | None = ...,
    config: LogConfig | None = ...,
    env: Env | None = ...,
    **options: Unpack[ExportArguments],
) -> TableSummary: ...


def export(
    source: StrPath,
    target: StrPath | None = None,
    format: Format = "parquet",
    *,
    table: str | None = None,
    partition_by: Iterable[str] | str | None = None,
    storage_options: Mapping[str, str] | None = None,
    threads: int = 2,
    fail_on_data_loss: bool = True,
    progress: Progress = False,
    tier: StrPath | None = None,
    tier_keys: Mapping[str, StrPath] | None = None,
    tier_epoch: int | None = None,
    config: LogConfig | None = None,
    env: Env | None = None,
    **options: Unpack[ExportArguments],
) -> ExportSummary | TableSummary:
    """Export what a log.dirs root or a partition holds into a directory, an object store or a table; called again, what
    was written since.

    With format "parquet" or "arrow" the target has files topic=<topic>/date=<YYYY-MM-DD>/<topic>-<partition>-<first
    offset>-<last offset>; the date is that of the timestamp in UTC, __HIVE_DEFAULT_PARTITION__ without one. With format
    "kstore" it is a log.dirs root of its own, with the batches byte for byte, in segments that a broker loads. In both
    cases _kstore_manifest.json, which is written last, lists the finished files (docs/export.md).
    The same call resumes a run that ended early. Files of earlier runs are joined up to file_bytes.
    Args: options: see kstore.archive.ExportArguments; threads: how many parts are exported at a time; progress: as
        of kstore.verify, begun again for each table; tier, tier_keys, tier_epoch: of the source, as of kstore.open_log;
        fail_on_data_loss: False to go on where the source has deleted records before they were exported; the manifest
        lists their offsets as missing.
        storage_options: of a target that is a URL (s3, gs, abfs): credentials, region, endpoint_url and so on, as
        obstore's stores and Polars take them; None for those of the environment.
        table: in place of target, "delta:URI" or "iceberg:CATALOG.NAMESPACE.TABLE"; with {topic} in it, each topic has
        a table of its own. The rows are appended, each exactly once. partition_by: columns by which a table is
        partitioned that is created; None for the date.
    Raises: ValueError, TypeError for a wrong option; ExportOptionsError if the target holds an export with other
        options; ExportSourceError if the source was truncated below what was exported, has deleted records that were
        not, or is another log now; ExportError for a target that is no export; UnsupportedError for a URL of a
        store without conditional writes, or of format "kstore"; LogLockedError for a directory, ExportConflictError for
        a URL, if another export commits first; ModuleNotFoundError for a URL without obstore; LogNotFoundError,
        CorruptionError, UnsupportedError, LogReplacedError, StorageError, after each of which the same call resumes
        this run, or starts again for a URL. Of a table: ModuleNotFoundError without its package;
        ExportConflictError if another writer commits first; ExportError for an error of the package; with {topic}
        ExportTablesError, after all tables, for those that failed.
    Threads: safe; one run at a time per target.
    Cost: one pass; memory for two decoded batches and one row group for each thread.
    """
    check_destination(target, table, partition_by)
    checked = export_options(format, **options)
    with ProgressBar(progress, "export") as bar:
        shared: dict[str, Any] = {
            "threads": threads,
            "fail_on_data_loss": fail_on_data_loss,
            "config": config,
            "env": tiered_env([source], tier, keys=tier_keys, epoch=tier_epoch, config=config, env=env),
            "on_plan": bar.begin,
            "on_bytes": bar.add,
        }
        if target is not None:
            return local_export(source, target, checked, storage_options=storage_options, **shared)
        check_no_storage_options(storage_options)
        return export_to_table(source, table or "", checked, partition_by=partition_by, **shared)
