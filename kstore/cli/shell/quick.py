"""What is answered without Typer and without the library: the help of the program, and the words of completion."""

from __future__ import annotations

import os
import sys

from kstore.cli.shell.words import VARIABLE, words


def answer() -> int | None:
    """Answer, and return the exit status; None if a command has to run.  Raises: OSError from standard output."""
    if sys.stdout is None:
        return None
    protocol = os.environ.get(VARIABLE, "")
    if protocol.startswith("complete_"):
        from kstore.cli.shell.completion import complete

        return complete(protocol.removeprefix("complete_"), os.environ)
    if sys.argv[1:] in (["--help"], ["-h"]):
        sys.stdout.write(words().overview(is_styled=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
        sys.stdout.flush()
        return 0
    return None
