"""Standard output in blocks, one-line notices on standard error, and tables and a progress bar for terminals.

Rich is imported only if the stream in question is a terminal. `kstore --help` imports this module, so what needs the
core or `kstore.log` is in render.py.
"""

from __future__ import annotations

import errno
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TextIO

from kstore.cli import EXIT_DAMAGE, EXIT_WRONG_USE
from kstore.cli.arguments import WrongUseError
from kstore.errors import KStoreError, LogNotFoundError, OffsetError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console
    from rich.text import Text

BLOCK_CHARACTERS = 1 << 18
WRONG_PATH_ERRNOS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


class Part(NamedTuple):
    """A piece of a line and its Rich style."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """Heading of a table column. Number columns are right-aligned."""

    heading: str
    is_number: bool = False


LOG_COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("log start", is_number=True),
    Column("log end", is_number=True),
)


class Output:
    """The standard streams as the commands use them. Not thread-safe."""

    def __init__(self, *, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self._stdout = sys.stdout if stdout is None else stdout
        self._stderr = sys.stderr if stderr is None else stderr
        self._pending: list[str] = []
        self._pending_characters = 0
        self._console: Console | None = None
        self.is_terminal = self._stdout is not None and self._stdout.isatty()

    def line(self, text: str) -> None:
        """Write one line. It is buffered unless standard output is a terminal."""
        self._pending.append(text)
        self._pending.append("\n")
        self._pending_characters += len(text)
        if self.is_terminal or self._pending_characters >= BLOCK_CHARACTERS:
            self.flush()

    def piece(self, text: str) -> None:
        """Write a piece of a line, buffered. A call of line() must end the line."""
        self._pending.append(text)
        self._pending_characters += len(text)
        if self._pending_characters >= BLOCK_CHARACTERS:
            self.flush()

    def styled(self, parts: Sequence[Part]) -> None:
        """Write one line, in colour if standard output is a terminal."""
        if not self.is_terminal:
            self.line("".join(part.text for part in parts))
            return
        from rich.text import Text

        self._rich().print(Text.assemble(*((part.text, part.style) for part in parts)), soft_wrap=True)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Write a table of aligned columns that are never truncated. On a terminal its headings are bold."""
        lines = [[column.heading for column in columns], *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for number, line in enumerate(lines):
            cells = [
                cell.rjust(width) if column.is_number else cell.ljust(width)
                for cell, width, column in zip(line, widths, columns, strict=True)
            ]
            self.styled([Part("  ".join(cells).rstrip(), "" if number else "bold")])

    def notice(self, message: object) -> None:
        """Write one line to standard error, after flushing standard output to keep the order."""
        self.flush()
        if self._stderr is None:
            return
        text = " ".join(str(message).splitlines())
        self._stderr.write(f"kstore: {printable(text)}\n")
        self._stderr.flush()

    def failure(self, error: KStoreError | WrongUseError) -> int:
        """Report an error as one line and return its exit status."""
        self.notice(error)
        return exit_status(error)

    @contextmanager
    def progress(self, words: Callable[[], str], *, total_bytes: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar if standard error is a terminal. Yields a function to call with each count of bytes done.

        Args: words: returns the text next to the bar; called from another thread.
        """
        if self._stderr is None or not self._stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, RenderableColumn, TimeElapsedColumn

        columns = (RenderableColumn(_Words(words)), BarColumn(), DownloadColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=self._stderr), transient=True) as bar:
            task = bar.add_task("", total=total_bytes)
            yield lambda done_bytes: bar.advance(task, done_bytes)

    def flush(self) -> None:
        """Write all buffered output to the operating system."""
        pending, self._pending, self._pending_characters = self._pending, [], 0
        if not pending or self._stdout is None:
            return
        block = "".join(pending).encode("utf-8", "replace")
        self._stdout.flush()
        self._stdout.buffer.write(block)
        self._stdout.buffer.flush()

    def abandon(self) -> None:
        """Drop buffered output and close standard output, after a write to it failed."""
        self._pending.clear()
        try:
            self._stdout.close()
        except BrokenPipeError:
            return

    def _rich(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self._stdout, highlight=False)
        self.flush()
        return self._console


class _Words:
    """Text that Rich requests again each time it draws the bar."""

    def __init__(self, words: Callable[[], str]) -> None:
        self._words = words

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(printable(self._words()))


def exit_status(error: KStoreError | WrongUseError) -> int:
    """Return 2 for a usage error (no such log, no permission, offset out of range), else 1."""
    if isinstance(error, WrongUseError | LogNotFoundError | OffsetError):
        return EXIT_WRONG_USE
    if isinstance(error, StorageError) and error.errno in WRONG_PATH_ERRNOS:
        return EXIT_WRONG_USE
    return EXIT_DAMAGE


def printable(text: str) -> str:
    """Return the text with backslash escapes for non-printable characters, which could control a terminal."""
    return text if text.isprintable() else text.translate(_ESCAPES)


class _Escapes(dict[int, str]):
    """A table for str.translate that escapes non-printable code points. Entries are added when first used."""

    def __missing__(self, code_point: int) -> str:
        character = chr(code_point)
        if character.isprintable():
            shown = character
        elif "\udc80" <= character <= "\udcff":
            shown = f"\\x{code_point - 0xDC00:02x}"
        else:
            shown = character.encode("unicode_escape").decode("ascii")
        self[code_point] = shown
        return shown


_ESCAPES = _Escapes()
