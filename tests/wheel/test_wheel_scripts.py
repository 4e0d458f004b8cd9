"""Goal: the scripts that run beside a new wheel use every extra, see what is wrong, and hold with many threads.
Method: the smoke's table against pyproject.toml, its outcomes without pip; the stress in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.wheel import smoke, stress

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "examples" / "flights" / "flights-lz4-0"


def test_every_extra_for_users_has_a_use() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(smoke.USES) == set(project["optional-dependencies"]) - {"bench"}


def test_a_partition_that_is_not_what_its_manifest_says_is_a_fault(tmp_path: Path, capsys) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "MANIFEST.json").write_text(
        '{"partitions": [{"partition": 0, "records": 1, "log_end_offset": 0, "values_sha256": "00"}]}'
    )
    assert smoke.differs(tmp_path / "t-0")
    assert not smoke.differs(FLIGHTS)
    assert capsys.readouterr().out.count('"records"') == 2


def test_an_extra_whose_packages_are_missing_is_skipped_and_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(smoke, "packages_of", lambda _: iter(["no-such-package>=1"]))
    assert smoke.outcome_of("arrow", tmp_path, may_install=False) == "skipped, no-such-package>=1 not installed"
    monkeypatch.setattr(smoke, "installed", lambda _: "no-such-package")
    said = smoke.outcome_of("arrow", tmp_path, may_install=True)
    assert said == "skipped, no-such-package has no wheel for this Python here"


def test_pip_that_fails_for_another_reason_than_a_missing_wheel_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr(smoke.sys, "executable", "false")
    with pytest.raises(RuntimeError, match="pip could not install numpy"):
        smoke.installed(["numpy"])


@pytest.mark.parametrize("extra", ["tiered", "metrics", "arrow"])
def test_an_extra_is_used(extra: str, tmp_path: Path) -> None:
    pytest.importorskip({"tiered": "cryptography", "metrics": "prometheus_client", "arrow": "pyarrow"}[extra])
    root = smoke.written(tmp_path)
    (tmp_path / "scratch").mkdir()
    smoke.USES[extra](root, tmp_path / "scratch")


@pytest.mark.parametrize("work", sorted(stress.WORKS))
def test_threads_get_what_one_thread_alone_gets(work: str, tmp_path: Path) -> None:
    stress.WORKS[work](tmp_path / "root", threads=4, rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("work", sorted(stress.WORKS))
def test_many_threads_get_what_one_thread_alone_gets_in_many_rounds(work: str, tmp_path: Path) -> None:
    stress.WORKS[work](tmp_path / "root", threads=8, rounds=60)


def test_an_error_of_one_thread_fails_the_stress() -> None:
    def fail(number: int) -> None:
        assert number != 2, "the third thread"

    with pytest.raises(AssertionError, match="the third thread"):
        stress.in_threads(4, fail)


def test_core_does_not_declare_that_it_needs_no_lock() -> None:
    """So an import turns the lock on, with Python's warning; docs/platforms.md says what has to change first."""
    sources = [ROOT / "setup.py", ROOT / "kstore" / "_core.pyx", *(ROOT / "kstore" / "core").rglob("*.pxi")]
    assert [path.name for path in sources if "freethreading_compatible" in path.read_text()] == []
    assert "does not declare `freethreading_compatible`" in (ROOT / "docs" / "platforms.md").read_text()


def test_lock_is_on_where_the_core_is_imported() -> None:
    assert getattr(sys, "_is_gil_enabled", lambda: True)()
