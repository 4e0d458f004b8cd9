"""Goal: what users install is whole, holds no build leftovers, and works where the source tree is not.
Method: build wheel and sdist once from a copy of the tree, install the wheel into an empty environment, read."""

from __future__ import annotations

import email
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import Translation
from tests.making.installing import Environments, build_wheel, run
from tests.making.source_tree import copy_rest, rest_of_tree

pytestmark = [pytest.mark.build, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "examples" / "flights"
SMOKE = ROOT / "tests" / "wheel" / "smoke.py"
BENCHES_IN_C = {"bench/rivals/avro.c", "bench/rivals/group_commit.c", "bench/rivals/limit.c"}
CODECS = {"cramjam", "isal", "lz4", "zstandard"}


@pytest.fixture(scope="session")
def sdist(translation: Translation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made where generated C lies about."""
    target, tree = tmp_path_factory.mktemp("sdist"), copy_rest(translation.tree)
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", target, tree, cwd=target)
    (archive,) = target.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="session")
def wheel_of_sdist(
    sdist: Path, translation: Translation, compiler: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    target = tmp_path_factory.mktemp("from-sdist") / "dist"
    return build_wheel(sdist, target, compiler=compiler, translator=translation.translator)


@pytest.fixture(scope="session")
def installed(environments: Environments) -> Path:
    """The Python of an empty environment into which the wheel, without extras, was installed."""
    return environments.python("none")


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def tree_sources() -> set[str]:
    """Return what of the tree belongs into a wheel."""
    paths = [path for room in ("kstore", "pyspark_kstore") for path in (ROOT / room).rglob("*") if path.is_file()]
    paths.remove(ROOT / "kstore/core/__init__.py")
    kinds = {".py", ".pyi", ".j2", ".json"}
    return {path.relative_to(ROOT).as_posix() for path in paths if path.suffix in kinds or path.name == "py.typed"}


def test_wheel_holds_the_library_the_sources_and_nothing_else(wheel: Path) -> None:
    library = f"kstore/_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    manual = f"{wheel.name.partition('-cp')[0]}.data/data/share/man/man1/kstore.1"
    assert names(wheel) == tree_sources() | {library, manual}
    assert {"kstore/_core.pyi", "kstore/py.typed", "pyspark_kstore/__init__.py"} <= names(wheel)


def inside(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def test_sdist_holds_sources_and_no_generated_file(sdist: Path) -> None:
    found = inside(sdist)
    assert {"kstore/_core.pyx", "kstore/_core_cpu.h", "kstore/core/format.pxi", "setup.py", "LICENSE"} <= found
    assert {name for name in found if name.endswith((".c", ".so", ".html", ".pyc"))} == BENCHES_IN_C


def test_sdist_holds_all_tests_docs_and_examples(sdist: Path) -> None:
    assert rest_of_tree() - inside(sdist) == set()


def test_sdist_takes_half_of_what_the_index_accepts_at_most(sdist: Path) -> None:
    """Most of it is what brokers wrote, which the tests need; why it is within: CONTRIBUTING.md."""
    assert sdist.stat().st_size <= 50_000_000


def test_index_shows_description_links_and_topics(wheel: Path) -> None:
    found = metadata(wheel)
    said = {line.partition(", ")[0]: line.partition(", ")[2] for line in found.get_all("Project-URL") or []}
    assert set(said) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert [line for line in found.get_all("Classifier") or [] if line.startswith("Topic ::")]
    assert found["Description-Content-Type"] == "text/markdown"
    description = str(found.get_payload())
    targets = re.findall(r"\]\(([^)]+)\)", description)
    assert {target for target in targets if not target.startswith(("https://", "#"))} == set()
    paths = [target.split("/", 7)[7] for target in targets if target.startswith(f"{said['Source']}/")]
    assert {"docs/pictures/terminal.svg", "docs/cli.md"} <= set(paths)
    assert [path for path in paths if not (ROOT / path.partition("#")[0]).exists()] == []


def test_sdist_builds_the_same_wheel(wheel: Path, wheel_of_sdist: Path) -> None:
    assert names(wheel_of_sdist) == names(wheel)
    assert wheel_of_sdist.name == wheel.name
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(wheel_of_sdist) as other:
        sources = [name for name in names(wheel) if not name.endswith(".so")]
        assert [name for name in sources if one.read(name) != other.read(name)] == []


def test_core_needs_no_symbol_newer_than_the_tag_of_its_wheels(wheel: Path) -> None:
    """manylinux_2_28: glibc 2.28, and no other library."""
    with zipfile.ZipFile(wheel) as archive:
        core = archive.read(f"kstore/_core{sysconfig.get_config_var('EXT_SUFFIX')}")
    versions = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_(\d+(?:\.\d+)+)", core)}
    assert versions
    assert {version for version in versions if version > (2, 28)} == set()
    assert set(re.findall(rb"lib[a-z_+]+\.so\.\d+", core)) <= {b"libc.so.6", b"libm.so.6", b"libpthread.so.0"}


def test_build_asks_for_no_instruction_beyond_the_baseline_cpu() -> None:
    assert not re.search(r"-m(arch|cpu|tune|avx|sse|bmi)", (ROOT / "setup.py").read_text())


def test_bare_install_needs_only_the_codecs(installed: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", installed)
    listed = json.loads(run(*pip, "list", "--format", "json", cwd=installed.parent))
    assert {entry["name"] for entry in listed} == {"kstore"} | CODECS


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        pytest.param("arrow", {"pyarrow", "numpy"}, id="arrow"),
        pytest.param("spark", {"pyarrow", "numpy", "pyspark"}, id="spark"),
        pytest.param("cli", {"typer", "rich"}, id="cli"),
        pytest.param("report", {"jinja2", "vl-convert-python"}, id="report"),
        pytest.param("progress", {"tqdm"}, id="progress"),
        pytest.param("tiered", {"cryptography"}, id="tiered"),
        pytest.param("protobuf", {"pyarrow", "numpy", "protobuf", "grpcio-tools"}, id="protobuf"),
        pytest.param("bench", {"crc32c", "numpy", "pyarrow", "pytest", "pytest-benchmark"}, id="bench"),
    ],
)
def test_extra_names_its_packages(wheel: Path, extra: str, expected: set[str]) -> None:
    requirements = metadata(wheel).get_all("Requires-Dist") or []
    named = {re.split(r"[^\w-]", line)[0] for line in requirements if f'extra == "{extra}"' in line}
    assert named == expected


def test_installed_wheel_reads_a_segment_outside_the_tree(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(FLIGHTS, tmp_path / "flights", ignore=shutil.ignore_patterns("*-1", "*-2"))
    found = json.loads(run(installed, "-I", SMOKE, "flights/flights-lz4-0", cwd=tmp_path))
    assert found["records"] == 36_097
    assert Path(found["package"]).is_relative_to(installed.parents[1])


def test_command_without_its_extra_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    command = [installed.parent / "kstore", "ls", str(FLIGHTS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "pip install" in done.stderr
    assert "kstore[cli]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_import_needs_no_optional_package(installed: Path, tmp_path: Path) -> None:
    code = "import sys, kstore; print(sorted({'pyarrow', 'pyspark', 'typer', 'rich'} & set(sys.modules)))"
    assert run(installed, "-I", "-c", code, cwd=tmp_path).strip() == "[]"


def test_wheel_matrix_covers_every_supported_python(wheel: Path) -> None:
    classifiers = metadata(wheel).get_all("Classifier") or []
    supported = {
        match[1] for line in classifiers if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    }
    built = set(re.findall(r"cp3(\d+)-\*", (ROOT / "wheels.yml").read_text()))
    assert supported == {f"3.{minor}" for minor in built}
    assert "cp314t-*" in (ROOT / "wheels.yml").read_text()
