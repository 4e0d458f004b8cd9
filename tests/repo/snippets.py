"""The snippets of README.md and docs: what a reader would copy, with the output that the page shows.

A snippet is a ```python or ```sql block, with a ```text block that follows it as its output; or, in an indented block,
a line that starts with `$ `, with the lines up to the next one as its output, or a line that starts with `kstore `.
"""

from __future__ import annotations

import doctest
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# How a snippet starts that is not run, by its page, and why.
NOT_RUN = {
    ("docs/urls.md", 'import kstore\n\nurl = "s3://'): "there is no such bucket",
    ("docs/urls.md", "kstore ls 's3://"): "there is no such bucket",
    ("docs/tiers.md", 'import kstore\n\ntier = "s3://'): "there is no such bucket; tests/golden/test_tiers.py",
    ("docs/tiers.md", 'import kstore\n\nbucket = "s3://'): "as above; tests/tier/test_tier_epoch.py",
    ("docs/tiers.md", 'options = {"tier"'): "as above; tests/spark/test_tiers.py",
    ("docs/tiers.md", "kstore cat /var/lib/kafka --topic orders"): "as above; tests/cli/test_tiers.py",
    ("docs/tiers.md", "kstore export s3://"): "as above; tests/golden/test_tiers.py",
    ("docs/tiers.md", "kstore adopt restored"): "as above; tests/adoption/test_adopt.py",
    ("docs/cli.md", "kstore ls /var/lib/kafka --tier"): "there is no such bucket; tests/cli/test_tiers.py",
    ("docs/cli.md", "kstore export /var/lib/kafka restored"): "as above",
    ("docs/tutorials/fastapi.md", ""): "needs fastapi; tests/examples/test_tutorial.py",
    ("docs/tutorials/serve.md", ""): "needs confluent-kafka; tests/examples/test_tutorial.py",
    ("docs/testing.md", ""): "needs confluent-kafka; tests/examples/test_tutorial.py",
    ("docs/values.md", "rides = kstore.scan("): "needs a root with Protobuf and a registry's topic",
    ("docs/export.md", "rides = spark"): "needs pyspark; tests/spark/test_export.py runs it",
    (
        "docs/export.md",
        'import kstore\n\noptions = {"endpoint_url"',
    ): "there is no such store; tests/urls/test_export.py",
    ("docs/export.md", "import polars as pl\nfrom kstore.archive import read_manifest"): "as above",
    ("docs/export.md", "kstore export examples/flights s3://"): "there is no such store",
    ("docs/scale.md", "from pyspark.sql import"): "needs pandas besides kstore[spark]",
    ("docs/store.md", "from prometheus_client import"): "needs prometheus_client",
    ("docs/cli.md", "kstore serve"): "runs until it is ended, or asks for a password; tests/cli/test_serving.py",
    ("docs/serve.md", "kstore serve"): "runs until it is ended; tests/cli/test_serving.py",
    ("docs/cli.md", "kstore dump --offsets-decoder"): "needs a broker's __consumer_offsets, and jq",
    ("docs/cli.md", "kstore transactions /var/lib/kafka"): "needs a broker's directory",
    ("docs/cli.md", "kstore cat /disk1/kafka /disk2/kafka"): "needs the directories of a broker",
    ("docs/cli.md", "kstore topics"): "tests/cli/test_operating.py",
    ("docs/cli.md", "kstore configs"): "tests/cli/test_operating.py",
    ("docs/cli.md", "kstore delete-records"): "tests/cli/test_operating.py",
    ("docs/cli.md", "kstore delete-topic"): "tests/cli/test_operating.py",
    ("docs/cli.md", "kstore move"): "needs the directories of a broker; tests/cli/test_operating.py",
    ("docs/cli.md", "kstore adopt"): "needs the directories of a broker; tests/adoption/test_adopt.py",
    ("docs/adopt.md", "kstore adopt /var/lib/events"): "needs a root; the other snippets of the page are run",
    ("docs/cli.md", "kstore metadata"): "needs the directory of a broker; tests/cli/test_metadata.py",
    ("docs/cli.md", "kstore completion"): "writes to the home directory; tests/cli/test_help.py",
    ("docs/replay.md", ""): "needs confluent-kafka; tests/replaying/test_page.py",
    ("docs/cli.md", "kstore replay"): "needs a cluster; tests/cli/test_replaying.py",
    ("docs/cli.md", "kstore groups /var/lib/kafka"): "needs a broker's directory",
    ("docs/cli.md", "kstore verify --json /var/lib/kafka"): "needs a broker's directory, and jq",
}
# A program that a command is piped into; the snippet is run where it is there.
PIPED_INTO = re.compile(r"^kstore [^|]* \| (\w+)")
FENCED = re.compile(r"^```(python|sql)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n(?:[ \t]*\n)*)+", re.MULTILINE)
# Runs snippets one after the other in one namespace, up to the first that fails; prints output and error of each.
RUNNER = """
import contextlib, io, json, sys, traceback
namespace, results = {"__name__": "__main__"}, []
for kind, code in json.load(sys.stdin):
    printed, error = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            namespace["spark"].sql(code) if kind == "sql" else exec(compile(code, "<snippet>", "exec"), namespace)
    except BaseException:
        error = traceback.format_exc()
    results.append((printed.getvalue(), error))
    if error:
        break
print("\\n" + json.dumps(results))
"""


