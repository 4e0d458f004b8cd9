"""Goal: on a system that kstore does not run on, an import and a build say so in one line, whatever is imported first.
Method: other Python processes in which sys.platform is that of the system; no core is looked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kstore

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(kstore.__file__).parent
ON_WINDOWS = "import sys; sys.platform = 'win32'"


def run(tree: Path, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{ON_WINDOWS}\n{code}"]
    return subprocess.run(command, cwd=tree, env={"PYTHONPATH": ""}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("has_core", [False, True])
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import kstore", id="package"),
        pytest.param("from kstore.store.opening import open_log", id="module"),
    ],
)
def test_import_on_windows_is_refused_and_says_where_kstore_runs(tmp_path: Path, code: str, has_core: bool) -> None:
    ignored = shutil.ignore_patterns("*.c", "__pycache__", *([] if has_core else ["*.so"]))
    shutil.copytree(PACKAGE, tmp_path / "kstore", ignore=ignored)
    said = run(tmp_path, f"try:\n    {code}\nexcept ImportError as error:\n    print(type(error), error.name, error)")
    assert said.stdout.startswith("<class 'ImportError'> kstore kstore runs on Linux and macOS, not on Windows:")
    assert "In WSL" in said.stdout
    assert said.stderr == ""


def test_build_on_windows_is_refused_before_anything_is_compiled() -> None:
    done = run(ROOT, "import runpy; runpy.run_path('setup.py', run_name='__main__')")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("kstore runs on Linux and macOS, not on Windows")
