"""python -m tests.repo.release: every step of a release up to the upload; ends with 1 at the first that fails.

--tag TAG: the version, the changelog and the pages have to fit it; without it what does not fit is only said.
--out OUT: the directory of what is made (default: build/release): dist/ with an sdist and the wheel that it builds, the
SBOM of what `pip install` brings, the recipe of conda-forge, the environments. --files DIR: only check the files of a
release that are there. --recipe SDIST: only print the recipe for an sdist.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.repo.release.files import wrong_files
from tests.repo.release.recipe import recipe_of
from tests.repo.release.version import left_to_do, version_of

ROOT = Path(__file__).resolve().parents[3]
TOOLS = Path(__file__).with_name("tools.txt")
SMOKE = ROOT / "tests" / "wheel" / "smoke.py"
FLIGHTS = ROOT / "examples" / "flights"
# Of Go's modules; its check of a workflow's steps takes shellcheck from the tools.
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
# What the smoke of a wheel needs.
EXTRAS = "cli,arrow"


class ReleaseError(Exception):
    """A step failed; the text is what it printed."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def environment(target: Path, *what: str | Path) -> Path:
    """Install into a new environment without pip, by this one's; return the directory of its commands."""
    venv.create(target, clear=True, symlinks=True)
    run(sys.executable, "-m", "pip", "--python", target / "bin" / "python", "install", "--quiet", *what)
    return target / "bin"


def steps(out: Path) -> Iterator[str]:
    """Do one step after the other in an empty directory; yield what each has to say."""
    version = version_of(ROOT)
    tools = environment(out / "tools", "--requirement", TOOLS)
    yield f"tools: {shown(tools)}"
    run(tools / "zizmor", "--offline", "--no-progress", "--min-severity", "medium", ".github")
    images = sorted((ROOT / "examples").rglob("*Dockerfile"))
    run(tools / "hadolint", "--no-color", "--failure-threshold", "warning", *images)
    yield f"workflows by zizmor, and {len(images)} Dockerfiles: nothing found"
    if go := shutil.which("go"):
        run(go, "run", ACTIONLINT, "-shellcheck", tools / "shellcheck")
    yield f"workflows by actionlint: {'nothing found' if go else 'left out, go is not installed'}"
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out / "dist", ".")
    files = sorted((out / "dist").iterdir())
    if wrong := wrong_files(files, version):
        raise ReleaseError("\n".join(wrong))
    yield f"sdist, and the wheel that it builds: {', '.join(path.name for path in files)}"
    run(tools / "twine", "check", "--strict", *files)
    yield "twine check: passed"
    sdist, wheel = (next((out / "dist").glob(pattern)) for pattern in ("*.tar.gz", "*.whl"))
    (out / "recipe.yaml").write_text(recipe_of(sdist))
    bare = environment(out / "bare", wheel)
    sbom = out / f"kstore-{version}.cdx.json"
    yield f"SBOM of {write_sbom(sbom, tools=tools, python=bare / 'python')} packages: {shown(sbom)}"
    yield f"an empty environment: {smoke(environment(out / 'installed', f'{wheel}[{EXTRAS}]'), version, out)}"


def shown(path: Path) -> str:
    """Return a path as it is called in the tree, if it is there."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def write_sbom(sbom: Path, *, tools: Path, python: Path) -> int:
    """Write what an environment has, as CycloneDX, which the tool validates; return the number of packages."""
    options = ("--output-reproducible", "--spec-version", "1.6", "--output-file", sbom)
    run(tools / "cyclonedx-py", "environment", *options, python)
    return len(json.loads(sbom.read_text())["components"])


def smoke(commands: Path, version: str, out: Path) -> str:
    """Use an installed wheel away from the tree; return what its command says of the version."""
    said = run(commands / "kstore", "--version", cwd=out).strip()
    if said != f"kstore {version}":
        raise ReleaseError(f"kstore --version: expected 'kstore {version}', found '{said}'")
    for partition in sorted(FLIGHTS.glob("flights-lz4-*")):
        run(commands / "python", "-I", SMOKE, partition, cwd=out)
    run(commands / "kstore", "verify", FLIGHTS, cwd=out)
    return said


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.repo.release", description=__doc__)
    parser.add_argument("--tag")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--files", metavar="DIR", type=Path)
    parser.add_argument("--recipe", metavar="SDIST", type=Path)
    options = parser.parse_args(arguments)
    if options.recipe is not None:
        sys.stdout.write(recipe_of(options.recipe))
        return 0
    if options.files is not None:
        wrong = wrong_files(options.files.iterdir(), version_of(ROOT))
        sys.stdout.writelines(f"{line}\n" for line in wrong)
        return bool(wrong)
    open_points = left_to_do(ROOT, options.tag)
    sys.stdout.writelines(f"before the tag: {line}\n" for line in open_points)
    if open_points and options.tag is not None:
        return 1
    out = options.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    began = time.monotonic()
    try:
        for said in steps(out):
            sys.stdout.write(f"{time.monotonic() - began:6.1f} s  {said}\n")
            sys.stdout.flush()
    except ReleaseError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
