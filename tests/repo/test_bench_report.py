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

from bench import common, moved, report
from bench.__main__ import main as bench_main
from bench.common import Bound, Case, DirtyTreeError, Samples, Settings, write_results
from bench.neighbours import Neighbours


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
    shown = report.figures(results)
    assert (f"kstore / crc32c wheel: {figure} |" in shown) is (target is not None)
    assert ("1 of them MISSED" in shown) is ("MISSED" in figure)
    assert (shown.count(figure) == 2) is ("MISSED" in figure)
    assert ("1 of 1 targets are MISSED" in report.summary(results)) is ("MISSED" in figure)


def test_each_target_is_shown_once_among_the_figures_and_the_missed_ones_once_more() -> None:
    results = report.Results(report.RESULTS)
    shown = report.figures(results)
    answers, missed = shown.split("### Missed targets")
    for target in report.targets(results):
        verdicts = answers.count(target.told)
        assert verdicts >= 1, target
        assert (target.told in missed) is target.is_missed
    assert answers.count(": met") + answers.count(": MISSED") == len(report.targets(results))
    assert missed.count(": MISSED") == sum(target.is_missed for target in report.targets(results))


def test_what_was_not_measured_says_so(tmp_path: Path) -> None:
    settings = Settings(results_directory=tmp_path, allows_dirty=True)
    write_results("crc", [case_of(1.0, target=None)], settings, load_before=(0.0,))
    assert "| `Consumer.poll` / `log.read` | not measured |" in report.figures(report.Results(tmp_path))


def test_rounds_beside_neighbours_are_said_where_they_were_watched(tmp_path: Path) -> None:
    neighbours = Neighbours(1e-9)
    neighbours.rounds, neighbours.disturbed_rounds = 20, 3
    for workload, watched in (("crc", neighbours), ("read", Neighbours())):
        settings = Settings(results_directory=tmp_path, allows_dirty=True, neighbours=watched)
        write_results(workload, [case_of(1.0, target=None)], settings, load_before=(0.0,))
        shown = report.figures(report.Results(tmp_path))
        assert "Others used the processors at the start or the end of 3 of 20 rounds." in shown
    write_results("crc", [case_of(1.0, target=None)], settings, load_before=(0.0,))
    assert "Others used" not in report.figures(report.Results(tmp_path))


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


def measured(checkout: Path, rounds: list[float], *, seconds: float = 1.0, name: str = "kstore") -> Path:
    """Results of rounds of kstore beside a rival of 10 a second, and of a bound, as a run writes them."""
    case = Case(title="CRC-32C, 3 chunks: x", unit="rec", bytes_per_unit=1)
    rival = Samples(contestant="crc32c wheel", wall=[10.0] * len(rounds), cpu=[1.0] * len(rounds))
    case.samples = [Samples(contestant=name, wall=rounds, cpu=rounds), rival]
    case.add_ratio(name, "crc32c wheel")
    case.bounds.append(Bound(name="a start", unit="s", values=[seconds], at_most=9))
    settings = Settings(results_directory=checkout / "bench" / "results", allows_dirty=True)
    return write_results("crc", [case], settings, load_before=(0.0,))


def commit_results(checkout: Path) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.com")
    subprocess.run(["git", "-C", str(checkout), *identity, "commit", "-qam", "results"], check=True)


@pytest.mark.parametrize(
    ("rounds", "seconds", "lines"),
    [
        ([20.0, 21.0, 22.0], 1.0, []),
        ([12.0, 23.0, 24.0], 1.0, []),
        (
            [30.0, 31.0, 32.0],
            1.0,
            ["better  crc: CRC-32C, 3 chunks: kstore / crc32c wheel: 2 [1.9-2.2] -> 3.1 [3-3.2]"],
        ),
        ([10.0, 11.0, 12.0], 1.0, ["WORSE  crc: CRC-32C, 3 chunks: kstore / crc32c wheel: 2 [1.9-2.2] -> 1.1 [1-1.2]"]),
        ([20.0, 21.0, 22.0], 2.0, ["WORSE  crc: CRC-32C, 3 chunks: a start, s: 1 [1-1] -> 2 [2-2]"]),
        ([20.0, 21.0, 22.0], 0.5, ["better  crc: CRC-32C, 3 chunks: a start, s: 1 [1-1] -> 0.5 [0.5-0.5]"]),
    ],
)
@pytest.mark.parametrize("is_committed", [False, True])
def test_report_says_which_figures_moved_by_more_than_their_spread(
    checkout: Path, rounds: list[float], seconds: float, lines: list[str], is_committed: bool
) -> None:
    results = measured(checkout, [19.0, 20.0, 22.0]).parent
    commit_results(checkout)
    measured(checkout, rounds, seconds=seconds)
    if is_committed:
        commit_results(checkout)
    told = moved.report(results)
    assert told[0].startswith(f"{len(lines)} figures of 1 workloads moved")
    assert told[1:] == [f"  {line}" for line in lines]


def test_figures_that_worsened_are_named_first_and_another_processor_is_said(checkout: Path) -> None:
    path = measured(checkout, [20.0])
    path.write_text(path.read_text().replace('"processor": "', '"processor": "another '))
    commit_results(checkout)
    measured(checkout, [30.0], seconds=2.0)
    told = moved.report(path.parent)
    assert [line.split()[0] for line in told[1:]] == ["WORSE", "better"]
    assert all(line.endswith("(another processor)") for line in told[1:])


def test_results_that_are_new_or_outside_of_a_repository_have_none_before(checkout: Path, tmp_path: Path) -> None:
    path = measured(checkout, [20.0])
    (path.parent / "wire.json").write_text(path.read_text())
    path.unlink()
    assert moved.report(path.parent)[0].startswith("0 figures of 0 workloads")
    assert moved.content_before(Path("/dev/null")) is None


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


@pytest.mark.parametrize("size", [(), ("--tiny",)], ids=["whole", "tiny"])
@pytest.mark.parametrize("failure", [1, -9], ids=["an error", "killed"])
def test_workloads_run_in_a_process_each_and_one_that_fails_stops_no_other(
    failure: int, size: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []

    def call(command: list[str]) -> int:
        commands.append(command)
        return failure if "pipeline" in command else 0

    monkeypatch.setattr(common, "BUILD", "release")
    monkeypatch.setattr(subprocess, "call", call)
    names = ("spark", "pipeline", "export")
    given = ["bench", "--rivals", *size, "--dirty", "--rounds", "3", *(f"--only={name}" for name in names)]
    monkeypatch.setattr(sys, "argv", given)
    assert bench_main() == 1
    assert [command[:5] for command in commands] == [[sys.executable, "-m", "bench", "--only", name] for name in names]
    assert all(command[5:] == ["--patience=30.0", "--rounds=3", "--rivals", *size, "--dirty"] for command in commands)
    assert capsys.readouterr().err == "failed: pipeline\n"
