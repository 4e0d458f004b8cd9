"""Whose a root is: what may be changed in it besides records depends on whether a cluster has its own account of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kstore.adoption.changes import keep_topics_in_metadata
from kstore.cli.arguments import WrongUseError
from kstore.env import Env, locate, shown_path
from kstore.errors import LogNotFoundError
from kstore.log.files.names import partitions_of_root
from kstore.log.files.root_files import read_meta_properties
from kstore.store.settings.owner import owning_cluster
from kstore.store.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstore.cli.output import Output
    from kstore.store.store import WritableStore


def find_root(directory: str) -> tuple[str, Env]:
    """Return the path of a log.dirs root, which may be empty, and its Env.

    Raises: LogNotFoundError if there is no such directory; WrongUseError for a directory of something else.
    """
    env, path = locate(directory, None)
    if not env.is_directory(path):
        raise LogNotFoundError(f"no such directory: {shown_path(path)}", path=path, errno=2)
    if read_meta_properties(path, env) is None and not partitions_of_root(path, env) and env.listdir(path):
        raise WrongUseError(f"{shown_path(path)} is not a log.dirs root: it has neither meta.properties nor partitions")
    return path, env


def check_owner(root: str, env: Env, *, consequence: str, is_forced: bool) -> None:
    """Refuse to change a root whose topics a cluster has its own account of, unless it is forced.

    Raises: WrongUseError.
    """
    reason = owning_cluster(root, env)
    if reason is not None and not is_forced:
        raise WrongUseError(
            f"{shown_path(root)} belongs to a cluster ({reason}), by whose metadata {consequence}; to write the change "
            f"into the metadata too, if it is there and of this node alone: --force"
        )


@contextmanager
def changed_store(root: str, out: Output, *, consequence: str) -> Iterator[WritableStore]:
    """Open a root whose topics are changed. What changes is written into the metadata of its cluster too; if it cannot
    be, it is said what a broker does.
    """
    with open_store(root, "a") as store:
        keep_topics_in_metadata(
            store, lambda reason: out.notice(f"{shown_path(root)} belongs to a cluster, and {reason}: {consequence}")
        )
        yield store
