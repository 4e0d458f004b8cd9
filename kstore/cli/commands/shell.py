"""Commands for the shell: completion."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli import EXIT_FINE
from kstore.cli.app import command
from kstore.cli.output import Output


class Shell(str, Enum):
    """The shells that there is completion for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command("completion")
def complete_words(
    out: Output,
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
    install: Annotated[
        bool, typer.Option("--install", help="Install it for this user, in place of printing it.")
    ] = False,
) -> int:
    """Print the completion script of a shell, or install it."""
    from kstore.cli.shell import completion

    if install:
        out.line(f"installed {completion.install(shell.value)}; new shells complete the words of kstore")
    else:
        out.line(completion.script_of(shell.value))
    return EXIT_FINE
