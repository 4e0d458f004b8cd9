"""Goal: what the README tells people to type works as it stands.
Method: run its Python blocks and its kstore lines in the tree, and look at what they print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^    kstore (.+)$", README, re.MULTILINE)


def block_that_uses(word: str) -> str:
    (block,) = [block for block in BLOCKS if word in block]
    return block


def printed(*command: str) -> str:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_polars_example_prints_the_rows_of_each_partition() -> None:
    shown = printed("-c", block_that_uses("polars"))
    assert all(rows in shown for rows in ("36097", "35165", "38738"))
    assert "2013-01-01" in shown


def test_python_example_prints_the_last_records() -> None:
    lines = printed("-c", block_that_uses("flights-lz4-0")).splitlines()
    assert lines[0] == "0 36097"
    assert [line.split()[0] for line in lines[1:]] == ["36095", "36096"]


def test_writing_example_prints_what_was_appended_and_read_back() -> None:
    info, read = printed("-c", block_that_uses("flushed")).splitlines()
    assert info.startswith("LogAppendInfo(base_offset=0, last_offset=1, ")
    assert read == "[(0, b'v'), (1, b'v')]"


@pytest.mark.spark
def test_spark_example_counts_the_rows_of_each_partition() -> None:
    shown = printed("-c", block_that_uses("SparkSession"))
    assert all(re.search(rf"flights-lz4\| +{n}\|{rows}\|", shown) for n, rows in enumerate((36097, 35165, 38738)))


@pytest.mark.parametrize("command", COMMANDS)
def test_command_line_example_prints_something_and_ends_well(command: str) -> None:
    assert printed("-m", "kstore", *shlex.split(command)).strip()
