"""The linters of the tree: `python -m tests.repo.linters [NAME ...]`, all of them without a name.

tests/repo/test_sourcecode.py runs them in the suite, .pre-commit-config.yaml before a commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE_SOURCES = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "kstore/_core.pyx", *sorted((ROOT / "kstore/core").rglob("*.pxi"))]
]
ALLOWLIST = "tests/repo/stubtest-allowlist.txt"
STUBTEST_OPTIONS = ("--mypy-config-file", "pyproject.toml", "--allowlist", ALLOWLIST, "--ignore-unused-allowlist")
# The linter mypy checks types; here the names are enough, of the stub and of the modules that it imports from.
STUBTEST = """
import ast, sys
from pathlib import Path
from mypy import stubtest
build = stubtest.build_stubs
def build_names(modules, options, **more):
    options.semantic_analysis_only = True
    options.follow_imports = "skip"
    stubs = [ast.parse(Path(f"{name.replace('.', '/')}.pyi").read_text()) for name in modules]
    nodes = [node for stub in stubs for node in ast.walk(stub) if isinstance(node, ast.ImportFrom)]
    build([*modules, *sorted({node.module for node in nodes if node.module.startswith("kstore.")})], options, **more)
    return modules
stubtest.build_stubs = build_names
sys.exit(stubtest.main())
"""
# Arguments of the interpreter.
LINTERS = {
    "ruff-check": ("-m", "ruff", "check", "--no-cache", "."),
    "ruff-format": ("-m", "ruff", "format", "--no-cache", "--check", "."),
    "cython-lint": ("-m", "cython_lint.cython_lint", *CORE_SOURCES),
    "mypy": ("-m", "mypy"),
    "stubtest": ("-c", STUBTEST, "kstore._core", *STUBTEST_OPTIONS),
}


def run(name: str, *, tree: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run one linter over a tree, with the tools of this environment. A tool that finds something exits non-zero."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": tools}
    command = [sys.executable, *LINTERS[name]]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def main(names: list[str]) -> int:
    """Run linters, print what they find, and return 1 if any finds something."""
    status = 0
    for name in names or LINTERS:
        done = run(name)
        if done.returncode:
            status = 1
            sys.stderr.write(f"{name}\n{done.stdout}{done.stderr}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
