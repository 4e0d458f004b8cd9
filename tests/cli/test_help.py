"""Goal: help groups its commands and ends with examples that run; completion offers what a root has.
Method: the help of every command, each example parsed by the command itself; the protocol of completion scripts, held
against the answers of Typer; processes that look at what they imported."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import typer.main
from typer._completion_classes import BashComplete

from kstore.cli import commands
from kstore.cli.shell.completion import words_after
from kstore.cli.shell.examples import EXAMPLES
from kstore.cli.shell.help import GROUPS, NAMES_OF_OPTIONS, NAMES_OF_TOOLS, group_of
from kstore.cli.shell.words import VARIABLE, words
from tests.cli.runner import runner
from tests.making.batches import batch, write_root
from tests.making.collecting import over
from tests.repo import command_words, manual_page

APPLICATION = typer.main.get_command(commands.whole_app())
NAMES = sorted(APPLICATION.commands)
ALL_EXAMPLES = [example for name in NAMES for example in EXAMPLES.get(name, ())]


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def completed(kstore, monkeypatch, line):
    """The words offered at the end of a line."""
    typed = line.split(" ")
    monkeypatch.setenv(VARIABLE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(typed) - 1))
    return kstore().out.split()


def in_a_process(*arguments, **environment):
    """Run the command in a process of its own, and return what it printed and the modules that it imported."""
    code = (
        "import sys; sys.argv[0] = 'kstore'; from kstore.cli import main; status = main();"
        "sys.stderr.write(' '.join(sys.modules)); sys.exit(status)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return run.stdout, set(run.stderr.split())


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_the_examples_of_the_command(kstore, name):
    run = kstore(name, "--help")
    assert run.status == 0
    assert name in EXAMPLES, "add its examples to kstore/cli/shell/examples.py"
    *_, examples = run.out.partition("\nExamples:\n")
    assert [line.strip() for line in examples.splitlines()] == list(EXAMPLES[name])


@over("example", ALL_EXAMPLES, by=lambda _: "examples")
def test_example_is_accepted_by_its_command(example):
    program, name, *arguments = shlex.split(example.partition(" > ")[0])
    assert program == "kstore"
    context = APPLICATION.commands[name].make_context(name, arguments)
    assert context.params


TOOLS = [*NAMES_OF_TOOLS, "kafka-dump-log.sh", "kafka-topics.sh", "kafka-configs", "kafka-delete-records.sh"]


@pytest.mark.parametrize("name", TOOLS)
def test_a_name_of_kafkas_tools_is_refused_with_that_of_kstore(kstore, name):
    run = kstore(name, "x", "--some-option")
    assert (run.status, run.out) == (2, "")
    shown, _, own = run.err.strip().partition(". It is: kstore ")
    assert shown.endswith(f"Error: No such command {name!r}")
    command, *arguments = shlex.split(own)
    assert APPLICATION.commands[command].make_context(command, arguments).params


@pytest.mark.parametrize(("name", "own"), NAMES_OF_OPTIONS.items())
def test_an_option_of_other_tools_is_refused_with_that_of_cat(kstore, name, own):
    assert kstore("cat", "x", name, "5").err.endswith(f"Error: No such option: {name}. It is: {own}\n")
    for option in own.replace("N", "5").split(", or "):
        assert APPLICATION.commands["cat"].make_context("cat", ["x", *option.split()]).params
    assert "It is" not in kstore("ls", "x", name, "5").err


def test_a_name_of_no_tool_is_refused_with_names_that_are_like_it(kstore):
    assert "No such command 'verfy'. Did you mean 'verify'?" in kstore("verfy", "x").err
    assert "It is" not in kstore("kafka-leader-election.sh").err


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


def test_words_are_those_of_the_commands():
    assert command_words.PLACE.read_text() == command_words.current(), "run: python -m tests.repo.command_words"


def test_man_page_is_that_of_the_commands():
    assert manual_page.PLACE.read_text() == manual_page.page_of(words()), "run: python -m tests.repo.command_words"


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_man_page_is_shown_without_warnings():
    run = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-rLL=78n", manual_page.PLACE], capture_output=True, text=True, check=True
    )
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", run.stdout)
    assert run.stderr == ""
    assert "kstore cat /disk1/kafka /disk2/kafka --topic 'orders-*' --since -2d" in shown
    assert all(f"kstore {name} [OPTIONS]" in shown for name in NAMES)


def test_help_of_the_program_is_one_text_however_it_is_asked_for(kstore):
    context = APPLICATION.make_context("kstore", [], resilient_parsing=True)
    quick = kstore("--help")
    assert quick.status == 0
    assert quick.out == context.get_help() + "\n" == kstore("-h").out
    assert kstore().err == quick.out
    assert {option for each in APPLICATION.get_params(context) for option in each.opts} == set(
        re.findall(r"(?<!\w)--?[a-z]+", quick.out.partition("Options:")[2].partition("\n\n")[0])
    )


def test_help_of_the_program_fits_80_columns(kstore):
    lines = kstore("--help").out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert all(line.isascii() for line in lines)


def test_help_and_completion_import_neither_typer_nor_the_library(tmp_path):
    (tmp_path / "orders-3").mkdir()
    line = {VARIABLE: "complete_bash", "COMP_WORDS": f"kstore cat {tmp_path} --topic o", "COMP_CWORD": "4"}
    shown, of_help = in_a_process("--help")
    offered, of_completion = in_a_process(**line)
    assert "Read:" in shown
    assert offered == "orders\n"
    for imported in (of_help, of_completion):
        assert not imported & {"typer", "click", "rich", "kstore._core", "kstore.env", "kstore.log"}


def test_command_imports_no_options_but_those_of_its_module(tmp_path):
    _, imported = in_a_process("completion", "bash")
    found = {name for name in imported if name.startswith("kstore.cli.commands.")}
    assert found == {"kstore.cli.commands.shell"}


def test_unknown_command_is_told_from_all(kstore):
    run = kstore("veryfy")
    assert run.status == 2
    assert "verify" in run.err


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


def test_completion_finds_a_name_with_a_blank_in_quotes(kstore, monkeypatch, tmp_path):
    root = write_root(tmp_path / "my logs", {"orders-0": [[batch(0)]]})
    monkeypatch.setenv(VARIABLE, "complete_zsh")
    for typed in (f"'{root}'", str(root).replace(" ", "\\ ")):
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"kstore cat {typed} --topic ")
        assert kstore().out == """_arguments '*: :(("orders"))'\n"""


def test_completion_after_an_equals_sign_is_that_of_the_value(kstore, monkeypatch, tmp_path):
    root = write_root(tmp_path / "logs", {"orders-0": [[batch(0)]], "users-1": [[batch(0)]]})
    assert completed(kstore, monkeypatch, f"kstore cat {root} --topic=u") == ["users"]
    assert completed(kstore, monkeypatch, f"kstore ls {root} --topic=users --partition ") == ["1"]


def test_completion_offers_an_option_once_unless_it_can_be_repeated(kstore, monkeypatch):
    assert completed(kstore, monkeypatch, "kstore cat dir --limit 3 --li") == []
    assert completed(kstore, monkeypatch, "kstore cat dir --topic a --to") == ["--topic", "--to"]


def test_fish_is_told_whether_to_offer_files(kstore, monkeypatch):
    monkeypatch.setenv(VARIABLE, "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "is-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "kstore ls --so")
    assert kstore().status == 0
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "kstore ls ")
    assert kstore().status == 1
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "kstore completi")
    assert kstore().out == "completion\tPrint the completion script of a shell, or install it.\n"


@pytest.mark.parametrize("incomplete", ["", "-", "--", "--t", "r"])
def test_completion_offers_what_typer_offers(incomplete):
    # Of its own: a command keeps the help option of the first context that it got.
    of_typer = BashComplete(typer.main.get_command(commands.whole_app()), {}, "kstore", VARIABLE)
    for arguments in ([], *([name] for name in NAMES)):
        expected = [item.value for item in of_typer.get_completions(arguments, incomplete)]
        assert sorted(word.text for word in words_after(arguments, incomplete)) == sorted(expected), arguments


def test_completion_offers_the_choices_that_typer_offers():
    expected = BashComplete(APPLICATION, {}, "kstore", VARIABLE).get_completions(["ls", "--sort"], "s")
    assert [word.text for word in words_after(["ls", "--sort"], "s")] == [item.value for item in expected]


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
