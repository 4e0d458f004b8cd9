"""Exports and archives: records as Parquet or Arrow files, or batches verbatim as segments that a broker loads."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from kstore.archive.manifest import ExportedFile, ExportedPartition, Manifest, read_manifest
from kstore.archive.options import Format, LastBatch, export_options
from kstore.archive.run import ExportSummary, local_export
from kstore.config import LogConfig
from kstore.log.damage import OnError
from kstore.log.env import DEFAULT_ENV, Env, StrPath
from kstore.log.files.selection import Offsets, Time
from kstore.log.log import Isolation

__all__ = ["ExportSummary", "ExportedFile", "ExportedPartition", "Manifest", "export", "read_manifest"]


def export(
    source: StrPath,
    target: StrPath,
    format: Format = "parquet",
    *,
    topics: Iterable[str] | None = None,
    partitions: Iterable[int] | int | None = None,
    start_offset: Offsets | None = None,
    end_offset: Offsets | None = None,
    since: Time | None = None,
    until: Time | None = None,
    isolation: Isolation = "read_uncommitted",
    columns: Iterable[str] | None = None,
    strings: Iterable[str] = (),
    codec: str | None = None,
    row_group_rows: int | None = None,
    file_bytes: int | None = None,
    last_batch: LastBatch = "keep",
    topic_ids: Mapping[str, str | uuid.UUID] | None = None,
    threads: int = 2,
    on_error: OnError = "raise",
    fail_on_data_loss: bool = True,
    config: LogConfig | None = None,
    env: Env = DEFAULT_ENV,
) -> ExportSummary:
    """Export what a log.dirs root or a partition holds into a directory; called again, what was written since.

    With format "parquet" or "arrow" the target has files topic=<topic>/date=<YYYY-MM-DD>/<topic>-<partition>-<first
    offset>-<last offset>; the date is that of the timestamp in UTC, __HIVE_DEFAULT_PARTITION__ without one. With format
    "kstore" it is a log.dirs root of its own, with the batches byte for byte, in segments that a broker loads. In both
    cases _kstore_manifest.json, which is written last, lists the finished files (docs/export.md).
    A run that ended early, however it did, is continued by the same call. Files of earlier runs are joined up to
    file_bytes.
    Args: topics, partitions, start_offset, end_offset, since, until, isolation: as in kstore.scan. Of format "kstore"
        whole batches with offsets from start_offset on are copied, up to end_offset, or the first record at or after
        `until`; last_batch: whether a batch that spans the end is kept whole or, as in a broker's truncation, dropped.
        columns: as in kstore.scan, by default all but topic; strings: as there. codec: for Parquet "snappy" (the
        default), "zstd", "lz4", "gzip", "none", for Arrow "none" (the default), "lz4", "zstd". row_group_rows: default
        131072. file_bytes: the size of a file, about, default 128 MiB. topic_ids: of format "kstore", written to
        partition.metadata in place of the source's. threads: how many parts are exported at a time. on_error: "skip"
        leaves out damage, and lists it in the manifest. fail_on_data_loss: False to go on where the source has deleted
        records before they were exported; the manifest lists the offsets as missing.
    Raises: ValueError, TypeError for a wrong option; ExportOptionsError if the target holds an export with other
        options; ExportSourceError if the source was truncated below what was exported, or has deleted records that were
        not; ExportError for a target that is no export; UnsupportedError for a URL as target; LogLockedError;
        LogNotFoundError, CorruptionError, UnsupportedError, LogReplacedError, StorageError, after each of which the same
        call goes on where this one stopped.
    Threads: safe; one run at a time per target.
    Cost: one pass; memory for two decoded batches and one row group for each thread.
    """
    options = export_options(
        format,
        topics=topics,
        partitions=partitions,
        start_offset=start_offset,
        end_offset=end_offset,
        since=since,
        until=until,
        isolation=isolation,
        columns=columns,
        strings=strings,
        codec=codec,
        row_group_rows=row_group_rows,
        file_bytes=file_bytes,
        last_batch=last_batch,
        on_error=on_error,
        topic_ids=topic_ids,
    )
    return local_export(
        source, target, options, threads=threads, fail_on_data_loss=fail_on_data_loss, config=config, env=env
    )
