"""Goal: an image of examples holds what its command needs, copies what the tree has, and starts.
Method: read each Dockerfile; install the wheel with the extras that it names into an empty environment, and run its
entry point there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.making.collecting import over
from tests.making.installing import Environments

pytestmark = [pytest.mark.build, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
IMAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*Dockerfile"))
COMMAND, SPARK = "examples/docker/Dockerfile", "examples/docker/spark.Dockerfile"


def lines_of(image: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments."""
    text = re.sub(r"\\\n\s*", "", (ROOT / image).read_text())
    lines = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(instruction, arguments) for instruction, _, arguments in lines]


def entry_of(image: str) -> list[str]:
    """Return the command line of a container without arguments."""
    lines = dict(lines_of(image))
    return [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]


def extras_of(image: str) -> list[str]:
    """Return the extras that an image builds wheels of, and those that it installs."""
    return re.findall(r"'(?:/source|kstore)\[([\w,]+)\]'", (ROOT / image).read_text())


@over("image", IMAGES)
def test_image_installs_the_extras_whose_wheels_it_built_and_runs_as_no_root(image: str) -> None:
    built, installed = extras_of(image)
    assert built == installed, image
    lines = lines_of(image)
    stages = [at for at, (instruction, _) in enumerate(lines) if instruction == "FROM"]
    assert len(stages) == 2, image
    assert len({lines[at][1].partition(" AS ")[0] for at in stages}) == 1, image
    assert dict(lines[stages[1] :])["USER"] not in {"root", "0"}, image
    kept = [
        arguments for instruction, arguments in lines[stages[1] :] if instruction == "COPY" and "--from" in arguments
    ]
    assert kept == [], f"{image}: the wheels stay in the image beside what is installed of them"


@over("image", IMAGES)
def test_files_that_an_image_copies_are_in_the_tree_and_not_left_out_of_its_context(image: str) -> None:
    copied = [arguments.split()[0] for instruction, arguments in lines_of(image) if instruction == "COPY"]
    paths = [path for path in copied if not path.startswith("--from")]
    assert "." in paths, image
    assert [path for path in paths if not (ROOT / path).exists()] == [], image
    ignored = {line.strip("*/") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert {path.split("/")[0] for path in paths} & ignored == set(), image
    assert {".venv", ".git", "build", "__pycache__"} <= ignored


def run(environments: Environments, image: str, arguments: list[str], cwd: Path, **more: str) -> str:
    """Run a command line of an image in an empty environment with its extras; return what it prints."""
    commands = environments.python(extras_of(image)[0]).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "VIRTUAL"))}
    # The scripts of other packages are not linked to bin/: those of pyspark are in the package too.
    found = [*commands.glob(arguments[0]), *commands.parent.glob(f"lib/*/site-packages/pyspark/bin/{arguments[0]}")]
    done = subprocess.run(
        [found[0], *arguments[1:]],
        cwd=cwd,
        env={**kept, **more, "PATH": f"{commands}{os.pathsep}{kept['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_command_of_an_image_shows_its_help_and_reads_and_exports_a_directory(
    environments: Environments, tmp_path: Path
) -> None:
    entry = entry_of(COMMAND)
    assert "Usage: kstore" in run(environments, COMMAND, entry, tmp_path)
    flights = str(ROOT / "examples" / "flights")
    assert "flights-lz4" in run(environments, COMMAND, [entry[0], "ls", flights], tmp_path)
    run(environments, COMMAND, [entry[0], "export", flights, "out"], tmp_path)
    assert list((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.spark
def test_image_of_spark_counts_the_records_of_a_directory(environments: Environments, tmp_path: Path) -> None:
    program, job, _ = entry_of(SPARK)
    assert job == "/jobs/count_records.py"
    job = str(ROOT / "examples" / "docker" / "count_records.py")
    python = str(environments.python(extras_of(SPARK)[0]))
    arguments = [program, "--conf", "spark.ui.enabled=false", job, str(ROOT / "examples" / "flights")]
    printed = run(environments, SPARK, arguments, tmp_path, PYSPARK_PYTHON=python, SPARK_LOCAL_IP="127.0.0.1")
    assert printed.splitlines()[-1] == "flights-lz4 110000"
    assert ("ENV", "PYSPARK_PYTHON=/usr/local/bin/python3") in lines_of(SPARK)
