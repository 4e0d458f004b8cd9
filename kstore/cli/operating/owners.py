"""Whose a root is: what may be changed in it besides records depends on whether a cluster has its own account of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.cli.arguments import WrongUseError
from kstore.env import Env, join_path, locate, shown_path
from kstore.errors import LogNotFoundError
from kstore.log.files.names import BOOTSTRAP_CHECKPOINT, CLUSTER_METADATA_TOPIC, partitions_of_root
from kstore.log.files.root_files import read_meta_properties
from kstore.store.settings.file import read_settings
from kstore.types import TopicPartition

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


def cluster_of(root: str, env: Env) -> str | None:
    """Return why a cluster has its own account of the topics in a root, None if kstore alone knows them."""
    for name in (str(TopicPartition(CLUSTER_METADATA_TOPIC, 0)), BOOTSTRAP_CHECKPOINT):
        if env.stat(join_path(root, name)) is not None:
            return f"it has {name}"
    meta = read_meta_properties(root, env)
    if meta is None or read_settings(root, env).defaults is not None:
        return None
    return "its meta.properties is of a broker: kstore did not make it"


def check_owner(root: str, env: Env, out: Output, *, consequence: str, is_forced: bool) -> None:
    """Refuse to change a root whose topics a cluster has its own account of, unless it is forced; then say what a
    broker does.

    Raises: WrongUseError.
    """
    reason = cluster_of(root, env)
    if reason is None:
        return
    told = f"{shown_path(root)} belongs to a cluster ({reason}): {consequence}"
    if not is_forced:
        raise WrongUseError(f"{told}; to do it all the same: --force")
    out.notice(told)
