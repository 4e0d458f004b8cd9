"""`kstore report`: one page, or one JSON object, on what is in a root or a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Progress
from kstore.config import LogConfig
from kstore.env import locate
from kstore.reporting.report import check_target, passes_of, report_on
from kstore.store.opening import log_size_in_bytes

if TYPE_CHECKING:
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output


def run(selection: PartitionSelection, out: Output, *, target: str | None, is_json: bool, is_deep: bool) -> int:
    """Report on the selected partitions and return the exit status: 1 if anything is damaged, as of verify.

    Args: target: the file to write the page to, None for none.
    """
    if target is None and not is_json:
        raise WrongUseError("name the file of the page, -o report.html, or use --json")
    if target is not None:
        _check(target)
    partitions = selection.find()
    progress = Progress()

    def on_partition(name: str) -> None:
        progress.label = name

    def on_read(size: int) -> None:
        progress.done_bytes += size

    with out.progress(progress, total_bytes=lambda: passes_of(is_deep=is_deep) * log_size_in_bytes(partitions)):
        report = report_on(
            partitions,
            path=selection.directory,
            is_deep=is_deep,
            config=LogConfig(),
            on_partition=on_partition,
            on_read=on_read,
        )
        if target is not None:
            report.save(target)
    if is_json:
        out.line(report.json())
    elif target is not None:
        out.notice(f"wrote {target}: {'no damage found' if report.is_unharmed else 'damage found'}")
    return EXIT_FINE if report.is_unharmed else EXIT_DAMAGE


def _check(target: str) -> None:
    env, path = locate(target)
    try:
        check_target(path, env)
    except ValueError as error:
        raise WrongUseError(str(error)) from error
