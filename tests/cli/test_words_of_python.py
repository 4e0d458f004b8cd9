"""Goal: no word of Python's own reaches a user, whatever an option is given.
Method: each option and argument of each command gets what it can't take (no number, no JSON, a directory for a file, a
file for a directory, damaged files); what the command says is searched for words of exceptions."""

from __future__ import annotations

import contextlib
import io
import re
import socket

import pytest
import typer.main

from kstore.cli import commands
from kstore.cli.shell.words import words
from tests.making.batches import batch, write_root

FORBIDDEN = re.compile(
    r"Expecting|invalid literal|Errno|NoneType|codec can't|Traceback|\b[A-Z]\w+Error\b|\bException\b|unhashable|"
    r"object has no|unexpected keyword|could not convert|<class|object at 0x|Extra data|not enough values"
)
# What a command needs besides DIR to come as far as its options.
NEEDED = {
    "offsets": ["--time", "latest"],
    "delete-topic": ["--topic", "t"],
    "delete-records": ["--topic", "t", "--partition", "0", "--before", "1"],
    "move": ["--topic", "t", "--partition", "0"],
    "import": ["--topic", "t"],
    "cat": ["--limit", "1"],
    "configs": ["--topic", "t"],
    "groups": [],
    "export": [],
    "replay": ["--bootstrap", "127.0.0.1:1", "--timeout", "0.01"],
}
APPLICATION = typer.main.get_command(commands.whole_app())
# An option that never ends.
LEFT_OUT = {"--watch"}
# What an option needs to be looked at.
WITH = {
    "--schema": (["--value", "avro"], ["--value", "json"], ["--value", "string"]),
    "--schemas": (["--value", "avro"],),
    "--schema-id": (["--value", "avro"],),
    "--value-regex": ([],),
    "--config": (["--create", "u", "--dry-run"],),
    "--partitions": (["--create", "u", "--dry-run"], ["--alter", "t", "--dry-run"]),
    "--id": (["--create", "u", "--dry-run"],),
    "--version": (["--subject", "s"],),
}


class Place:
    """A root, and files that are not what an option asks for."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.directory = tmp_path / "directory"
        self.directory.mkdir()
        self.binary = tmp_path / "binary"
        self.binary.write_bytes(b"\x80\xff\x00{" * 20)
        self.json = tmp_path / "file.json"
        self.json.write_text('{"a": [1, ')
        self.missing = tmp_path / "missing"
        self.root = write_root(tmp_path / "root", {"t-0": [[batch(0)]]})

    def values(self):
        """What is given: no text, no number, no JSON, bytes that are no UTF-8, a directory, files."""
        files = (self.directory, self.binary, self.json, self.missing)
        return ["", "x", "99999999999999999999", "{", "\udcff", *map(str, files)]


def said_by(name, arguments):
    """Run a command, and return (exit status, what it said)."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            APPLICATION.commands[name].main(arguments, prog_name="kstore")
        except SystemExit as stop:
            status = stop.code
    return status, err.getvalue()


def arguments_of(name, place):
    """Return DIR and what else comes first."""
    first = {
        "completion": ["bash"],
        "import": [str(place.json), str(place.root)],
        "export": [str(place.root), str(place.tmp_path / "out")],
        "restore": [str(place.root), str(place.tmp_path / "out")],
    }
    return first.get(name) or [str(place.root)]


@pytest.fixture(autouse=True)
def taken_port(monkeypatch):
    """A port that `kstore serve` cannot listen on, so that it ends."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setitem(NEEDED, "serve", ["--listen", f"127.0.0.1:{taken.getsockname()[1]}"])
        yield


@pytest.mark.parametrize("name", sorted(words().commands))
def test_no_word_of_python_reaches_the_user(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place, command = Place(tmp_path), words().commands[name]
    wrong = []
    arguments = arguments_of(name, place)

    def run(line):
        status, said = said_by(name, line)
        if status not in (0, 1, 2) or FORBIDDEN.search(said):
            wrong.append((line[len(arguments) :] or line, status, said.strip()[-300:]))

    for option in command.options:
        if option.metavar is None or LEFT_OUT & set(option.names):
            continue
        needed = NEEDED.get(name, [])
        if option.names[-1] in needed:
            needed = [each for at, each in enumerate(needed) if option.names[-1] not in needed[max(at - 1, 0) : at + 1]]
        for value in place.values():
            for others in WITH.get(option.names[-1], ([],)):
                run([*arguments, *needed, *others, f"{option.names[-1]}={value}"])
    for at in range(len(command.arguments)):
        for value in ("", *place.values()[4:]):
            changed = list(arguments)
            changed[at : at + 1] = [value]
            run([*changed, *NEEDED.get(name, [])])
    assert wrong == []


@pytest.mark.parametrize(
    "name", ["__consumer_offsets-0", "t-0", "meta.properties", "kstore-topic-settings", "quorum-state"]
)
@pytest.mark.parametrize("content", [b"", b"{", b"\x80\xff\x00", b'{"a": NaN}', b"0\n1\nt 0"], ids=ascii)
def test_no_word_of_python_in_what_is_said_of_a_damaged_file(name, content, tmp_path):
    place = Place(tmp_path)
    if name.endswith("-0"):
        (place.root / name).mkdir(exist_ok=True)
        for file in ("00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata"):
            (place.root / name / file).write_bytes(content)
    else:
        (place.root / name).write_bytes(content)
    for command in ("ls", "verify", "groups", "topics", "configs", "dump", "metadata", "transactions", "stat"):
        status, said = said_by(command, [str(place.root), *(NEEDED.get(command, []) if command == "configs" else [])])
        assert status in (0, 1, 2)
        assert FORBIDDEN.search(said) is None, (command, said)
