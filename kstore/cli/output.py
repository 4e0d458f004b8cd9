"""Standard output in blocks, one-line notices and log messages on standard error, tables, and a bar for terminals.

Rich is imported only if the stream in question is a terminal. `kstore --help` imports this module, so what needs the
core or `kstore.log` is in render.py.
"""

from __future__ import annotations

import errno
import logging
import re
import sys
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, TextIO

from kstore.cli import EXIT_DAMAGE, EXIT_FINE, EXIT_WRONG_USE
from kstore.cli.arguments import WrongUseError, shell_word
from kstore.errors import (
    AdoptionError,
    CorruptLogError,
    ExportOptionsError,
    KStoreError,
    LogNotFoundError,
    LogReplacedError,
    OffsetError,
    ReplayError,
    RestoreError,
    SchemaNotFoundError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import rich.progress
    from rich.console import Console, RenderableType

    from kstore.log.files.names import PartitionDirectory

BLOCK_CHARACTERS = 1 << 18
LIBRARY_LOGGER = "kstore"
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


# What a cell may be divided into.
_PIECES = re.compile(r"[^ ,]*(?:[ ,]+|$)")
_LEAST_WRAPPED = 24
# How wide a column of names stays while others can be left out, and at the least.
_LEAST_NAME, _LEAST_PIECE = 32, 8
_BAR_WIDTH = 20
# The longest size and time beside a bar, and the spaces between.
_BESIDE_A_BAR = 27


class Part(NamedTuple):
    """A piece of a line and its Rich style."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """Heading of a table column. Number columns are right-aligned. rank: 0 for a column that is always shown; the
    others are left out on a terminal that is too narrow, the highest rank first. wraps: whether cells may have several
    lines there.
    """

    heading: str
    is_number: bool = False
    rank: int = 0
    wraps: bool = False


LOG_COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("log start", is_number=True),
    Column("log end", is_number=True),
)


@dataclass
class Progress:
    """How far a command is: the command changes it as it works, the thread of the progress bar reads it."""

    label: str = ""
    done_bytes: int = 0

    def update(self) -> None:
        """Bring the attributes up to date; the bar calls it before it is drawn."""


class Output:
    """The standard streams as the commands use them. Not thread-safe.

    Attributes: hidden_loggers: names of the loggers whose messages the command itself reports, LIBRARY_LOGGER for all;
        can_write: whether no write to standard output has failed; shown_paths: what is shown in place of some paths in
        messages.
    """

    def __init__(self, *, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self._stdout = sys.stdout if stdout is None else stdout
        self._stderr = sys.stderr if stderr is None else stderr
        self._pending: list[str] = []
        self._blocks: list[bytes] = []
        self._pending_characters = 0
        self._console: Console | None = None
        self._bar: rich.progress.Progress | None = None
        self._replaces = False
        self.hidden_loggers: set[str] = set()
        self.shown_paths: dict[str, str] = {}
        self.can_write = True
        self.is_terminal = self._stdout is not None and self._stdout.isatty()

    def line(self, text: str) -> None:
        """Write one line. It is buffered unless standard output is a terminal."""
        self._begin_block()
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

    def data(self, data: bytes) -> None:
        """Write bytes as they are, buffered as a line is."""
        self._encode_pending()
        self._blocks.append(data)
        self._pending_characters += len(data)
        if self.is_terminal or self._pending_characters >= BLOCK_CHARACTERS:
            self.flush()

    def styled(self, parts: Sequence[Part]) -> None:
        """Write one line, in colour if standard output is a terminal."""
        if not self.is_terminal:
            self.line("".join(part.text for part in parts))
            return
        from rich.text import Text

        self._begin_block()
        console = self._rich()
        with self._writing():
            console.print(Text.assemble(*((part.text, part.style) for part in parts)), soft_wrap=True)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Write a table of aligned columns that are never truncated. On a terminal its headings are bold, cells of
        columns that wrap have several lines if need be, and a line names the columns that were left out for its width.
        """
        lines = [[column.heading for column in columns], *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        if self.is_terminal:
            shown, widths = _fitting(columns, lines, widths, room=self._rich().width)
        else:
            shown = list(range(len(columns)))
        left_out = [column.heading for i, column in enumerate(columns) if i not in shown]
        columns, widths = [columns[i] for i in shown], [widths[i] for i in shown]
        for number, line in enumerate(lines):
            wrapped = [_wrapped(line[i], width) for i, width in zip(shown, widths, strict=True)]
            for pieces in zip_longest(*wrapped, fillvalue=""):
                cells = [
                    piece.rjust(width) if column.is_number else piece.ljust(width)
                    for piece, width, column in zip(pieces, widths, columns, strict=True)
                ]
                self.styled([Part("  ".join(cells).rstrip(), "" if number else "bold")])
        if left_out:
            self.styled([Part(f"no room for: {', '.join(left_out)}", "dim")])

    def next_block(self) -> None:
        """Let the next line begin a block: on a terminal in the place of all before it, else after an empty line."""
        self._replaces = True

    def _begin_block(self) -> None:
        if not self._replaces:
            return
        self._replaces = False
        if not self.is_terminal:
            self.line("")
            return
        with self._writing():
            self._rich().clear()

    def notice(self, message: object) -> None:
        """Write one line to standard error, after flushing standard output to keep the order."""
        self.flush()
        self._tell(str(message))

    def failure(self, error: KStoreError | WrongUseError) -> int:
        """Report an error as one line, with what to do about a refused log, and return its exit status."""
        self.notice(f"{error}; {next_step(error.path)}" if isinstance(error, CorruptLogError) else error)
        return exit_status(error)

    def partition_failure(self, error: KStoreError | WrongUseError, partition: PartitionDirectory) -> int:
        """Report why one of several partitions was not read, and return the exit status: 0 if it was deleted after it
        was listed.
        """
        if isinstance(error, StorageError | LogReplacedError) and partition.was_deleted():
            self.notice(f"{partition.path} was deleted before it was read")
            return EXIT_FINE
        return self.failure(error)

    @contextmanager
    def log_messages(self) -> Iterator[None]:
        """Context manager: show what the library logs, from warnings on, as one line each on standard error."""
        handler, logger = _LogLines(self._tell, self.hidden_loggers), logging.getLogger(LIBRARY_LOGGER)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)

    @contextmanager
    def progress(
        self, progress: Progress, *, total_bytes: Callable[[], int | None], only_to_file: bool = False
    ) -> Iterator[None]:
        """Context manager: show a progress bar if standard error is a terminal.

        Args: total_bytes: called only if there is a bar, since a total takes time to find; None if not known.
            only_to_file: no bar unless standard output is a regular file, for commands that write while they read.
        """
        if self._stderr is None or not self._stderr.isatty() or (only_to_file and not self._is_file()):
            yield
            return
        self._bar = _bar_of(progress, total_bytes(), self._stderr)
        try:
            with self._bar:
                yield
        finally:
            self._bar = None

    def flush(self) -> None:
        """Write all buffered output to the operating system.  Raises: OSError, also if the process has no stdout."""
        self._encode_pending()
        blocks, self._blocks, self._pending_characters = self._blocks, [], 0
        if not blocks:
            return
        block = b"".join(blocks)
        with self._writing(), self._bar_hidden() if self.is_terminal else nullcontext():
            if self._stdout is None:
                raise OSError(errno.EBADF, "it is closed")
            self._stdout.flush()
            self._stdout.buffer.write(block)
            self._stdout.buffer.flush()

    def _encode_pending(self) -> None:
        if self._pending:
            # A byte of a path that is not UTF-8 becomes \udcXX, in JSON the name that Python has for that path.
            self._blocks.append("".join(self._pending).encode("utf-8", "backslashreplace"))
            self._pending = []

    def abandon(self) -> None:
        """Drop buffered output and close standard output, after a write to it failed."""
        self._pending.clear()
        self._blocks.clear()
        if self._stdout is None:
            return
        # Python still has the unwritten data and tries to write it again; it closes the file all the same.
        with suppress(OSError):
            self._stdout.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.can_write = False
            raise

    def _rich(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self._stdout, highlight=False)
        self.flush()
        return self._console

    def _tell(self, message: str) -> None:
        text = " ".join(message.splitlines())
        for path, shown in self.shown_paths.items():
            text = text.replace(path, shown)
        self.log_line(f"kstore: {text}")

    def log_line(self, text: str) -> None:
        """Write a line to standard error as it is, but for what a terminal would take as a command."""
        if self._stderr is None:
            return
        try:
            with self._bar_hidden():
                self._stderr.write(f"{printable(text)}\n")
                self._stderr.flush()
        except OSError:
            self._close_stderr()

    def _close_stderr(self) -> None:
        """Treat standard error as closed, since it can't be written."""
        # Otherwise Python tries to write again as it exits, and changes the exit status.
        if sys.stderr is self._stderr:
            sys.stderr = None
        self._stderr = None

    def _is_file(self) -> bool:
        from kstore.env import size_of_open

        return self._stdout is not None and size_of_open(self._stdout) is not None

    @contextmanager
    def _bar_hidden(self) -> Iterator[None]:
        """Context manager: take the bar, which is one line, off the terminal while something else is written there."""
        bar = self._bar
        if bar is None:
            yield
            return
        bar.stop()
        yield
        bar.start()


class _LogLines(logging.Handler):
    """Hands the message of each log record to `tell`, unless its logger is one of `hidden`."""

    def __init__(self, tell: Callable[[str], None], hidden: set[str]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._hidden = hidden

    def emit(self, record: logging.LogRecord) -> None:
        if not self._hidden & {record.name, LIBRARY_LOGGER}:
            self._tell(record.getMessage())


def _fitting(
    columns: Sequence[Column], lines: Sequence[Sequence[str]], widths: Sequence[int], *, room: int
) -> tuple[list[int], list[int]]:
    """Return which columns to show, as indexes, and the widths of all columns."""
    fitted = list(widths)
    shown = list(range(len(columns)))
    for i, column in enumerate(columns):
        if column.wraps:
            longest = max(len(piece) for line in lines for piece in _PIECES.findall(line[i]) or [""])
            fitted[i] = min(widths[i], max(longest, _LEAST_WRAPPED))
    names = [i for i, column in enumerate(columns) if not column.is_number]
    _divide(names, fitted, over=_width_of(shown, fitted) - room, least=_LEAST_NAME)
    for i in sorted(shown, key=lambda i: -columns[i].rank):
        if columns[i].rank == 0 or _width_of(shown, fitted) <= room:
            break
        shown.remove(i)
    for i in (i for i in shown if i in names):
        spare = room - _width_of(shown, fitted)
        if columns[i].wraps or spare > 0:
            fitted[i] = min(widths[i], max(fitted[i] + spare, min(widths[i], _LEAST_WRAPPED)))
    _divide([i for i in shown if i in names], fitted, over=_width_of(shown, fitted) - room, least=_LEAST_PIECE)
    return shown, fitted


def _divide(columns: Sequence[int], widths: list[int], *, over: int, least: int) -> None:
    """Take `over` characters from the widest of some columns, and leave each of them `least`."""
    while over > 0 and (widest := max(columns, key=lambda i: widths[i], default=None)) is not None:
        taken = min(over, widths[widest] - least)
        if taken <= 0:
            return
        others = [widths[i] for i in columns if i != widest]
        # Down to the next one, and then both in turn.
        taken = min(taken, max(widths[widest] - max(others, default=0), 1))
        widths[widest] -= taken
        over -= taken


def _width_of(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[i] + 2 for i in shown) - 2


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a cell, which end after a space or a comma, and within words that are longer than a line."""
    if len(text) <= width:
        return [text]
    lines = [""]
    for piece in _PIECES.findall(text):
        if lines[-1] and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]


def _bar_of(shown: Progress, total_bytes: int | None, stream: TextIO) -> rich.progress.Progress:
    """Return a bar of one line, which is erased when it stops."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    class Bar(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            shown.update()
            done = shown.done_bytes if total_bytes is None else min(shown.done_bytes, total_bytes)
            for task in self.task_ids:
                self.update(task, completed=done, description=_shortened(printable(shown.label), room))
            yield from super().get_renderables()

    line = Column(no_wrap=True)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=line),
        BarColumn(_BAR_WIDTH, table_column=line),
        DownloadColumn(table_column=line),
        TimeElapsedColumn(table_column=line),
    )
    console = Console(file=stream)
    room = console.width - _BAR_WIDTH - _BESIDE_A_BAR
    bar = Bar(*columns, console=console, transient=True)
    bar.add_task("", total=total_bytes)
    return bar


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 3, 0)]}..."


