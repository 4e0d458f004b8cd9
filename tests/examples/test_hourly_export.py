"""Goal: who copies the timer or the crontab has every record exported once, each run what is new.
Method: the command line of each file, run twice as a process on a log that grows; the units asked of systemd."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import kstore

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "hourly-export"
PROGRAM = "/opt/kstore/bin/kstore"


def command_of(name: str, root: Path, target: Path) -> list[str]:
    """Return the arguments of the command in a file, with these directories in place of its own."""
    text = (FOLDER / name).read_text()
    pattern = r"^ExecStart=(.*)$" if name.endswith(".service") else r"^(?:\S+ ){5}(.*?)(?: >> .*)?$"
    (line,) = re.findall(pattern, "\n".join(line for line in text.splitlines() if not line.startswith("#")), re.M)
    words = shlex.split(line)
    _, export, source, out, *options = words[words.index(PROGRAM) :]
    assert (export, source) == ("export", "/var/lib/kafka")
    assert out.startswith(("/var/lib/kstore-export/", "/srv/"))
    return [sys.executable, "-m", "kstore", export, str(root), str(target), *options]


def append(root: Path, values: list[bytes]) -> None:
    with kstore.open_log(root / "orders-0", "a") as log:
        log.append([kstore.Record(value=value) for value in values])


@pytest.mark.parametrize("name", ["kstore-export.service", "crontab"])
def test_second_run_exports_only_what_was_written_since_the_first(tmp_path: Path, name: str) -> None:
    root, target = tmp_path / "kafka", tmp_path / "parquet"
    root.mkdir()
    command = command_of(name, root, target)
    new = []
    for values in ([b"1", b"2", b"3"], [b"4", b"5"], []):
        if values:
            append(root, values)
        done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        new.append(json.loads(done.stdout)["new_records"])
    assert new == [3, 2, 0]
    table = ds.dataset(target, format="parquet", exclude_invalid_files=True).to_table(columns=["offset", "value"])
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == [(n, b"%d" % (n + 1)) for n in range(5)]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for name in ("kstore-export.service", "kstore-export.timer"):
        unit = (FOLDER / name).read_text()
        (tmp_path / name).write_text(unit.replace(PROGRAM, sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "kstore-export.timer")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    own = [line for line in (done.stdout + done.stderr).splitlines() if str(tmp_path) in line or "kstore" in line]
    assert (done.returncode, own) == (0, [])


def test_timer_runs_the_unit_of_its_name_each_hour_and_makes_up_for_missed_runs() -> None:
    timer = (FOLDER / "kstore-export.timer").read_text().splitlines()
    assert {"OnCalendar=hourly", "Persistent=yes", "WantedBy=timers.target"} <= set(timer)
    assert "Type=oneshot" in (FOLDER / "kstore-export.service").read_text().splitlines()
    assert re.search(r"^\d+ \* \* \* \* ", (FOLDER / "crontab").read_text(), re.MULTILINE)
