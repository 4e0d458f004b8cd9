"""The commands: their options. A module is imported when one of its commands runs, and what it does later."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kstore.cli.app import app
from kstore.cli.shell.words import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

MODULES = ("reading", "describing", "coordinating", "checking", "cleaning", "moving", "operating", "serving", "shell")


def load(arguments: Sequence[str]) -> None:
    """Register the command that the arguments name, or all if they begin with no command."""
    command = words().commands.get(arguments[0]) if arguments else None
    for module in MODULES if command is None else (command.module,):
        import_module(f"kstore.cli.commands.{module}")


def whole_app() -> typer.Typer:
    """Return the application with all commands."""
    load(())
    return app
