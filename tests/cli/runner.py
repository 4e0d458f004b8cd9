"""Runs the command in this process, and in one of its own where the process itself is what is looked at."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import typer.main

from kstore.cli import main


class Finished(NamedTuple):
    """What a run left: exit status and both streams."""

    status: int
    out: str
    err: str

    def objects(self) -> list[Any]:
        """Parse standard output as one JSON object a line, and refuse what only Python takes for JSON."""
        return [json.loads(line, parse_constant=_refuse) for line in self.out.splitlines()]


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


Runner = Callable[..., Finished]
make_group = typer.main.get_command


@cache
def group_of(app: typer.Typer, _command_count: int) -> Any:
    """Return the commands that an application has loaded, which typer makes anew in each run."""
    return make_group(app)


def runner(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    """Return a function that runs the command with the given arguments."""

    def run(*arguments: object) -> Finished:
        monkeypatch.setattr(sys, "argv", ["kstore", *map(str, arguments)])
        monkeypatch.setattr(typer.main, "get_command", lambda app: group_of(app, len(app.registered_commands)))
        capsysbinary.readouterr()
        status = main()
        out, err = capsysbinary.readouterr()
        return Finished(status, out.decode("utf-8"), err.decode("utf-8"))

    return run


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start `python -m kstore` with the arguments; options are those of Popen."""
    command = [sys.executable, "-m", "kstore", *map(str, arguments)]
    return subprocess.Popen(command, **options)


class Terminal(io.TextIOWrapper):
    """A text stream that says it is a terminal, and keeps what it gets in `bytes`."""

    def __init__(self) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True
