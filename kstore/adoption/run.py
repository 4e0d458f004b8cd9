"""adopt: makes log.dirs roots ready for one broker."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping

from kstore.adoption.features import Release
from kstore.adoption.plan import AdoptionRequest, plan_adoption
from kstore.adoption.report import AdoptionReport
from kstore.adoption.roots import look_into
from kstore.adoption.settings import checked_given, read_given
from kstore.adoption.topics import GivenSettings
from kstore.adoption.writing import write_plan
from kstore.config import MAX_INT32
from kstore.env import Env, StrPath, join_path, locate, path_list
from kstore.errors import LogLockedError, checked_int
from kstore.log.files.lock import PartitionLock
from kstore.log.files.names import LOCK_FILE


def adopt(
    roots: StrPath | Iterable[StrPath],
    *,
    node_id: int | None = None,
    cluster_id: str | None = None,
    release: Release | None = None,
    settings: StrPath | Mapping[str, Mapping[str, object]] | None = None,
    keep_forever: bool = False,
    replace: bool = False,
    set_aside: StrPath | None = None,
    dry_run: bool = False,
    env: Env | None = None,
) -> AdoptionReport:
    """Make log.dirs roots ready for a KRaft broker, the only one of its cluster, and return what was done.

    It writes what a broker knows its topics by: `__cluster_metadata` with one snapshot, ids of topics that have none,
    and meta.properties. No byte of a log changes. A second call changes nothing, unless topics came.
    Args: roots: the log.dirs of the broker, one or several; the metadata goes into the first; node_id, cluster_id:
        None for those of the roots, or 1 and a random one; release: of the features' levels, "3.9", with which brokers
        of 3.9 and later start, "4.1" or "4.4"; None for the levels of the root's cluster, or 3.9's; settings: of topics
        by Kafka's names, or the path of a JSON file with them, for topics whose settings are not in the roots, or are
        to be others; "*" stands for all topics of which nothing is known. keep_forever: nothing is deleted of topics of
        which nothing is known. replace: also take over a root that belongs to a cluster: its topics, ids, settings and
        features are carried over, and the files of its metadata are moved to set_aside; set_aside: a directory on the
        same file system that is to be made, None for one beside the root. dry_run: change nothing.
    Raises: LogLockedError while a broker or a store has a root; ClusterOwnedError for the root of a cluster, without
        `replace`; UnknownSettingsError for topics whose settings are not known; TopicSettingsError for settings with
        which no broker starts; AdoptionError for roots that cannot be adopted as they are, or damaged files of them;
        CorruptRecordError and the other errors of a read of internal topics; LogNotFoundError, StorageError,
        UnsupportedError for a URL; ValueError, TypeError.
    Threads: safe; it has the locks of the roots.
    Cost: one pass over the headers of all batches, and over the records of `__consumer_offsets` and
        `__transaction_state`.
    """
    located = [locate(path, env) for path in path_list(roots)]
    if not located:
        raise ValueError("roots must name at least one directory, got none")
    paths = [place.path for place in located]
    if len(set(paths)) < len(paths):
        raise ValueError(f"roots must be different directories, got {', '.join(paths)}")
    used = located[0].env
    for place in located:
        place.env.check_writable(place.path)
    request = AdoptionRequest(
        node_id=None if node_id is None else checked_int("node_id", node_id, least=0, greatest=MAX_INT32),
        cluster_id=cluster_id,
        release=release,
        settings=GivenSettings(by_topic=_given(settings, env), keep_forever=keep_forever),
        replaces=replace,
        set_aside=None if set_aside is None else used.absolute_path(set_aside),
    )
    locks: list[PartitionLock] = []
    try:
        look_into(paths, used)  # what is no root gets no lock
        for path in paths:
            if dry_run:
                _check_free(path, used)
            else:
                locks.append(PartitionLock.acquire(path, None, used))
        plan = plan_adoption(look_into(paths, used), request, is_dry=dry_run)
        if not dry_run:
            write_plan(plan, used)
        return plan.report
    finally:
        for lock in locks:
            lock.release()


def _given(
    settings: StrPath | Mapping[str, Mapping[str, object]] | None, env: Env | None
) -> Mapping[str, Mapping[str, str]]:
    if settings is None:
        return {}
    return checked_given(settings, "settings") if isinstance(settings, Mapping) else read_given(str(settings), env)


def _check_free(root: str, env: Env) -> None:
    """Raise LogLockedError while another process has the root; a lock of its own would make a file."""
    path = join_path(root, LOCK_FILE)
    if env.is_locked(path):
        holder = env.lock_holder(path, root)
        error = LogLockedError(
            f"cannot adopt {root}: {holder or 'another process, perhaps a broker,'} holds {path}",
            path=root,
            errno=errno.EAGAIN,
        )
        if holder is not None:
            error.holder_pid, error.holder_name = holder.pid, holder.name
        raise error
