"""The Typer application: how a command is registered, runs and ends. The commands are in kstore.cli.commands."""

from __future__ import annotations

import inspect
import sys
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Concatenate, ParamSpec

import typer

from kstore.cli import EXIT_BROKEN_PIPE, EXIT_DAMAGE, EXIT_INTERRUPTED, EXIT_WRONG_USE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Output
from kstore.cli.shell.help import CommandWithExamples, GroupedCommands, group_of
from kstore.errors import KStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

# What commands need besides the extra `cli`, and which extra has it.
EXTRAS = {"pyarrow": "arrow", "numpy": "arrow"}
Arguments = ParamSpec("Arguments")
IS_TERMINAL = sys.stdout is not None and sys.stdout.isatty()

app = typer.Typer(
    name="kstore",
    cls=GroupedCommands,
    help="Read and write the files of an Apache Kafka broker, without the broker.",
    no_args_is_help=True,
    add_completion=False,  # two options in each help; `kstore completion` prints and installs the scripts
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if IS_TERMINAL else None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 success, 1 damage, a disk error or an unsupported format, 2 wrong use.",
)


def run() -> int:
    """Run the application with the arguments of the process and return its exit status."""
    from kstore.cli import commands

    commands.load(sys.argv[1:])
    try:
        app(prog_name="kstore")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except OSError as error:  # Typer itself writes the help and the version, outside of execute()
        return unwritable(error)
    return 0


def unwritable(error: OSError, out: Output | None = None) -> int:
    """Report that standard output can't be written and return the exit status."""
    out = Output() if out is None else out
    out.abandon()
    out.notice(f"cannot write standard output: {error.strerror or error}")
    return EXIT_WRONG_USE


def execute(command: Callable[[Output], int]) -> None:
    """Call the command and exit with its status. Each failure is reported as one line on standard error."""
    out = Output()
    try:
        try:
            with out.log_messages():
                status = command(out)
            out.flush()
        except (KStoreError, WrongUseError) as error:
            status = out.failure(error)
        except OSError as error:
            if not out.can_write:
                raise
            out.notice(error)
            status = EXIT_DAMAGE
        except ModuleNotFoundError as error:
            out.notice(missing_package(error))
            status = EXIT_WRONG_USE
    except BrokenPipeError:
        out.abandon()
        status = EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except OSError as error:
        status = unwritable(error, out)
    raise typer.Exit(status)


def missing_package(error: ModuleNotFoundError) -> str:
    """Return which package is missing, and which extra has it.  Raises: the error itself if no extra has."""
    if error.name is None:  # raised by kstore, which names the extra
        return str(error)
    package = error.name.partition(".")[0]
    if package not in EXTRAS:
        raise error
    return f"this needs the package {package}: pip install 'kstore[{EXTRAS[package]}]'"


def command(name: str) -> Callable[[Callable[Concatenate[Output, Arguments], int]], Callable[Arguments, None]]:
    """Return a decorator that registers a function as the command `name`.

    The function takes the Output and the command's options, and returns the exit status.
    """

    def register(function: Callable[Concatenate[Output, Arguments], int]) -> Callable[Arguments, None]:
        @wraps(function)
        def run_command(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
            execute(lambda out: function(out, *args, **kwargs))

        signature = inspect.signature(function, eval_str=True)
        _, *options = signature.parameters.values()
        vars(run_command)["__signature__"] = signature.replace(parameters=options)
        panel = group_of(function.__module__)
        return app.command(name, cls=CommandWithExamples, rich_help_panel=panel)(run_command)

    return register


def show_version(is_wanted: bool) -> None:
    """Print the version and exit, if is_wanted."""
    if is_wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"kstore {version('kstore')}")
        except PackageNotFoundError:
            typer.echo("kstore (not installed)")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read and write the files of an Apache Kafka broker, without the broker."""
