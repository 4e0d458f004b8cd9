"""report: what is in a root or a partition, whether it is healthy and what holds it back, as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from html import escape
from typing import Any

from kstore._progress import Progress, ProgressBar
from kstore.config import LogConfig, config_or_default
from kstore.env import Env, StrPath, join_path, locate, shown_path, split_path
from kstore.errors import KStoreError
from kstore.log.files.checkpoints import replace_file
from kstore.log.files.names import META_PROPERTIES, PartitionDirectory, find_partition, find_partitions
from kstore.reporting.collecting import ReportOptions, collect, is_unharmed
from kstore.store.opening import log_size_in_bytes
from kstore.types import TopicPartition

_EXTRA = ("jinja2", "vl_convert")


class Report:
    """The facts of a root or a partition, and the page that shows them; notebooks show the page.

    Attributes: facts: the JSON object of `kstore report --json`, whose fields docs/report.md describes.
    Threads: thread-safe.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = facts

    def __repr__(self) -> str:
        return f"Report(place={self.facts['place']!r}, partitions={len(self.facts['partitions'])}, {self._verdict})"

    @property
    def is_unharmed(self) -> bool:
        """Whether nothing is damaged or unreadable, and no loss is proven."""
        return is_unharmed(self.facts)

    def json(self) -> str:
        """Return the facts as one line of JSON."""
        return json.dumps(self.facts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @cached_property
    def html(self) -> str:
        """The page: HTML that loads nothing.

        Raises: ModuleNotFoundError without the packages of the extra `report`.  Cost: about a second; then kept.
        """
        from kstore.reporting.page import page_of

        try:
            return page_of(self.facts)
        except ModuleNotFoundError as error:
            if error.name not in _EXTRA:
                raise
            raise ModuleNotFoundError(f"a page needs the package {error.name}: pip install 'kstore[report]'") from error

    def save(self, path: StrPath, *, env: Env | None = None) -> None:
        """Write the page to a file, in place of one that is there.

        Raises: ValueError for a place in a log.dirs root or a partition, where a broker does not expect it;
            StorageError; ModuleNotFoundError as html.
        """
        target_env, target = locate(path, env)
        check_target(target, target_env)
        replace_file(target, self.html.encode("utf-8", "backslashreplace"), target_env)

    @property
    def _verdict(self) -> str:
        return "unharmed" if self.is_unharmed else "damaged"

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="kstore report" sandbox="allow-scripts" style="width:100%;height:40rem;border:0" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )


def report(
    path: StrPath,
    *,
    topics: str | Iterable[str] | None = None,
    deep: bool = False,
    progress: Progress = False,
    config: LogConfig | None = None,
    env: Env | None = None,
) -> Report:
    """Look at the logs at a path; writes nothing and takes no lock.

    Args: path: a partition directory or a log.dirs root, also one that a broker writes; topics: only this topic or
        these; deep: read the records too, for the largest keys, ratios of codecs, and what compaction would save;
        progress: as of kstore.verify; config: the limits for reading.
    Raises: LogNotFoundError if there is no log at the path; ValueError for a topic that is not there; StorageError of
        the root. Damage, and partitions that cannot be read, are in the report.
    Cost: reads everything once, with `deep` four times; memory for the facts of each partition and segment.
    """
    settings = config_or_default(config)
    wanted = None if topics is None else {topics} if isinstance(topics, str) else set(topics)

    def is_wanted(partition: TopicPartition) -> bool:
        return wanted is None or partition.topic in wanted

    found = [one for one in find_partitions(path, env, is_wanted=is_wanted) if is_wanted(one.topic_partition)]
    missing = (wanted or set()) - {one.topic_partition.topic for one in found}
    if missing:
        raise ValueError(f"topics not found: {', '.join(sorted(missing))}")
    with ProgressBar(progress, "report") as bar:
        if bar.is_wanted:
            bar.begin(passes_of(is_deep=deep) * log_size_in_bytes(found))
        return report_on(found, path=path, is_deep=deep, config=settings, env=env, on_read=bar.add)


def passes_of(*, is_deep: bool) -> int:
    """Return how many passes a report makes over the bytes of a log."""
    return 2 if is_deep else 1


def report_on(
    found: Iterable[PartitionDirectory],
    *,
    path: StrPath,
    is_deep: bool,
    config: LogConfig,
    env: Env | None = None,
    on_partition: Callable[[str], object] = lambda _: None,
    on_read: Callable[[int], object] = lambda _: None,
) -> Report:
    """Return the report of partitions that were found at a path.

    Args: on_partition: called with the name of each before it is read; on_read: with numbers of bytes that were read.
    """
    directories = list(found)
    at_env, place = locate(path, env)
    options = ReportOptions(
        is_deep=is_deep, now_ms=at_env.wall_clock_ms(), config=config, on_partition=on_partition, on_read=on_read
    )
    is_root = all(one.path != place for one in directories)
    return Report(collect(directories, place=shown_path(place), is_root=is_root, options=options))


def check_target(path: str, env: Env) -> None:
    """Check that a page may be written to a path.

    Raises: ValueError for a place in a log.dirs root or a partition.
    """
    directory = split_path(path)[0]
    is_root = env.stat(join_path(directory, META_PROPERTIES)) is not None
    if is_root or _is_partition(directory, env):
        raise ValueError(
            f"{shown_path(path)} is in a directory of logs, where a broker does not expect it: name another directory"
        )


def _is_partition(directory: str, env: Env) -> bool:
    try:
        find_partition(directory, env)
    except KStoreError:
        return False
    return True
