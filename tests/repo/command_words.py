"""The commands and options as kstore/cli/shell/words.json and the man page have them.

`python -m tests.repo.command_words` (make words) writes both; `tests/cli/test_help.py` holds them against the commands.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import typer.main

from kstore.arrow.columns import TYPES
from kstore.cli import commands
from kstore.cli.shell.words import words
from tests.repo import manual_page

PLACE = Path(__file__).parents[2] / "kstore" / "cli" / "shell" / "words.json"


def choices_of(parameter: Any) -> list[str]:
    """Return the values of an enumeration; a metavar such as bash|zsh hides none."""
    return list(getattr(parameter.type, "choices", ()))


def option_of(option: Any, context: Any) -> list[Any]:
    """Return an option in the order of kstore.cli.shell.words.Option."""
    metavar = None if option.is_flag else option.make_metavar(context)
    # Those of --help are a set, in another order in each process.
    names = sorted([*option.opts, *option.secondary_opts], key=len)
    return [names, metavar, choices_of(option), option.help or "", option.multiple]


def words_of(application: Any) -> dict[str, Any]:
    """Return the table of an application."""
    context = application.make_context("kstore", [], resilient_parsing=True)
    found = []
    for name in application.list_commands(context):
        command = application.commands[name]
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        parameters = command.get_params(inner)
        found.append(
            {
                "name": name,
                "group": command.rich_help_panel,
                "module": command.callback.__module__.rpartition(".")[2],
                "summary": command.help.partition("\n")[0],
                "arguments": [
                    [each.make_metavar(inner), choices_of(each), each.help or ""]
                    for each in parameters
                    if each.param_type_name == "argument"
                ],
                "options": [option_of(each, inner) for each in parameters if each.param_type_name == "option"],
            }
        )
    return {
        "summary": application.help,
        "epilog": application.epilog,
        "options": [option_of(each, context) for each in application.get_params(context)],
        "columns": list(TYPES),
        "commands": found,
    }


def text_of(words: dict[str, Any]) -> str:
    """Return the table as the file has it: one command or option a line, for a diff that can be read."""
    return re.sub(r' ?(?=\{"name"|\[\["-)', "\n", json.dumps(words, ensure_ascii=False)) + "\n"


def current() -> str:
    """Return the text that the commands give."""
    return text_of(words_of(typer.main.get_command(commands.whole_app())))


if __name__ == "__main__":
    PLACE.write_text(current())
    manual_page.PLACE.write_text(manual_page.page_of(words()))