def next_step(log_path: str | None) -> str:
    """Return the command that opens a partition which strict recovery refuses. log_path: of a .log in it, or of a
    checkpoint of its root.
    """
    from kstore.env import join_path, split_path
    from kstore.log.files.names import LOG_SUFFIX, QUARANTINE_DIRECTORY

    directory = split_path(log_path or "")[0] or "DIR"
    if not (log_path or "").endswith(LOG_SUFFIX):
        return f"the log was not changed; next: {salvage_command(directory)}, and then without --dry-run"
    return (
        f"the log was not changed; next: {salvage_command(directory)}, and then without --dry-run: it keeps all whole "
        f"batches, and copies what it removes to {join_path(directory, QUARANTINE_DIRECTORY)}"
    )


def salvage_command(directory: str) -> str:
    """Return the command line that shows what a salvage of DIR would do."""
    return f"kstore recover {shell_word(directory)} --mode salvage --dry-run"


def exit_status(error: KStoreError | WrongUseError) -> int:
    """Return 2 for a usage error (no such log or schema, no permission, offset out of range, other options, a
    target that a restore does not continue, a root that cannot be adopted, a replay
    that did not begin), else 1.
    """
    wrong_use = (
        WrongUseError | LogNotFoundError | SchemaNotFoundError | OffsetError | ExportOptionsError | AdoptionError
    )
    if isinstance(error, wrong_use):
        return EXIT_WRONG_USE
    if isinstance(error, StorageError) and error.errno in WRONG_PATH_ERRNOS:
        return EXIT_WRONG_USE
    if isinstance(error, RestoreError | ReplayError) and error.summary is None:
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