class Snippet(NamedTuple):
    """One snippet. kind: python, sql or shell. shown: the output on the page, None if the page shows none."""

    page: str
    line: int
    kind: str
    code: str
    shown: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def why_not_run(self) -> str | None:
        found = (reason for (page, start), reason in NOT_RUN.items() if self.is_at(page, start))
        program = PIPED_INTO.match(self.code) if self.kind == "shell" else None
        missing = f"needs {program[1]}" if program is not None and which(program[1]) is None else None
        return next(found, missing)

    def is_at(self, page: str, start: str) -> bool:
        return self.page == page and self.code.startswith(start)

    @property
    def extra(self) -> str:
        """The extra of kstore that it needs: cli, spark, arrow, or none; commands may need another one besides cli."""
        if self.kind == "shell":
            is_of_rows = self.code.startswith("kstore export") and "--format kstore" not in self.code
            is_of_rows = is_of_rows or "--value avro" in self.code
            return "cli,delta" if "delta:" in self.code else "cli,arrow" if is_of_rows else "cli"
        if self.kind == "sql" or "pyspark" in self.code or "spark." in self.code:
            return "spark"
        return "arrow" if re.search(r"pyarrow|kstore\.scan|kstore\.export", self.code) else "none"


def snippets_of(path: Path) -> list[Snippet]:
    """Return the snippets of a page in their order."""
    text, page = path.read_text(), path.relative_to(ROOT).as_posix()
    found = [
        Snippet(page, text.count("\n", 0, match.start()) + 1, match[1], match[2], match[3])
        for match in FENCED.finditer(text)
    ]
    without_fences = re.sub(r"^```.*?^```$", lambda match: re.sub(r".*", "", match[0]), text, flags=re.M | re.S)
    for block in INDENTED.finditer(without_fences):
        found += _commands(page, without_fences.count("\n", 0, block.start()) + 1, block[0])
    return sorted(found, key=lambda snippet: snippet.line)


def _commands(page: str, first_line: int, block: str) -> list[Snippet]:
    found: list[Snippet] = []
    for number, line in enumerate((line.removeprefix("    ") for line in block.splitlines()), start=first_line):
        if line.startswith("$ "):
            found.append(Snippet(page, number, "shell", line[2:], ""))
        elif found and found[-1].shown is not None:
            found[-1] = found[-1]._replace(shown=f"{found[-1].shown}{line}\n")
        elif line.startswith("kstore ") and not line.startswith("kstore: "):
            found.append(Snippet(page, number, "shell", line, None))
    return found


def difference(snippet: Snippet, printed: str) -> str | None:
    """Return how the output differs from the one on the page, where "..." stands for anything; None if it does not."""
    if snippet.shown is None:
        return None
    checker = doctest.OutputChecker()
    shown, found = (
        "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) for text in (snippet.shown, printed)
    )
    example = doctest.Example(snippet.code, shown)
    if checker.check_output(shown, found, doctest.ELLIPSIS):
        return None
    return f"{snippet.place}: {snippet.code}\n{checker.output_difference(example, found, doctest.REPORT_NDIFF)}"


def run_python(python: Path, snippets: Sequence[Snippet], *, cwd: Path, environment: Mapping[str, str]) -> list[str]:
    """Run snippets in one process, in their order; return what is wrong with them."""
    given = json.dumps([(snippet.kind, snippet.code) for snippet in snippets])
    command = [python, "-I", "-c", RUNNER]
    done = subprocess.run(command, input=given, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong = []
    for snippet, (printed, error) in zip(snippets, json.loads(done.stdout.splitlines()[-1]), strict=False):
        found = f"{snippet.place}: {error}{done.stderr[-2000:]}" if error else difference(snippet, printed)
        wrong += [found] if found else []
    return wrong


def run_commands(snippets: Sequence[Snippet], *, cwd: Path, environment: Mapping[str, str]) -> list[str]:
    """Run commands, in their order; return what is wrong with them. Status 1 is right if the page shows damage."""
    wrong = []
    for snippet in snippets:
        done = subprocess.run(
            ["bash", "-c", snippet.code], cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        if done.returncode > (snippet.shown is not None):
            wrong.append(f"{snippet.place}: {snippet.code}: status {done.returncode}\n{done.stdout}")
        elif found := difference(snippet, done.stdout):
            wrong.append(found)
    return wrong
