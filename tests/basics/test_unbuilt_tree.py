"""Goal: a source tree without its compiled core says so, and how to build it, whatever is imported first.
Method: the package without its extension in a folder of its own, imported by another Python process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kstore

PACKAGE = Path(kstore.__file__).parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / "kstore", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    return tmp_path


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=tree, env={"PYTHONPATH": ""}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("-c", "import kstore"), id="package"),
        pytest.param(("-c", "from kstore.store.opening import open_log"), id="module"),
        pytest.param(("-m", "kstore", "ls", "."), id="command"),
    ],
)
def test_import_from_an_unbuilt_tree_says_which_command_builds_it(tree: Path, arguments: tuple[str, ...]) -> None:
    done = run(tree, *arguments)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ModuleNotFoundError: the compiled core of kstore, kstore._core, is not built in {tree}")
    assert f"`{sys.executable} -m pip install --editable .`" in said
    assert "make build" in said
    assert "another directory" in said


def test_other_modules_that_are_missing_are_named_as_they_are(tree: Path) -> None:
    (tree / "kstore" / "_core.py").write_text("import no_such_module\n")
    done = run(tree, "-c", "from kstore.store.opening import open_log")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module'"


def test_core_that_comes_from_another_finder_is_taken(tree: Path) -> None:
    (tree / "frozen.py").write_text(
        "import sys\n"
        "from importlib.abc import Loader, MetaPathFinder\n"
        "from importlib.machinery import ModuleSpec\n"
        "class Frozen(MetaPathFinder, Loader):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        return ModuleSpec(name, self) if name == 'kstore._core' else None\n"
        "    def exec_module(self, module):\n"
        "        pass\n"
        "sys.meta_path.insert(0, Frozen())\n"
    )
    done = run(tree, "-c", "import frozen, kstore; print(kstore.__version__)")
    assert (done.stdout, done.stderr) == (f"{kstore.__version__}\n", "")
