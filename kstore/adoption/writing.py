"""How a plan is written: in such an order that after a crash the root is as before, or can be adopted again."""

from __future__ import annotations

from kstore.adoption.plan import AdoptionPlan
from kstore.adoption.records import BROKER_EPOCH
from kstore.env import Env, join_path, split_path
from kstore.errors import AdoptionError
from kstore.log.files.checkpoints import replace_file
from kstore.log.files.root_files import (
    CleanShutdown,
    read_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)


def write_plan(plan: AdoptionPlan, env: Env) -> None:
    """Write what a plan says. Requires the locks of the roots.

    In this order, each step durable before the next: the directory for what is set aside; ids of topics; the epoch in
    the markers of a clean shutdown; the snapshot, by one rename, from which on the old metadata does not count; the
    old files; meta.properties, without which no broker starts.
    Raises: AdoptionError if the old files cannot be moved, with nothing changed; StorageError.
    """
    if plan.set_aside is not None:
        _make_set_aside(plan.set_aside, plan.directory, env)
    for directory, topic_id in plan.without_id:
        write_partition_metadata(directory.path, topic_id, env)
    _write_epochs(plan, env)
    if plan.snapshot is not None:
        if env.make_directory(plan.directory):
            env.sync_directory(split_path(plan.directory)[0])
        replace_file(join_path(plan.directory, plan.snapshot_name), plan.snapshot, env)
    _clear(plan, env)
    for root, properties in plan.properties.items():
        write_meta_properties(root, properties, env)


def _make_set_aside(path: str, directory: str, env: Env) -> None:
    """Make the directory, on the file system of the metadata, so that a rename moves files to it."""
    env.make_directory(path)
    parent = split_path(path)[0]
    env.sync_directory(parent)
    there, here = env.stat(path), env.stat(split_path(directory)[0])
    if there is not None and here is not None and there.identity[0] != here.identity[0]:
        env.remove_directory(path)
        raise AdoptionError(
            f"{path} is on another file system than {directory}: name a directory on the same one (--set-aside DIR)",
            path=path,
        )


def _write_epochs(plan: AdoptionPlan, env: Env) -> None:
    """Let a broker say that it was shut down cleanly in the epoch of the registration in the snapshot."""
    for root in plan.roots.paths:
        marker = read_clean_shutdown(root, env)
        if marker is not None and marker.broker_epoch != BROKER_EPOCH:
            write_clean_shutdown(root, CleanShutdown(BROKER_EPOCH), env)


def _clear(plan: AdoptionPlan, env: Env) -> None:
    for path in plan.removed:
        env.unlink(path)
    for path in plan.moved:
        env.rename(path, join_path(plan.set_aside or "", split_path(path)[1]))
    changed = {split_path(path)[0] for path in (*plan.removed, *plan.moved)}
    if plan.set_aside is not None:
        changed.add(plan.set_aside)
    for directory in sorted(changed):
        env.sync_directory(directory)
