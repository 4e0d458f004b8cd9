"""The commands and options by name, from words.json: what the help of `kstore` lists and completion offers.

They are read from a file so that neither has to import Typer, or what a command does, which takes several times as
long. `python -m tests.repo.command_words` writes the file from the commands, and a test holds the two equal.
"""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple

WIDTH = 80
# A completion script runs the command with this variable set. Name and values are those of Typer, whose scripts we use.
VARIABLE = "_KSTORE_COMPLETE"


class Option(NamedTuple):
    """An option. metavar: None for a flag, which takes no value. choices: the values there are; empty if any is."""

    names: list[str]
    metavar: str | None
    choices: list[str]
    help: str
    repeats: bool


class Argument(NamedTuple):
    """An argument, by its place."""

    metavar: str
    choices: list[str]
    help: str


class Command(NamedTuple):
    """A command. module: that of kstore.cli.commands which has it."""

    name: str
    group: str
    module: str
    summary: str
    arguments: list[Argument]
    options: list[Option]


class Words(NamedTuple):
    """What the whole program takes. Its commands are in the order of the help; columns: those of a scan."""

    summary: str
    epilog: str
    options: list[Option]
    commands: dict[str, Command]
    columns: list[str]

    def overview(self, *, is_styled: bool = False) -> str:
        """Return the help of the program: its options, and its commands by group. is_styled: headings in bold."""

        def heading(text: str) -> str:
            return f"\x1b[1m{text}\x1b[0m" if is_styled else text

        lines = [f"{heading('Usage:')} kstore [OPTIONS] COMMAND [ARGS]...", "", f"  {self.summary}", ""]
        lines += [heading("Options:")]
        width = max(len(", ".join(option.names)) for option in self.options)
        lines += [f"  {', '.join(option.names).ljust(width)}  {option.help}" for option in self.options]
        width = max(map(len, self.commands))
        group = ""
        for command in self.commands.values():
            if command.group != group:
                group = command.group
                lines += ["", heading(f"{group}:")]
            lines.append(f"  {command.name.ljust(width)}  {command.summary}")
        return "\n".join([*lines, "", *_wrapped(self.epilog), ""])


@cache
def words() -> Words:
    """Return the words, read once."""
    with open(f"{__file__.rpartition('.')[0]}.json", encoding="utf-8") as file:
        read = json.load(file)
    commands = [
        Command(
            each["name"],
            each["group"],
            each["module"],
            each["summary"],
            [Argument(*argument) for argument in each["arguments"]],
            [Option(*option) for option in each["options"]],
        )
        for each in read["commands"]
    ]
    options = [Option(*option) for option in read["options"]]
    of_name = {command.name: command for command in commands}
    return Words(read["summary"], read["epilog"], options, of_name, read["columns"])


def _wrapped(text: str) -> list[str]:
    """Return a text in indented lines; the module textwrap takes longer to import than this to run."""
    lines = ["  "]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > WIDTH:
            lines.append("  ")
        lines[-1] += word if lines[-1].isspace() else f" {word}"
    return lines
