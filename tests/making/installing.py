"""Wheels of the tree, and empty environments into which one is installed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
# What a page tells its readers to install besides an extra of kstore.
BESIDES = {"arrow": ("polars", "duckdb", "pandas", "deltalake"), "arrow,cli,spark": ("polars",)}
# A compilation is "-c SOURCE -o OBJECT" among other arguments; all else goes to the compiler as it is.
COMPILE_ONCE = """#!/bin/bash
object= rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    -o) object=$2; shift ;;
    -O3) rest+=(-O0) ;;
    -D_FORTIFY_SOURCE=*) ;;
    *) rest+=("$1") ;;
  esac
  shift
done
case " ${{rest[*]}} " in
  *" -c "*) ;;
  *) exec {cc} "${{rest[@]}}" ${{object:+-o "$object"}} ;;
esac
preprocessed=$({cc} -E "${{rest[@]/#-c/-P}}" | sha256sum; exit "${{PIPESTATUS[0]}}") || exit 1
kept={kept}/$(echo "$preprocessed ${{rest[*]}}" | sha256sum | cut -c1-64).o
[ -e "$kept" ] || {cc} "${{rest[@]}}" -o "$kept" || exit 1
mkdir -p "$(dirname "$object")" && cp "$kept" "$object"
"""

# Cython looks for what it made of the same sources with the same options.
TRANSLATE_ONCE = """from Cython.Compiler import Options

Options.default_options["cache"] = {kept!r}
"""


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command away from the tree; fail with what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "KSTORE_DEBUG"}}
    environment |= variables
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def build_wheel(source: Path, target: Path, *, compiler: Path, translator: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    variables = {"CC": str(compiler), "PYTHONPATH": str(translator)}
    run(*pip, "--wheel-dir", target, source, cwd=target.parent, **variables)
    (wheel,) = target.glob("*.whl")
    return wheel


def write_compiler(directory: Path) -> Path:
    """Write the C compiler, but it takes less pains, on which nothing here depends, and none for what it compiled."""
    script = directory / "cc"
    script.write_text(COMPILE_ONCE.format(kept=shlex.quote(str(directory)), cc=sysconfig.get_config_var("CC")))
    script.chmod(0o755)
    return script


def write_translator(directory: Path) -> Path:
    """Write what lets each Python that has the directory on its path translate a source once; return the directory."""
    (directory / "sitecustomize.py").write_text(TRANSLATE_ONCE.format(kept=str(directory / "kept")))
    return directory


class Environments:
    """Virtual environments, each with the wheel and what some of its extras name, made when first asked for.

    The one without extras is what pip installs, of the versions in requirements-dev.txt. The others have links to what
    is installed here of the packages that the wheel requires, and of what those require: nothing else is found there,
    as if pip had unpacked it again.
    """

    def __init__(self, wheel: Path, directory: Path) -> None:
        self._wheel = wheel
        self._directory = directory

    def python(self, extra: str) -> Path:
        """Return the Python of an environment with extras, separated by commas, or with none of them for "none"."""
        target = self._directory / extra
        python = target / "bin" / "python"
        if not target.exists():
            venv.create(target, symlinks=True)
            pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
            pins = ("--constraint", ROOT / "requirements-dev.txt")
            if extra == "none":
                run(*pip, *pins, self._wheel, cwd=self._directory)
            else:
                run(*pip, "--no-deps", self._wheel, cwd=self._directory)
                (packages,) = target.glob("lib/python*/site-packages")
                (kstore,) = metadata.distributions(name="kstore", path=[str(packages)])
                link_required(kstore, extra.split(","), packages, besides=BESIDES.get(extra, ()))
        return python


def link_required(
    distribution: metadata.Distribution, extras: Sequence[str], target: Path, *, besides: Sequence[str]
) -> None:
    """Link the files of all that a distribution requires, directly or not, from this environment to a directory.

    Raises: AssertionError where the version that is here is not one that is required.
    """
    wanted = [*required_by(distribution, extras), *map(Requirement, besides)]
    linked: set[tuple[str, tuple[str, ...]]] = set()
    while wanted:
        requirement = wanted.pop()
        asked = canonicalize_name(requirement.name), tuple(sorted(requirement.extras))
        if asked in linked:
            continue
        linked.add(asked)
        here = metadata.distribution(requirement.name)
        assert requirement.specifier.contains(here.version, prereleases=True), f"{requirement}: found {here.version}"
        wanted += required_by(here, asked[1])
        for file in here.files or ():
            if ".." not in file.parts:
                link = target / file
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.exists():
                    link.symlink_to(here.locate_file(file))


def required_by(distribution: metadata.Distribution, extras: Sequence[str]) -> list[Requirement]:
    """Return what a distribution requires here, with extras."""
    requirements = map(Requirement, distribution.requires or ())
    contexts = [{"extra": extra} for extra in ("", *extras)]
    return [one for one in requirements if one.marker is None or any(map(one.marker.evaluate, contexts))]
