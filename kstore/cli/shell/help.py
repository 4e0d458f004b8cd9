"""Help: commands in groups, and examples at the end of a command's help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer._click.exceptions import NoSuchOption
from typer.core import TyperCommand, TyperGroup

from kstore.cli.shell.examples import EXAMPLES
from kstore.cli.shell.words import words

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

# The group of a command, by the module of kstore.cli.commands that has it; the groups stand in this order.
GROUPS = {
    "reading": "Read",
    "describing": "Describe",
    "coordinating": "Groups and transactions",
    "checking": "Check and repair",
    "operating": "Operate",
    "cleaning": "Clean",
    "moving": "Move",
    "serving": "Serve",
    "shell": "Shell",
}
# What Kafka's tools, or a shell's, call a command of kstore, with or without `kafka-` and `.sh`.
NAMES_OF_TOOLS = {
    "console-consumer": "cat DIR --topic TOPIC",
    "consumer-groups": "groups DIR",
    "dump-log": "dump FILE",
    "get-offsets": "offsets DIR --time TIME",
    "head": "cat DIR --limit 10",
    "kcat": "cat DIR",
    "log-dirs": "ls DIR",
    "metadata-shell": "metadata DIR",
    "reset-offsets": "groups DIR --group GROUP --reset",
    "tail": "cat DIR --from -10",
}
# What other tools call an option of `kstore cat`.
NAMES_OF_OPTIONS = {"--last": "--from -N", "--tail": "--from -N", "-c": "--limit N", "-n": "--limit N, or --from -N"}


def group_of(module: str) -> str:
    """Return the group in the help of the commands of a module; one that has no name of its own is named after it."""
    name = module.rpartition(".")[2]
    return GROUPS.get(name, name.capitalize())


class GroupedCommands(TyperGroup):
    """The application: its help is that which `kstore --help` has without Typer."""

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002  # Typer passes it
        """Return the names of the commands: by group, in the order of GROUPS; in a group as they were registered."""
        order = list(GROUPS.values())

        def place(name: str) -> int:
            group = self._group(name)
            return order.index(group) if group in order else len(order)

        return sorted(self.commands, key=place)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Return the command that the arguments name; a name of Kafka's tools is refused with kstore's own."""
        name = args[0] if args else ""
        tool = name.removeprefix("kafka-").removesuffix(".sh")
        own = NAMES_OF_TOOLS.get(tool, f"{tool} DIR" if tool in self.commands else None)
        if name not in self.commands and own is not None:
            ctx.fail(f"No such command {name!r}. It is: kstore {own}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002  # Typer passes it
        """Write the help as it is written without Typer."""
        formatter.write(words().overview())

    def _group(self, name: str) -> str:
        command = self.commands[name]
        return (command.rich_help_panel if isinstance(command, TyperCommand) else None) or ""


class CommandWithExamples(TyperCommand):
    """A command whose help ends with its examples."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments; an option of `cat` that has another name in other tools is refused with kstore's own."""
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption as error:
            own = NAMES_OF_OPTIONS.get(error.option_name) if self.name == "cat" else None
            if own is not None:
                ctx.fail(f"No such option: {error.option_name}. It is: {own}")
            raise

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help; on a terminal Typer has printed all of it but the examples."""
        super().format_help(ctx, formatter)
        examples = EXAMPLES.get(self.name or "", ())
        if examples:
            formatter.write("\nExamples:\n" + "".join(f"  {example}\n" for example in examples))
