"""Goal: help groups its commands and ends with examples that run; completion offers what a root has.
Method: the help of every command, each example parsed by the command itself, and the protocol of completion scripts."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
import typer.main

from kstore.cli import commands
from kstore.cli.shell.completion import VARIABLE
from kstore.cli.shell.examples import EXAMPLES
from kstore.cli.shell.help import GROUPS, group_of
from tests.cli.runner import runner
from tests.making.batches import batch, write_root

APPLICATION = typer.main.get_command(commands.app)
NAMES = sorted(APPLICATION.commands)
ALL_EXAMPLES = [example for name in NAMES for example in EXAMPLES.get(name, ())]


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def completed(kstore, monkeypatch, line):
    """The words offered at the end of a line."""
    words = line.split(" ")
    monkeypatch.setenv(VARIABLE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    return kstore().out.split()


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_the_examples_of_the_command(kstore, name):
    run = kstore(name, "--help")
    assert run.status == 0
    assert name in EXAMPLES, "add its examples to kstore/cli/shell/examples.py"
    *_, examples = run.out.partition("\nExamples:\n")
    assert [line.strip() for line in examples.splitlines()] == list(EXAMPLES[name])


@pytest.mark.parametrize("example", ALL_EXAMPLES)
def test_example_is_accepted_by_its_command(example):
    program, name, *arguments = shlex.split(example.partition(" > ")[0])
    assert program == "kstore"
    context = APPLICATION.commands[name].make_context(name, arguments)
    assert context.params


def test_example_fits_a_terminal():
    assert [example for example in ALL_EXAMPLES if len(example) > 100] == []


def test_help_lists_each_command_once_in_its_group(kstore):
    lines = kstore("--help").out.splitlines()
    sections = {}
    for line in lines[lines.index("Read:") :]:
        if line.endswith(":") and not line.startswith(" "):
            section = sections.setdefault(line[:-1], [])
        elif line.startswith("  ") and line.split()[0] in NAMES:
            section.append(line.split()[0])
    assert sorted(name for names in sections.values() for name in names) == NAMES
    known = [group for group in GROUPS.values() if group in sections]
    assert [group for group in sections if group in known] == known
    assert sections["Read"][:2] == ["ls", "cat"]
    assert "recover" in sections["Check and repair"]


def test_module_without_a_group_gives_its_name(kstore):
    assert group_of("kstore.cli.commands.mending") == "Mending"


def test_completion_offers_topics_partitions_and_columns(kstore, monkeypatch, tmp_path):
    names = ("orders-0", "orders-11", "payments-2", "a-b-3")
    root = write_root(tmp_path / "logs", {name: [[batch(0)]] for name in names})
    (root / "orders-12.0123456789abcdef0123456789abcdef-delete").mkdir()
    assert completed(kstore, monkeypatch, f"kstore cat {root} --topic ") == ["a-b", "orders", "payments"]
    assert completed(kstore, monkeypatch, f"kstore cat {root} --topic or") == ["orders"]
    assert completed(kstore, monkeypatch, f"kstore ls {root} --topic orders --partition ") == ["0", "11"]
    assert completed(kstore, monkeypatch, f"kstore export {root} out --columns key,po") == ["key,position"]
    assert completed(kstore, monkeypatch, "kstore cat /nosuch --topic ") == []
    assert completed(kstore, monkeypatch, "kstore rec") == ["recover"]


def test_completion_reads_no_offsets_topic_that_is_large(kstore, monkeypatch, tmp_path):
    root = write_root(tmp_path / "logs", {"__consumer_offsets-0": [[batch(0, value_bytes=(1 << 20) + 1)]]})
    monkeypatch.setattr("kstore.consumer.read_groups", lambda _: pytest.fail("read"))
    assert completed(kstore, monkeypatch, f"kstore groups {root} --group ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_one_that_the_shell_takes(kstore, tmp_path, shell):
    run = kstore("completion", shell)
    assert run.status == 0
    assert VARIABLE in run.out
    if shutil.which(shell):
        (tmp_path / "script").write_text(run.out)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_bash_completes_with_the_script(kstore, tmp_path):
    script = kstore("completion", "bash").out
    offered = "complete -p kstore; declare -F _kstore_completion"
    done = subprocess.run(["bash", "-c", f"{script}\n{offered}"], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == [
        "complete -o default -F _kstore_completion kstore",
        "_kstore_completion",
    ]


def test_script_is_installed_for_the_user(kstore, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    run = kstore("completion", "fish", "--install")
    path = tmp_path / ".config" / "fish" / "completions" / "kstore.fish"
    assert run.status == 0
    assert str(path) in run.out
    assert VARIABLE in path.read_text()
