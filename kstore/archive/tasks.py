"""run_part: the task of one part, which runs in a thread or in a Spark executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kstore.archive.options import ExportOptions
from kstore.archive.parts import Part, PartResult, Work
from kstore.archive.plan import MOST_ATTEMPTS, Source, renewed_work
from kstore.archive.target import Place, save_result
from kstore.errors import LogReplacedError, StorageError
from kstore.log.segment.replaced import is_change

if TYPE_CHECKING:
    from kstore.archive.typed.topics import TypedTopic


class Job(NamedTuple):
    """The arguments that all tasks of a run share. Picklable.

    typed: the columns of the topics, if keys or values have a format.
    """

    options: ExportOptions
    place: Place
    source: Source
    typed: Mapping[str, TypedTopic] | None = None


def run_part(work: Work, job: Job, *, threads: int = 1, on_bytes: Callable[[int], None] = lambda _: None) -> PartResult:
    """Export one part: write its files to the staging directory, then its result; both are durable.

    Another attempt of the same part writes other files; the last result counts, and either is right.
    Starts again if files of the source change while it reads them, at most 10 times in all.
    Args: threads: that decode; on_bytes: called with the number of source bytes processed since the last call.
    Raises: as export_columns or export_batches; ExportSourceError if the source has lost offsets of the part.
    """
    attempts_left = MOST_ATTEMPTS
    while True:
        attempts_left -= 1
        try:
            result = _exported(work, job, threads=threads, on_bytes=on_bytes)
            break
        except (LogReplacedError, StorageError) as error:
            is_of_source = not work.files and str(error.path).startswith(f"{work.directory}/")
            if not attempts_left or not is_of_source or not is_change(error):
                raise
            work = renewed_work(work, job.source, job.options)
    save_result(result, job.place)
    return result


def _exported(work: Work, job: Job, *, threads: int, on_bytes: Callable[[int], None]) -> PartResult:
    options, source = job.options, job.source
    if options.is_verbatim:
        from kstore.archive.batches import export_batches

        return export_batches(work, options, job.place, config=source.config, env=source.env, on_bytes=on_bytes)
    from kstore.archive.columns import export_columns

    return export_columns(
        work,
        options,
        job.place,
        config=source.config,
        env=source.env,
        typed=(job.typed or {}).get(work.part.topic),
        threads=threads,
        on_offset=_in_bytes(work.part, on_bytes),
    )


def _in_bytes(part: Part, on_bytes: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function of the last offset reached, which reports progress in bytes of the part."""
    start, size = part.start_offset, part.size_in_bytes
    reported = 0

    def reached(last_offset: int) -> None:
        nonlocal reported
        done = size * (last_offset + 1 - start) // max(part.end_offset - start, 1)
        if done > reported:
            on_bytes(done - reported)
            reported = done

    return reached
