"""The reference of the command as a page, from the table of words that its help and its man page have."""

from __future__ import annotations

from collections.abc import Iterable

from kstore.cli.shell.examples import EXAMPLES
from kstore.cli.shell.words import Command, Option, words


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _options(options: Iterable[Option]) -> list[str]:
    lines = ["| option | value | what it does |", "|---|---|---|"]
    for option in options:
        names = ", ".join(_code(name) for name in option.names)
        value = "" if option.metavar is None else _code(option.metavar.strip("<>"))
        lines.append(f"| {names} | {value} | {_cell(option.help)} |")
    return lines


def _section(command: Command) -> list[str]:
    arguments = " ".join(argument.metavar for argument in command.arguments)
    lines = [f"## kstore {command.name} {{ #{command.name} }}", "", command.summary, ""]
    lines += [f"    kstore {command.name} [OPTIONS] {arguments}".rstrip(), ""]
    for argument in command.arguments:
        lines += [f"- {_code(argument.metavar)}: {_cell(argument.help)}"]
    lines += ["", *_options(option for option in command.options if "--help" not in option.names), ""]
    examples = EXAMPLES.get(command.name, ())
    return [*lines, *(["Examples:", "", *(f"    {example}" for example in examples), ""] if examples else [])]


def page() -> str:
    """Return the page as Markdown: each command, in the order of the help."""
    table = words()
    lines = ["# The command, option by option", "", table.summary, ""]
    lines += ["What each command prints, and what its exit status says, is in [The `kstore` command](../cli.md).", ""]
    group = ""
    for command in table.commands.values():
        if command.group != group:
            group = command.group
            lines += ["", f"**{group}**", ""]
        lines.append(f"- [{command.name}](#{command.name}): {command.summary}")
    lines += ["", "Options of the program:", "", *_options(table.options), ""]
    for command in table.commands.values():
        lines += _section(command)
    return "\n".join(lines)
