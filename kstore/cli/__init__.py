"""The `kstore` command, specified in docs/cli.md."""

from __future__ import annotations

import atexit
import gc
import sys

EXIT_FINE = 0
EXIT_DAMAGE = 1
EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

# More objects than a command imports, so that the garbage collector does not look through them again and again.
_YOUNG_OBJECTS = 50_000


def main() -> int:
    """Run the command with the process's arguments and return its exit status."""
    gc.set_threshold(_YOUNG_OBJECTS)
    # What is left at the exit goes with the process: the interpreter does not look through it once more.
    atexit.register(gc.freeze)
    from kstore.cli.shell.quick import answer

    try:
        try:
            status = answer()
        except OSError as error:
            from kstore.cli.app import unwritable

            return unwritable(error)
        if status is not None:
            return status
        from kstore.cli.app import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("typer", "rich", "click"):
            raise
        sys.stderr.write(f"kstore: the command needs the package {error.name}: pip install 'kstore[cli]'\n")
        return EXIT_WRONG_USE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return run()
