"""Goal: the command is a quiet citizen: pipes, signals, terminals and missing packages never give a traceback.
Method: real processes with pipes, pseudo-terminals and closed streams; exit status and both streams looked at."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest

from kstore.cli.output import Output, Part
from tests.cli.runner import runner, start
from tests.making.batches import batch, batches, flip_bit, grow, write_partition, write_root

PIPE = subprocess.PIPE
SEGMENT_0 = "00000000000000000000.log"
# More output than a pipe holds.
MANY_BATCHES = 4000
needs_full_device = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
HEAVY_MODULES = ("numpy", "pyarrow", "pyspark", "pandas", "polars", "rich", "kstore.tier.events", "kstore.tier.files")


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    root = tmp_path_factory.mktemp("logs")
    return write_partition(root, [batches(0, MANY_BATCHES)]) / "00000000000000000000.log"


@pytest.fixture(scope="module")
def partition(tmp_path_factory):
    return write_partition(tmp_path_factory.mktemp("logs"), [[batch(0, 3)]])


def on_a_terminal(*arguments, stdin=None, stdout=None, columns=200):
    """Run the command with its streams on a pseudo-terminal, but for those given; return (status, what it showed)."""
    leader, follower = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50"}
    for name in ("NO_COLOR", "FORCE_COLOR", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    process = start(
        *arguments, stdin=stdin, stdout=follower if stdout is None else stdout, stderr=follower, env=environment
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:  # how Linux reports that the other side was closed
        pass
    os.close(leader)
    return process.wait(), shown.decode("utf-8")


@pytest.mark.parametrize("options", [["--json"], [], ["--json", "--records"]], ids=["json", "text", "records"])
def test_reader_that_goes_away_ends_the_command_quietly(long_log, options):
    process = start("dump", *options, long_log, stdout=PIPE, stderr=PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_interrupt_ends_the_command_quietly(long_log):
    process = start("dump", "--json", long_log, stdout=PIPE, stderr=PIPE)
    process.stdout.read(10)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, b"")


def test_interrupt_ends_following_quietly(partition):
    process = start("cat", "--json", "--follow", partition, stdout=PIPE, stderr=PIPE)
    assert [json.loads(process.stdout.readline())["offset"] for _ in range(3)] == [0, 1, 2]
    process.send_signal(signal.SIGINT)
    assert process.communicate() == (b"", b"")
    assert process.returncode == 130


CLOSED = {
    "stdout": (">&-", 2, b"kstore: cannot write standard output: it is closed\n"),
    "stderr": ("2>&-", 0, b""),
    "all": ("<&- >&- 2>&-", 2, b""),
}


@pytest.mark.parametrize(("closed", "status", "err"), CLOSED.values(), ids=CLOSED)
@pytest.mark.parametrize("arguments", [["ls"], ["cat", "--json"], ["cat", "--json", "--limit", "3"]], ids=" ".join)
def test_closed_standard_output_is_one_that_can_not_be_written(partition, arguments, closed, status, err):
    command = [sys.executable, "-m", "kstore", *arguments, str(partition)]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True)
    assert (done.returncode, done.stderr) == (status, err)


def test_command_that_has_nothing_to_print_needs_no_standard_output(partition):
    command = [sys.executable, "-m", "kstore", "cat", "--limit", "0", str(partition)]
    assert subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], check=False).returncode == 0


@needs_full_device
@pytest.mark.parametrize(
    "arguments", [["cat", "--json"], ["ls", "--help"], ["--version"]], ids=["cat", "help", "version"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_full_disk_under_standard_output_is_one_line(partition, arguments, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "wb") as full:
        process = start(*arguments, partition, stdout=full, stderr=PIPE)
        _, err = process.communicate()
    assert process.returncode == 2
    assert err == b"kstore: cannot write standard output: No space left on device\n"


@needs_full_device
@pytest.mark.parametrize(
    ("arguments", "status"), [(["ls"], 2), (["ls", "--nosuch"], 2), (["verify"], 1)], ids=["notice", "usage", "damage"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_full_disk_under_standard_error_does_not_change_the_exit_status(
    tmp_path, arguments, status, unbuffered, monkeypatch
):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    damaged = write_partition(tmp_path, [[batch(0, 3)]])
    flip_bit(damaged / SEGMENT_0, 70, bit=1)
    directory = damaged if status == 1 else tmp_path / "nosuch"
    with open("/dev/full", "wb") as full:
        process = start(*arguments, directory, stdout=PIPE, stderr=full)
        process.communicate()
    assert process.returncode == status


@needs_full_device
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_log_messages_that_nobody_can_read_do_not_stop_a_command(unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    code = (
        "import logging, sys; from kstore.cli.output import Output; out = Output()\n"
        "with out.log_messages():\n"
        "    for _ in range(3): logging.getLogger('kstore.log').warning('lost')\n"
        "out.line('done'); out.flush()"
    )
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>/dev/full', "sh", sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"done\n")


class BrokenTerminal(io.StringIO):
    def isatty(self):
        return True

    def write(self, _text):
        raise OSError(5, "Input/output error")


def test_terminal_that_can_not_be_written_is_standard_output_that_can_not_be_written():
    out = Output(stdout=BrokenTerminal())
    with pytest.raises(OSError, match="Input/output error"):
        out.styled([Part("text", "bold")])
    assert not out.can_write


def test_error_of_the_operating_system_is_not_taken_for_one_of_standard_output(monkeypatch, capsysbinary, partition):
    def fail(*_args, **_options):
        raise OSError(5, "Input/output error", "/a/file")

    monkeypatch.setattr("kstore.cli.ls.run", fail)
    done = runner(monkeypatch, capsysbinary)("ls", partition)
    assert (done.status, done.out, done.err) == (1, "", "kstore: [Errno 5] Input/output error: '/a/file'\n")


def test_missing_package_is_named_with_the_way_to_install_it():
    code = "import sys; sys.modules['typer'] = None; from kstore.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "ls", "."], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "kstore: the command needs the package typer: pip install 'kstore[cli]'\n"


@pytest.mark.parametrize("command", ["ls", "cat", "dump", "verify"])
def test_command_in_a_pipe_imports_nothing_heavy(partition, command):
    code = (
        "import sys; from kstore.cli import main; status = main();"
        f"sys.stderr.write(','.join(name for name in {HEAVY_MODULES} if name in sys.modules)); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, command, "--json", partition], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_version_is_that_of_the_installed_package(monkeypatch, capsysbinary):
    try:
        expected = f"kstore {version('kstore')}\n"
    except PackageNotFoundError:
        expected = "kstore (not installed)\n"
    assert runner(monkeypatch, capsysbinary)("--version").out == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["cat", "--limit", "-1", "."],
        ["dump", "--no-such-option", "."],
        ["fly"],
        ["ls", "--partition", "x", "."],
    ],
    ids=["missing-directory", "limit-below-0", "unknown-option", "unknown-command", "partition-no-number"],
)
def test_wrong_arguments_exit_with_2_and_print_nothing_on_standard_output(monkeypatch, capsysbinary, arguments):
    run = runner(monkeypatch, capsysbinary)(*arguments)
    assert (run.status, run.out) == (2, "")
    assert "Traceback" not in run.err


def test_no_arguments_show_the_help(monkeypatch, capsysbinary):
    run = runner(monkeypatch, capsysbinary)()
    assert all(name in run.out + run.err for name in ("ls", "cat", "dump", "verify"))


def test_help_names_the_exit_statuses(monkeypatch, capsysbinary):
    run = runner(monkeypatch, capsysbinary)("--help")
    assert run.status == 0
    statuses = "0 success, 1 damage, a disk error or an unsupported format, 2 wrong use"
    assert statuses in " ".join(run.out.replace("│", " ").split())
    assert "..." not in run.out.replace("[ARGS]...", ""), "no command's line is cut"


def test_terminal_gets_colours_and_the_same_words(partition):
    status, shown = on_a_terminal("cat", partition)
    assert status == 0
    assert ANSI.search(shown)
    piped = start("cat", partition, stdout=PIPE, text=True).communicate()[0]
    assert ANSI.sub("", shown).split() == piped.split()


def test_terminal_gets_a_table_of_partitions_in_which_nothing_is_cut(tmp_path):
    topic = "flights-of-a-name-that-takes-most-of-the-width-of-a-terminal"
    root = write_root(tmp_path / "logs", {f"{topic}-0": [[batch(0, 3)]], f"{topic}-1": [[batch(0)]]})
    status, shown = on_a_terminal("ls", root)
    lines = ANSI.sub("", shown).splitlines()
    assert status == 0
    assert ANSI.search(shown)
    assert lines == start("ls", root, stdout=PIPE, text=True).communicate()[0].splitlines()


def test_json_on_a_terminal_stays_plain(partition):
    status, shown = on_a_terminal("cat", "--json", partition)
    assert status == 0
    assert [json.loads(line)["offset"] for line in shown.splitlines()] == [0, 1, 2]


def test_terminal_shows_a_wrong_crc_in_words(tmp_path):
    directory = write_partition(tmp_path, [[batch(0)]], topic="t")
    log = directory / "00000000000000000000.log"
    flip_bit(log, log.stat().st_size - 2, bit=0)
    status, shown = on_a_terminal("dump", "--records", log)
    assert status == 1
    assert "CRC WRONG" in ANSI.sub("", shown)


def test_terminal_gets_a_progress_bar_that_leaves_the_table_alone(partition):
    status, shown = on_a_terminal("verify", partition)
    words = ANSI.sub("", shown)
    assert status == 0
    assert "t-0: " in words
    assert "batches" in words
    assert ["t", "0", "0", "3", "1", "1", "3", "0"] in [line.split() for line in words.splitlines()]


@pytest.mark.parametrize("arguments", [["cat"], ["cat", "--json"], ["dump"], ["dump", "--json"]], ids=" ".join)
def test_output_to_a_file_has_a_progress_bar_on_the_terminal_and_is_the_same(partition, tmp_path, arguments):
    plain = start(*arguments, partition, stdout=PIPE).communicate()[0]
    with open(tmp_path / "shown", "wb") as file:
        status, shown = on_a_terminal(*arguments, partition, stdout=file)
    size = (partition / SEGMENT_0).stat().st_size
    assert status == 0
    assert re.search(rf"{size}/\d+ bytes", ANSI.sub("", shown))
    assert (tmp_path / "shown").read_bytes() == plain


@pytest.mark.parametrize("command", ["cat", "dump"])
def test_output_to_a_pipe_has_no_progress_bar(partition, command):
    with subprocess.Popen(["cat"], stdin=PIPE, stdout=subprocess.DEVNULL) as reader:
        status, shown = on_a_terminal(command, partition, stdout=reader.stdin)
        reader.stdin.close()
    assert (status, shown) == (0, "")


@pytest.mark.parametrize("columns", [200, 20])
def test_lines_written_beside_a_progress_bar_are_whole(tmp_path, columns):
    """A small screen: it takes carriage returns, line feeds, and the sequences that move up and erase."""
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 3)]], "t-1": [[batch(0)]]})
    status, shown = on_a_terminal("verify", "--json", root, columns=columns)
    screen, row = [""], 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", shown):
        if piece == "\n":
            row += 1
            screen += [""] * (row + 1 - len(screen))
        elif piece.startswith("\x1b"):
            row -= piece == "\x1b[1A"
            screen[row] = "" if piece == "\x1b[2K" else screen[row]
        elif piece != "\r":
            screen[row] += piece
    assert status == 0
    assert [json.loads(line)["records"] for line in screen if line] == [3, 1]


def test_messages_of_the_library_start_with_the_name_of_the_command(tmp_path):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 3)], [batch(3, 3)]]})
    (root / "t-0" / "00000000000000000003.snapshot").write_bytes(bytes(40))
    done = subprocess.run([sys.executable, "-m", "kstore", "recover", root], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert any("removing a producer snapshot" in line for line in lines)
    assert all(line.startswith("kstore: ") for line in lines)


def test_damage_that_recover_lists_is_not_on_standard_error_too(tmp_path):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 3)]]})
    grow(root / "t-0" / SEGMENT_0, b"\5" * 40)
    done = subprocess.run([sys.executable, "-m", "kstore", "recover", "--json", root], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert len(json.loads(done.stdout)["damage"]) == 1


@pytest.mark.parametrize("mode", ["strict", "salvage"])
def test_recover_has_a_progress_bar_that_counts_the_bytes_that_are_read(tmp_path, mode):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 3)], [batch(3, 3)]]})
    size = 2 * len(batch(0, 3)) * (2 if mode == "salvage" else 1)
    status, shown = on_a_terminal("recover", root, "--mode", mode)
    words = ANSI.sub("", shown)
    assert status == 0
    assert f"{size}/{size} bytes" in words
    assert ["t", "0", "0", "6", "0", "0"] in [line.split()[:6] for line in words.splitlines()]


@pytest.mark.parametrize("kind", ["file", "standard-input", "pipe"])
def test_import_has_a_progress_bar_that_counts_the_bytes_of_its_input(tmp_path, kind):
    lines = b'{"topic":"t","timestamp":1}\n' * 10
    (tmp_path / "in").write_bytes(lines)
    command = ["import", tmp_path / "in" if kind == "file" else "-", tmp_path / "logs"]
    with subprocess.Popen(["cat", tmp_path / "in"], stdout=PIPE) as pipe, open(tmp_path / "in", "rb") as file:
        status, shown = on_a_terminal(*command, stdin=pipe.stdout if kind == "pipe" else file)
    total = "?" if kind == "pipe" else len(lines)
    assert status == 0
    assert f"{len(lines)}/{total} bytes" in ANSI.sub("", shown)
