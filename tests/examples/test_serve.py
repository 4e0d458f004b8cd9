"""Goal: who copies the examples of a container and of a unit has a server that starts.
Method: the command lines in them, by the options that the command has; the one of the unit is run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from kstore.cli.shell.words import words
from tests.cli.test_serving import serving

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "serve"


def command_lines():
    """Return the arguments of `kstore serve` in the two files."""
    docker = (EXAMPLES / "Dockerfile").read_text()
    entry, more = (
        json.loads(re.search(rf"^{name} (\[.*\])$", docker, re.MULTILINE)[1]) for name in ("ENTRYPOINT", "CMD")
    )
    unit = (EXAMPLES / "kstore-serve.service").read_text()
    start = re.search(r"^ExecStart=/opt/kstore/bin/(.*)$", unit, re.MULTILINE)[1]
    return {"Dockerfile": [*entry, *more], "kstore-serve.service": shlex.split(start)}


@pytest.mark.parametrize("name", ["Dockerfile", "kstore-serve.service"])
def test_options_are_those_of_the_command(name):
    program, command, _, *options = command_lines()[name]
    assert (program, command) == ("kstore", "serve")
    known = {each for option in words().commands["serve"].options for each in option.names}
    assert {option for option in options if option.startswith("--")} <= known


def test_options_of_the_unit_start_a_server(tmp_path):
    *_, log_option, log_format = command_lines()["kstore-serve.service"]
    with serving(tmp_path / "root", log_option, log_format) as (said, _):
        assert said["topics"] == 0
