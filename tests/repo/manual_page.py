"""The man page, from the table of commands and their examples: written by `python -m tests.repo.command_words`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kstore.cli.shell.examples import EXAMPLES
from kstore.cli.shell.words import Command, Option, Words

PLACE = Path(__file__).parents[2] / "docs" / "kstore.1"
DESCRIPTION = (
    "The files of an Apache Kafka broker are read, verified, repaired and written without the broker. DIR is a "
    "partition directory, or a log.dirs root with several of them."
)


def escaped(text: str) -> str:
    """Return a text as roff shows it, also at the beginning of a line."""
    shown = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha")
    )
    shown = shown.replace("~", "\\(ti")
    return f"\\&{shown}" if shown.startswith(".") else shown


def options_of(options: Iterable[Option]) -> list[str]:
    """Return the lines of a list of options."""
    lines = []
    for option in options:
        names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in option.names)
        value = "" if option.metavar is None else f" \\fI{escaped(option.metavar.strip('<>'))}\\fR"
        lines += [".TP", names + value, escaped(option.help)]
    return lines


def section_of(command: Command) -> list[str]:
    """Return the lines on a command."""
    arguments = " ".join(f"\\fI{escaped(each.metavar)}\\fR" for each in command.arguments)
    lines = [f'.SS "kstore {escaped(command.name)}"', f"\\fBkstore {escaped(command.name)}\\fR [OPTIONS] {arguments}"]
    lines += [".PP", escaped(command.summary)]
    for argument in command.arguments:
        lines += [".TP", f"\\fI{escaped(argument.metavar)}\\fR", escaped(argument.help)]
    lines += options_of(option for option in command.options if "--help" not in option.names)
    examples = EXAMPLES.get(command.name, ())
    return [*lines, ".PP", "Examples:", ".PP", ".EX", *map(escaped, examples), ".EE"]


def page_of(words: Words) -> str:
    """Return the page in roff, with the macros of man(7)."""
    lines = [
        '.TH KSTORE 1 "" kstore "User Commands"',
        ".SH NAME",
        "kstore \\- " + escaped(words.summary[0].lower() + words.summary[1:].rstrip(".")),
        ".SH SYNOPSIS",
        "\\fBkstore\\fR [OPTIONS] \\fICOMMAND\\fR [ARGS]...",
        ".SH DESCRIPTION",
        escaped(DESCRIPTION),
        ".SH OPTIONS",
        *options_of(words.options),
        ".SH COMMANDS",
        *(line for command in words.commands.values() for line in section_of(command)),
        '.SH "EXIT STATUS"',
        escaped(words.epilog.partition(": ")[2]),
        ".SH ENVIRONMENT",
        ".TP",
        "\\fBNO_COLOR\\fR",
        "No colours on a terminal.",
    ]
    return "\n".join(lines) + "\n"
