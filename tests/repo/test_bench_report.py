# Goal: README, bench/README and their charts show the figures of bench/results, each target beside its figure, of a
# known commit, and every missed target is said to be missed.
# Method: the files against what is made of the results; made-up results and a made-up repository for the rest.

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import common, report
from bench.__main__ import main as bench_main
from bench.common import Case, DirtyTreeError, Samples, Settings, write_results


@pytest.mark.parametrize(
    "path",
    [report.README, report.BENCH_README, report.CHART, report.CODECS_CHART],
    ids=["README", "bench/README", "chart", "codecs"],
)
def test_figures_are_those_of_the_results(path: Path) -> None:
    """Where this fails, run `python -m bench report`."""
    assert path.read_text() == report.rendered()[path]


def case_of(rate: float, *, target: float | None) -> Case:
    case = Case(title="CRC-32C, 3 chunks", unit="rec", bytes_per_unit=1)
    case.samples = [
        Samples(contestant="kstore", wall=[rate], cpu=[1.0]),
        Samples(contestant="crc32c wheel", wall=[10.0], cpu=[1.0]),
    ]
    case.add_ratio("kstore", "crc32c wheel", target=target)
    return case


@pytest.mark.parametrize(
    ("rate", "target", "figure"),
    [
        (15.0, None, "1.50 [1.50-1.50]"),
        (15.0, 1.5, "1.50 [1.50-1.50], target 1.5: met"),
        (14.9, 1.5, "1.49 [1.49-1.49], target 1.5: MISSED"),
        (125.0, 10.0, "12.5 [12.5-12.5], target 10: met"),
    ],
)
def test_figure_stands_beside_its_target(tmp_path: Path, rate: float, target: float | None, figure: str) -> None:
    settings = Settings(results_directory=tmp_path, allows_dirty=True)
    write_results("crc", [case_of(rate, target=target)], settings, load_before=(0.0,))
    results = report.Results(tmp_path)
    assert f"| CRC-32C over 16 KiB chunks / the crc32c wheel | {figure} |" in report.figures(results)
    assert (figure in report.targets(results)) is (target is not None)
    assert ("1 of them MISSED" in report.targets(results)) is ("MISSED" in figure)
    assert (report.targets(results).count(figure) == 2) is ("MISSED" in figure)
    assert ("1 of 1 targets are MISSED" in report.summary(results)) is ("MISSED" in figure)


def test_what_was_not_measured_says_so(tmp_path: Path) -> None:
    settings = Settings(results_directory=tmp_path, allows_dirty=True)
    write_results("crc", [case_of(1.0, target=None)], settings, load_before=(0.0,))
    assert "| search by time | not measured |" in report.figures(report.Results(tmp_path))


def test_chart_draws_each_contestant_to_one_scale(tmp_path: Path) -> None:
    case = Case(title="Scan from a file written in steps of 16 KiB, 100-byte values: x", unit="rec", bytes_per_unit=100)
    rates = {"kstore Log, copied": [2e7, 4e7, 3e7], "aiokafka from the file": [1e7, 1e7, 1e7]}
    case.samples = [Samples(contestant=name, wall=wall, cpu=[1.0]) for name, wall in rates.items()]
    write_results("scan", [case], Settings(results_directory=tmp_path, allows_dirty=True), load_before=(0.0,))
    chart = ElementTree.fromstring(report.chart(report.Results(tmp_path)))
    ours, other = chart.findall("{*}rect")
    assert (ours.get("class"), other.get("class")) == ("own", "other")
    assert float(ours.get("width", 0)) == pytest.approx(3 * float(other.get("width", 0)), abs=0.5)
    assert [text.text for text in chart.findall("{*}text")] == [
        "values of 100 bytes", "kstore", "3.00 GB/s", "aiokafka", "1.00 GB/s", "values of 1000 bytes",
    ]  # fmt: skip


def test_text_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="benchmark figures: begin"):
        report.with_section("no markers", "section")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, in place of the bench's own."""
    bench = tmp_path / "bench"
    (bench / "results").mkdir(parents=True)
    for path in (tmp_path / "code.py", bench / "results" / "crc.json", tmp_path / "README.md"):
        path.write_text("first")
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.com")
    for command in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(common, "BENCH_DIRECTORY", bench)
    return tmp_path


def test_results_carry_the_commit_of_a_clean_tree(checkout: Path) -> None:
    settings = Settings(results_directory=checkout / "bench" / "results")
    for _ in range(2):
        path = write_results("crc", [case_of(1.0, target=None)], settings, load_before=(0.0,))
        (checkout / "README.md").write_text("made of the results")
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    found = json.loads(path.read_text())["commit"]
    assert found == head.stdout.strip()[: len(found)]


@pytest.mark.parametrize("name", ["code.py", "new.py", "bench/new.py"])
def test_results_of_a_changed_tree_are_refused_or_marked(checkout: Path, name: str) -> None:
    settings = Settings(results_directory=checkout / "bench" / "results")
    (checkout / name).write_text("changed")
    with pytest.raises(DirtyTreeError, match=Path(name).name):
        write_results("crc", [case_of(1.0, target=None)], settings, load_before=(0.0,))
    allowed = Settings(results_directory=settings.results_directory, allows_dirty=True)
    path = write_results("crc", [case_of(1.0, target=None)], allowed, load_before=(0.0,))
    assert json.loads(path.read_text())["commit"].endswith("-dirty")


@pytest.mark.parametrize("build", ["fast", "debug"])
def test_a_build_that_no_user_gets_is_not_measured(
    build: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "BUILD", build)
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "crc", "--dirty"])
    assert bench_main() == 2
    assert f"{build} build" in capsys.readouterr().err
