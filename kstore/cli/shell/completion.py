"""Completion: scripts for shells, and the words that complete an option's value. Typer completes names of options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

# Typer's protocol: a completion script runs the command with this variable set.
VARIABLE = "_KSTORE_COMPLETE"
# The columns of kstore.arrow.columns, which takes longer to import than a user waits for a completion.
COLUMNS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "magic", "codec",
    "leaderEpoch", "producerId", "producerEpoch", "sequence", "isTransactional", "isControl", "position",
)  # fmt: skip
# Completion reads no more of __consumer_offsets than this.
MOST_OFFSETS_BYTES = 1 << 20


def prepare() -> None:
    """Let the process answer a completion script, if one started it."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init

        completion_init()


def script_of(shell: str) -> str:
    """Return the completion script for a shell: bash, zsh or fish."""
    from typer import completion

    script: str = vars(completion)["get_completion_script"](prog_name="kstore", complete_var=VARIABLE, shell=shell)
    return script


def install(shell: str) -> Path:
    """Install the completion script for a shell of this user, and return its path.  Raises: OSError."""
    from typer import completion

    _, path = vars(completion)["install"](shell=shell, prog_name="kstore", complete_var=VARIABLE)
    return Path(path)


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
    before, comma, word = incomplete.rpartition(",")
    given = set(before.split(","))
    return [f"{before}{comma}{name}" for name in COLUMNS if name.startswith(word) and name not in given]


def groups_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups of DIR that begin with what was typed; none if to find them would take long."""
    from kstore.consumer import read_groups
    from kstore.errors import KStoreError

    directory = _directory(ctx)
    try:
        if not 0 < _offsets_size(directory) <= MOST_OFFSETS_BYTES:
            return []
        names = [group.group_id for group in read_groups(directory)]
    except (KStoreError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def _offsets_size(directory: str) -> int:
    size = 0
    for topic, number in _partitions(directory):
        if topic == "__consumer_offsets":
            with os.scandir(f"{directory}/{topic}-{number}") as entries:
                size += sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
    return size


def _directory(ctx: typer.Context) -> str:
    """Return DIR, an empty text if it was not given yet. Typer leaves it in `args` before an option without a value."""
    given = ctx.params.get("directory") or ctx.params.get("path") or next(iter(ctx.args), "")
    return os.path.expanduser(str(given))


def _partitions(directory: str) -> Iterator[tuple[str, int]]:
    try:
        names = os.listdir(directory) if directory else []
    except OSError:
        return
    for name in names:
        topic, _, number = name.rpartition("-")
        if topic and number.isascii() and number.isdigit():
            yield topic, int(number)
