"""Commands that remove what a topic no longer has to keep: compact, retention."""

from __future__ import annotations

from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.commands.options import Directory, Json, Partitions, Topics, selection_of
from kstore.cli.output import Output
from kstore.config import MAX_INT32


def _given(**options: float | None) -> dict[str, float]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


@command("compact")
def compact_logs(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    roll: Annotated[
        bool, typer.Option("--roll", help="Start a new segment first: the last one of a log is never compacted.")
    ] = False,
    min_dirty_ratio: Annotated[
        float | None,
        typer.Option(metavar="R", min=0.0, max=1.0, help="Only logs of which a larger part is dirty; else all."),
    ] = None,
    delete_retention_ms: Annotated[
        int | None,
        typer.Option(metavar="MS", min=0, help="How long tombstones stay after they were first compacted (a day)."),
    ] = None,
    min_compaction_lag_ms: Annotated[
        int | None, typer.Option(metavar="MS", min=0, help="Leave records that are younger as they are.")
    ] = None,
    segment_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=14, max=MAX_INT32, help="Merge segments up to this size (1 GiB).")
    ] = None,
    map_bytes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1024, help="Memory for the map of keys, 24 bytes for each (128 MiB)."),
    ] = None,
    max_bytes_per_second: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Read and write at most so many bytes per second.")
    ] = None,
    drop_keyless: Annotated[
        bool, typer.Option("--drop-keyless", help="Also remove records without a key, of topics that --topic names.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, report what would be removed.")] = False,
    json: Json = False,
) -> int:
    """Remove records of compacted topics that have a newer one."""
    from kstore.cli.cleaning import compact

    wanted = compact.CompactOptions(
        options=_given(
            min_cleanable_dirty_ratio=min_dirty_ratio,
            delete_retention_ms=delete_retention_ms,
            min_compaction_lag_ms=min_compaction_lag_ms,
            segment_bytes=segment_bytes,
            cleaner_dedupe_buffer_bytes=map_bytes,
        ),
        rolls=roll,
        heeds_ratio=min_dirty_ratio is not None,
        max_bytes_per_second=max_bytes_per_second,
        drops_keyless=drop_keyless,
        is_dry=dry_run,
    )
    return compact.run(selection_of(directory, topic, partition), wanted, out, is_json=json)


@command("retention")
def remove_old_segments(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    retention_ms: Annotated[
        int | None,
        typer.Option(metavar="MS", min=-1, help="Remove segments all of whose records are older; -1 for none."),
    ] = None,
    retention_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=-1, help="Remove the oldest segments above this size; -1 for none.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, report what would be removed.")] = False,
    json: Json = False,
) -> int:
    """Remove old segments, by limits that are known or given."""
    from kstore.cli.cleaning import retention

    options = _given(retention_ms=retention_ms, retention_bytes=retention_bytes)
    return retention.run(selection_of(directory, topic, partition), options, out, is_dry=dry_run, is_json=json)
