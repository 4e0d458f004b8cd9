"""Completion: scripts for shells, and the words that complete a line, by the protocol of Typer's scripts.

The words are those of words.json, and what a local DIR has by the names in it. Only the names of groups are read from
files, and need the library.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli.shell.words import VARIABLE, Command, Option, words
from kstore.types import GROUP_OFFSETS_TOPIC, parse_partition_directory_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Completion reads no more of __consumer_offsets than this.
MOST_OFFSETS_BYTES = 1 << 20


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


class Word(NamedTuple):
    """A word that is offered, with its help."""

    text: str
    help: str = ""


def complete(shell: str, environment: Mapping[str, str]) -> int:
    """Print what can follow on the line that a script of a shell passes, and return the exit status."""
    if shell == "bash":
        typed = _split(environment.get("COMP_WORDS", ""))
        at = int(environment.get("COMP_CWORD") or 0)
        before, incomplete = typed[1:at], next(iter(typed[at:]), "")
    else:
        line = environment.get("_TYPER_COMPLETE_ARGS", "")
        _, *before = _split(line) or [""]
        incomplete = before.pop() if before and not line.endswith(" ") else ""
    found = words_after(before, incomplete)
    if shell == "fish" and environment.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 0 if found else 1
    if shell == "zsh":
        shown = "\n".join(f'"{_zsh(word.text)}"' + (f':"{_zsh(word.help)}"' if word.help else "") for word in found)
        print(f"_arguments '*: :(({shown}))'" if found else "_files")
    elif found:
        with_help = shell == "fish"
        print("\n".join(f"{word.text}\t{word.help}" if with_help and word.help else word.text for word in found))
    sys.stdout.flush()
    return 0


@dataclass
class Line:
    """What stands on a line before the word to complete."""

    command: Command | None = None
    arguments: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    open_option: Option | None = None

    @property
    def options(self) -> list[Option]:
        return words().options if self.command is None else self.command.options

    def option(self, name: str) -> Option | None:
        """Return the option of a name."""
        return next((option for option in self.options if name in option.names), None)

    def add(self, word: str) -> None:
        """Add the next word."""
        if self.open_option is not None:
            self.values.setdefault(self.open_option.names[0], []).append(word)
            self.open_option = None
        elif word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            option = self.option(name)
            if option is None:
                return
            self.given.update(() if option.repeats else option.names)
            if equals:
                self.values.setdefault(option.names[0], []).append(value)
            elif option.metavar is not None:
                self.open_option = option
        elif self.command is None:
            self.command = words().commands.get(word) or Command(word, "", "", "", [], [])
        else:
            self.arguments.append(word)


def words_after(before: Iterable[str], incomplete: str) -> list[Word]:
    """Return the words that can follow those of a line, without the program's name."""
    line = Line()
    for word in before:
        line.add(word)
    if line.open_option is not None:
        return _values(line, line.open_option, incomplete)
    if incomplete.startswith("-"):
        name, equals, value = incomplete.partition("=")
        option = line.option(name) if equals else None
        if option is not None:
            return _values(line, option, value)
        return [
            Word(name, option.help)
            for option in line.options
            for name in option.names
            if name.startswith(incomplete) and name not in line.given
        ]
    if line.command is None:
        commands = words().commands.values()
        return [Word(each.name, each.summary) for each in commands if each.name.startswith(incomplete)]
    arguments = line.command.arguments[len(line.arguments) :][:1]
    return [Word(choice) for argument in arguments for choice in argument.choices if choice.startswith(incomplete)]


def _values(line: Line, option: Option, incomplete: str) -> list[Word]:
    """Return the values of an option that begin with what was typed."""
    found = next((VALUES[name] for name in option.names if name in VALUES), None)
    offered = option.choices if found is None else found(line, incomplete)
    return [Word(value) for value in offered if value.startswith(incomplete)]


def topics_of(line: Line, incomplete: str) -> list[str]:
    """Return the topics of DIR, by the names in a local directory; no file is read."""
    return sorted({topic for topic, _ in _partitions(_directory(line), incomplete)})


def partitions_of(line: Line, _: str) -> list[str]:
    """Return the partition numbers in DIR, of the topics that were given."""
    topics = line.values.get("--topic", ())
    numbers = {number for topic, number in _partitions(_directory(line)) if not topics or topic in topics}
    return [str(number) for number in sorted(numbers)]


def columns_of(_: Line, incomplete: str) -> list[str]:
    """Return the columns of a scan; after a comma, those that can follow."""
    before, comma, _word = incomplete.rpartition(",")
    given = set(before.split(","))
    return [f"{before}{comma}{name}" for name in words().columns if name not in given]


def groups_of(line: Line, _: str) -> list[str]:
    """Return the groups of DIR; none if to find them would take long."""
    directory = _directory(line)
    if not 0 < _offsets_size(directory) <= MOST_OFFSETS_BYTES:
        return []
    from kstore.consumer import read_groups
    from kstore.errors import KStoreError

    try:
        return [group.group_id for group in read_groups(directory)]
    except KStoreError:
        return []


# What completes the value of an option, by its name; an option of one name means the same in each command.
VALUES: dict[str, Callable[[Line, str], list[str]]] = {
    "--topic": topics_of,
    "--partition": partitions_of,
    "--columns": columns_of,
    "--group": groups_of,
}


def _offsets_size(directory: str) -> int:
    places = [f"{topic}-{number}" for topic, number in _partitions(directory) if topic == GROUP_OFFSETS_TOPIC]
    try:
        entries = [entry for place in places for entry in os.scandir(os.path.join(directory, place))]
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
    except OSError:
        return 0


def _directory(line: Line) -> str:
    """Return DIR, the first of several, an empty text if it was not given yet."""
    return os.path.expanduser(next(iter(line.arguments), ""))


def _partitions(directory: str, prefix: str = "") -> list[tuple[str, int]]:
    """Return what is named like a partition in a local directory and begins with a prefix."""
    try:
        names = [name for name in os.listdir(directory) if name.startswith(prefix)] if directory else []
    except OSError:
        return []
    return [found for found in map(parse_partition_directory_name, names) if found is not None]


def _split(line: str) -> list[str]:
    """Return the words of a line, of which the last may lack its closing quote."""
    from shlex import shlex

    lexer = shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[str] = []
    try:
        found.extend(lexer)
    except ValueError:  # how shlex says that a quote or an escape is open
        found.append(lexer.token)
    return found


def _zsh(text: str) -> str:
    """Return a text as it stands in the specification of zsh's _arguments."""
    for character, escaped in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\\\:")):
        text = text.replace(character, escaped)
    return text
