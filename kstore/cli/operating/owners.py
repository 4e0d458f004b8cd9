"""Whose a root is: what may be changed in it besides records depends on whether a cluster has its own account of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.cli.arguments import WrongUseError
from kstore.env import Env, locate, shown_path
from kstore.errors import LogNotFoundError
from kstore.log.files.names import partitions_of_root
from kstore.log.files.root_files import read_meta_properties
from kstore.store.settings.owner import owning_cluster

if TYPE_CHECKING:
    from kstore.cli.output import Output


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


def check_owner(root: str, env: Env, out: Output, *, consequence: str, is_forced: bool) -> None:
    """Refuse to change a root whose topics a cluster has its own account of, unless it is forced; then say what a
    broker does.

    Raises: WrongUseError.
    """
    reason = owning_cluster(root, env)
    if reason is None:
        return
    told = f"{shown_path(root)} belongs to a cluster ({reason}): {consequence}"
    if not is_forced:
        raise WrongUseError(f"{told}; to do it all the same: --force")
    out.notice(told)
