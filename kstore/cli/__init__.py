"""The `kstore` command, specified in docs/cli.md."""

from __future__ import annotations

import sys

EXIT_FINE = 0
EXIT_DAMAGE = 1
EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main() -> int:
    """Run the command with the process's arguments and return its exit status."""
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
