"""run_part: the task of one part, the same on this machine and in Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kstore.archive.options import ExportOptions
from kstore.archive.parts import Part, PartResult, Work
from kstore.archive.target import Place, save_result
from kstore.config import LogConfig
from kstore.log.env import Env


class Job(NamedTuple):
    """What the tasks of a run have in common. env: of the source, None to choose it by the ranges. Picklable."""

    options: ExportOptions
    place: Place
    config: LogConfig
    env: Env | None


def run_part(work: Work, job: Job, *, threads: int = 1, on_bytes: Callable[[int], None] = lambda _: None) -> PartResult:
    """Export one part: its files, durable in the staging directory, then the note that they are finished.

    Another attempt of the same part writes other files; the last note counts, and either is right.
    Args: threads: that decode; on_bytes: called with how many bytes of the source were dealt with since the last call.
    Raises: as export_columns or export_batches.
    """
    options, part = job.options, work.part
    if options.is_verbatim:
        from kstore.archive.batches import export_batches

        result = export_batches(work, options, job.place, config=job.config, env=job.env, on_bytes=on_bytes)
    else:
        from kstore.archive.columns import export_columns

        result = export_columns(
            work,
            options,
            job.place,
            config=job.config,
            env=job.env,
            threads=threads,
            on_offset=_in_bytes(part, on_bytes),
        )
    save_result(result, job.place.staging, job.place.env)
    return result


def _in_bytes(part: Part, tell: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that turns the offsets that were reached into bytes of a part."""
    start, size = part.start_offset, part.size_in_bytes
    told = 0

    def reached(last_offset: int) -> None:
        nonlocal told
        done = size * (last_offset + 1 - start) // max(part.end_offset - start, 1)
        if done > told:
            tell(done - told)
            told = done

    return reached
