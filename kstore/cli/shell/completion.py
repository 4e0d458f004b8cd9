"""Completion: scripts for shells, and the words that complete an option's value. Typer completes names of options."""

from __future__ import annotations

import os

import typer

from kstore.errors import KStoreError
from kstore.types import GROUP_OFFSETS_TOPIC

# Typer's protocol: a completion script runs the command with this variable set.
VARIABLE = "_KSTORE_COMPLETE"
# Completion reads no more of __consumer_offsets than this.
MOST_OFFSETS_BYTES = 1 << 20


def prepare() -> None:
    """Let the process answer a completion script, if one started it."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def script_of(shell: str) -> str:
    """Return the completion script for a shell: bash, zsh or fish."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script: str = get_completion_script(prog_name="kstore", complete_var=VARIABLE, shell=shell)
    return script


def install(shell: str) -> str:
    """Install the completion script for a shell of this user, and return its path.  Raises: OSError."""
    from typer.completion import install as installed  # type: ignore[attr-defined]

    _, path = installed(shell=shell, prog_name="kstore", complete_var=VARIABLE)
    return str(path)


def topics_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of DIR that begin with what was typed: by the names of a local directory, no file is read."""
    return sorted({topic for topic, _ in _partitions(_directory(ctx)) if topic.startswith(incomplete)})


def partitions_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the partition numbers in DIR, of the topics that were given, that begin with what was typed."""
    topics = ctx.params.get("topic") or ()
    numbers = {number for topic, number in _partitions(_directory(ctx)) if not topics or topic in topics}
    return [str(number) for number in sorted(numbers) if str(number).startswith(incomplete)]


def columns_of(incomplete: str) -> list[str]:
    """Return the columns of a scan; after a comma, those that can follow."""
    from kstore.arrow.columns import TYPES

    before, comma, word = incomplete.rpartition(",")
    given = set(before.split(","))
    return [f"{before}{comma}{name}" for name in TYPES if name.startswith(word) and name not in given]


def groups_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups of DIR that begin with what was typed; none if to find them would take long."""
    from kstore.consumer import read_groups

    directory = _directory(ctx)
    try:
        if not 0 < _offsets_size(directory) <= MOST_OFFSETS_BYTES:
            return []
        names = [group.group_id for group in read_groups(directory)]
    except KStoreError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _offsets_size(directory: str) -> int:
    from kstore.env import join_path, locate

    env, root = locate(directory)
    places = [join_path(root, f"{topic}-{n}") for topic, n in _partitions(directory) if topic == GROUP_OFFSETS_TOPIC]
    files = [join_path(place, name) for place in places for name in env.listdir(place) if name.endswith(".log")]
    return sum(status.size_in_bytes for status in map(env.stat, files) if status is not None)


def _directory(ctx: typer.Context) -> str:
    """Return DIR, the first of several, an empty text if it was not given yet. Typer leaves it in `args` before an
    option without a value.
    """
    named = ctx.params.get("directory") or ctx.params.get("path") or next(iter(ctx.args), "")
    given = str(named[0] if isinstance(named, list | tuple) else named)
    return f"{os.environ.get('HOME', '')}{given[1:]}" if given.startswith("~/") else given


def _partitions(directory: str) -> list[tuple[str, int]]:
    """Return what is named like a partition in a local directory."""
    from kstore.env import is_local, locate
    from kstore.log.files.names import parse_partition_directory_name

    if not directory or not is_local(directory):
        return []
    try:
        env, root = locate(directory)
        return [found for found in map(parse_partition_directory_name, env.listdir(root)) if found is not None]
    except KStoreError:
        return []
