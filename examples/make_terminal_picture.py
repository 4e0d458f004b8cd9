"""Draw docs/pictures/terminal.svg, the picture in README.md: the kstore command on a terminal, on examples/flights.

    python examples/make_terminal_picture.py

Each command runs on a pseudo-terminal; rich turns its output, with the colours, into SVG.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COMMANDS = (
    "kstore ls examples/flights",
    "kstore offsets examples/flights --time 2013-03-01",
    "kstore verify examples/flights",
)
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def output_on_terminal(command: str) -> str:
    """Return what a command prints to a terminal, with its escape sequences. Only standard output is a terminal."""
    read_end, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "", "COLUMNS": "132"}
    arguments = [sys.executable, "-m", *shlex.split(command)]
    with subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=terminal) as running:
        os.close(terminal)
        printed = b""
        while chunk := _read(read_end):
            printed += chunk
    os.close(read_end)
    if running.returncode:
        raise SystemExit(f"{command} ended with status {running.returncode}")
    return printed.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # how Linux reports that the other end is closed
        return b""


def drawn() -> str:
    """Return the picture."""
    screen = Text()
    for command in COMMANDS:
        screen.append_text(Text.from_ansi(f"\x1b[1;32m$\x1b[0m {command}\n{output_on_terminal(command)}\n"))
    screen.rstrip()
    width = max(map(len, screen.plain.splitlines()))
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(screen)
    # Without the fonts that rich would load from the network: any monospaced one will do.
    return FONTS.sub("", console.export_svg(title="kstore", unique_id="terminal"))


if __name__ == "__main__":
    PICTURE.write_text(drawn())
