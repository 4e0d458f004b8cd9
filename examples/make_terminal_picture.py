"""Draw docs/pictures/terminal.svg, the picture in README.md, and docs/pictures/recording.svg, that in docs/index.md.

They show the kstore command on a terminal, on examples/flights and on a copy of it that gets damaged.

    python examples/make_terminal_picture.py

Each command runs on a pseudo-terminal; rich turns its output, with the colours, into SVG. The recording plays once, for
30 seconds: a rectangle clips each row, and a style sheet widens it, in steps while a command is typed, and at once when
a row is printed. A system that asks for reduced motion shows the end.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
RECORDING = ROOT / "docs" / "pictures" / "recording.svg"
COMMANDS = (
    "kstore ls examples/flights",
    "kstore offsets examples/flights --time 2013-03-01",
    "kstore verify examples/flights",
)
# In a directory with a copy of examples/flights.
RECORDED = (
    "kstore ls flights",
    "printf oops | dd of=flights/flights-lz4-2/00000000000000000000.log bs=1 seek=100000 conv=notrunc status=none",
    "kstore verify flights",
    "kstore recover flights --mode salvage",
    "kstore export flights parquet",
)
SECONDS, SECONDS_A_CHARACTER, SECONDS_TO_READ = 30, 0.05, 3.4
PROMPT = "\x1b[1;32m$\x1b[0m "
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def output_on_terminal(command: str, *, cwd: Path = ROOT) -> str:
    """Return what a command prints to a terminal, with its escape sequences. Only standard output is a terminal."""
    read_end, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "", "COLUMNS": "132", "PYTHONPATH": str(ROOT)}
    python = [sys.executable, "-m", *shlex.split(command)]
    arguments = python if command.startswith("kstore ") else ["bash", "-c", command]
    with subprocess.Popen(arguments, cwd=cwd, env=environment, stdout=terminal, stderr=subprocess.DEVNULL) as running:
        os.close(terminal)
        printed = b""
        while chunk := _read(read_end):
            printed += chunk
    os.close(read_end)
    # 1 says that there is damage.
    if running.returncode > 1:
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
        screen.append_text(Text.from_ansi(f"{PROMPT}{command}\n{output_on_terminal(command)}\n"))
    screen.rstrip()
    return _as_svg(screen)


def recorded() -> str:
    """Return the recording."""
    # The first command has run when the recording begins.
    screen, moment = Text(), -SECONDS_A_CHARACTER * len(RECORDED[0])
    # For each row, when it begins to be seen, when it is whole, and in how many steps.
    rows: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(ROOT / "examples" / "flights", Path(directory, "flights"))
        for command in RECORDED:
            printed = output_on_terminal(command, cwd=Path(directory)).replace(f"{directory}/", "")
            shown = Text.from_ansi(f"{PROMPT}{command}\n{printed}".rstrip())
            typed = moment + SECONDS_A_CHARACTER * len(command)
            rows.append((moment, typed, len(command)))
            rows += [(typed, typed, 1)] * (shown.plain.count("\n") + 1)
            moment = typed + (SECONDS_TO_READ if printed else 0.5)
            screen.append_text(shown).append("\n\n")
    picture = _as_svg(screen)
    width = re.findall(r'<clipPath id="terminal-line-0">\s*<rect [^>]*width="([\d.]+)"', picture)[0]
    rules = [_rule(row, *times, width=width) for row, times in enumerate(rows) if times[1] > 0]
    style = f"<style>@media (prefers-reduced-motion: no-preference) {{\n{''.join(rules)}}}</style>"
    return picture.replace("<defs>", f"{style}<defs>", 1)


def _rule(row: int, begin: float, end: float, steps: int, *, width: str) -> str:
    first, last = (100 * moment / SECONDS for moment in (begin, max(end, begin + 0.01)))
    hidden = f"0%,{first:.2f}%{{width:0;animation-timing-function:steps({steps})}}"
    frames = f"{hidden}{last:.2f}%,100%{{width:{width}px}}"
    return f"@keyframes row{row}{{{frames}}}#terminal-line-{row} rect{{animation:row{row} {SECONDS}s}}\n"


def _as_svg(screen: Text) -> str:
    width = max(map(len, screen.plain.splitlines()))
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(screen)
    # Without the fonts that rich would load from the network: any monospaced one will do.
    return FONTS.sub("", console.export_svg(title="kstore", unique_id="terminal"))


if __name__ == "__main__":
    PICTURE.write_text(drawn())
    RECORDING.write_text(recorded())
