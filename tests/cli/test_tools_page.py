"""Goal: each kstore command line in the tables of docs/tools.md is one that the command takes.
Method: the code spans of the page, parsed by the command's own parser; nothing is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from kstore.cli.commands import whole_app
from tests.making.collecting import over

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
SPAN = re.compile(r"`([^`]+)`")
# In a table a bar inside of a code span would end the cell.
ROW = re.compile(r"^\| (.+) \| (.+) \|$", re.MULTILINE)
LEAST_LINES, LEAST_TOOLS = 90, 11
COMMANDS: dict[str, Any] = vars(typer.main.get_command(whole_app()))["commands"]


class NotTaken(Exception):
    """A command line that the command would refuse."""


def spans() -> set[str]:
    return {span for _, cell in ROW.findall(PAGE.read_text()) for span in SPAN.findall(cell)}


def lines() -> list[str]:
    return sorted(span for span in spans() if span.startswith("kstore "))


def parsed(line: str) -> None:
    """Parse a command line as the command does, without its values.  Raises: NotTaken."""
    _, name, *words = shlex.split(line)
    if name not in COMMANDS:
        raise NotTaken(name)
    command = COMMANDS[name]
    context = command.context_class(command)
    try:
        _, left, given = command.make_parser(context).parse_args(list(words))
    except Exception as error:  # Typer's own click has no public name.
        raise NotTaken(f"{type(error).__name__}: {error}") from error
    if left:
        raise NotTaken(f"left: {left}")
    missing = [one.name for one in command.params if one.required and one not in given]
    if words and missing:
        raise NotTaken(f"missing: {missing}")


@over("line", lines(), by=lambda _: "lines")
def test_each_command_line_of_the_page_is_taken(line: str) -> None:
    parsed(line)


@pytest.mark.parametrize(
    "line", ["kstore nothing DIR", "kstore cat DIR --nothing", "kstore delete-topic DIR T", "kstore offsets DIR"]
)
def test_a_line_that_is_not_taken_is_found(line: str) -> None:
    with pytest.raises(NotTaken):
        parsed(line)


def test_options_that_are_named_alone_are_there() -> None:
    alone = {word for span in spans() if span.startswith("--") for word in span.split() if word.startswith("--")}
    there = {option for command in COMMANDS.values() for one in command.params for option in one.opts}
    assert alone - there == set()


def test_the_page_has_all_tools() -> None:
    assert len(re.findall(r"^## ", PAGE.read_text(), re.MULTILINE)) >= LEAST_TOOLS
    assert len(lines()) >= LEAST_LINES
