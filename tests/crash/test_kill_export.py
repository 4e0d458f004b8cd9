"""Goal: wherever an export is killed, the same call goes on: nothing is missing, nothing is there twice, and no file
is in the manifest that is not finished.
Method: a forked process kills itself before one chosen call that changes a file, or a command is killed from outside at
a random instant; what it left is exported again, while the source grows."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.archive import read_manifest
from kstore.archive.files import crc_of
from kstore.env import DEFAULT_ENV
from tests.making.exporting import grow, rows_of_export, rows_of_source

REPOSITORY = Path(__file__).resolve().parents[2]
KILLED = -9
FORMATS = ("parquet", "arrow", "kstore")


class Exporters:
    """The process that forks exports."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.killed_export"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, source: Path, target: Path, format: str, *, threads: int = 1, kill_at: int = 0) -> tuple[int, int]:
        """Return the exit status of an export, and its calls that change a file."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{source} {target} {format} {threads} {kill_at}\n")
        self._process.stdin.flush()
        status, calls = self._process.stdout.readline().split()
        return int(status), int(calls)

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def exporters() -> Iterator[Exporters]:
    found = Exporters()
    yield found
    found.close()


def check_finished_files(target: Path) -> None:
    """Check that each file that the manifest lists is whole, or was just joined to another one."""
    manifest = read_manifest(target)
    for file in () if manifest is None else manifest.files:
        if (target / file.path).exists() and manifest.format != "kstore":
            assert crc_of(str(target / file.path), DEFAULT_ENV) == (file.size_in_bytes, file.crc32c)


def kill_and_go_on(exporters: Exporters, directory: Path, format: str, *, kills: int, seed: int) -> int:
    """Export a root that grows, each run killed somewhere, and check each time what is there; return the kills."""
    rng = random.Random(seed)
    source, target = directory / "source", directory / "out"
    directory.mkdir(exist_ok=True)
    grow(source, 60)
    _, most = exporters.run(source, directory / "counted", format)
    killed = 0
    for number in range(kills):
        kill_at = rng.randint(1, most + 5)
        status, _ = exporters.run(source, target, format, threads=1 + number % 2, kill_at=kill_at)
        assert status in (KILLED, 0)
        killed += status == KILLED
        check_finished_files(target)
        if rng.random() < 0.4:
            assert exporters.run(source, target, format)[0] == 0
            assert rows_of_export(target) == rows_of_source(source)
        if rng.random() < 0.6:
            grow(source, rng.randint(1, 40))
    assert exporters.run(source, target, format)[0] == 0
    assert rows_of_export(target) == rows_of_source(source)
    return killed


@pytest.mark.parametrize("format", FORMATS)
def test_export_killed_and_resumed_has_each_record_once(exporters: Exporters, tmp_path: Path, format: str) -> None:
    assert kill_and_go_on(exporters, tmp_path, format, kills=8, seed=3) > 3


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
def test_export_killed_before_every_call_has_each_record_once(
    exporters: Exporters, tmp_path: Path, format: str
) -> None:
    assert sum(kill_and_go_on(exporters, tmp_path / str(seed), format, kills=25, seed=seed) for seed in range(8)) > 60


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
def test_command_killed_at_100_random_instants_has_each_record_once(tmp_path: Path, format: str) -> None:
    rng = random.Random(11)
    source, target = tmp_path / "source", tmp_path / "out"
    grow(source, 2000)
    command = [sys.executable, "-m", "kstore", "export", str(source), str(target), "--format", format]
    command += ["--file-bytes", "16384"]
    for _ in range(2):
        began = time.monotonic()
        subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
        usual = time.monotonic() - began
        grow(source, 20)
    killed = 0
    while killed < 100:
        began = time.monotonic()
        with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(rng.uniform(0.4, 1) * usual)
                usual = time.monotonic() - began
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                killed += 1
        assert process.returncode in (0, KILLED)
        check_finished_files(target)
        grow(source, 20)
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    assert rows_of_export(target) == rows_of_source(source)
