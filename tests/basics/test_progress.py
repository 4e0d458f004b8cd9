"""Goal: `progress` of each long call tells from 0 to the total, once each byte, and what it raises ends the call.
Method: each call over a root of several segments with a function, a bar, and a function that raises."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore._progress import ProgressBar
from kstore.archive import export
from kstore.env import DEFAULT_ENV
from kstore.log.verify import Verification
from kstore.store import checks
from tests.making.batches import batch, batches, flip_bit, write_root

SEGMENT_2 = "00000000000000000040.log"
CALLS: dict[str, Callable[..., Any]] = {
    "verify": lambda root, _target, **given: kstore.verify(root, **given),
    "recover": lambda root, _target, **given: kstore.recover(root, **given),
    "recover salvage": lambda root, _target, **given: kstore.recover(root, "salvage", **given),
    "report": lambda root, _target, **given: kstore.report(root, **given),
    "deep report": lambda root, _target, **given: kstore.report(root, deep=True, **given),
    "export": lambda root, target, **given: export(root, target, **given),
    "export of batches": lambda root, target, **given: export(root, target, "kstore", **given),
    "restore": lambda root, target, **given: kstore.restore(root, target, **given),
    "scan": lambda root, _target, **given: kstore.scan(root).to_table(**given),
}


class Stop(Exception):
    """Raised by a user's function."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two partitions; the first has segments of 4 and of 2 MiB."""
    made = tmp_path / "root"
    first, second = batches(0, 40, value_bytes=100_000), batches(40, 20, value_bytes=100_000)
    return write_root(made, {"big-0": [first, second], "small-0": [[batch(0, 3)]]})


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*.log"))


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_called_from_zero_to_all(name: str, root: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    size = size_of(root)
    CALLS[name](root, tmp_path / "target", progress=lambda done, total: calls.append((done, total)))
    done = [done for done, _ in calls]
    assert {total for _, total in calls} == {2 * size if name in ("recover salvage", "deep report") else size}
    assert done[0] == 0
    assert done[-1] == calls[-1][1]
    assert done == sorted(done)
    assert len(set(done)) >= 3


@pytest.mark.parametrize("name", CALLS)
def test_an_error_of_the_function_ends_the_call_which_may_be_made_again(name: str, root: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise Stop

    with pytest.raises(Stop):
        CALLS[name](root, tmp_path / "target", progress=stop)
    CALLS[name](root, tmp_path / "target")


@pytest.mark.parametrize("name", CALLS)
def test_a_bar_is_shown_on_standard_error(
    name: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CALLS[name](root, tmp_path / "target", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "100%" in err.splitlines()[-1]


def test_a_segment_that_is_looked_at_twice_counts_once(root: Path) -> None:
    flip_bit(root / "big-0" / SEGMENT_2, 100, bit=0)
    calls: list[int] = []
    with kstore.open_log(root / "big-0") as log:
        assert list(Verification(log, is_deep=True, env=DEFAULT_ENV, on_read=calls.append)) != []
    assert sum(calls) == size_of(root / "big-0")
    assert len(calls) > 4


def test_a_deep_report_tells_of_its_second_pass(root: Path) -> None:
    calls: list[int] = []
    kstore.report(root, deep=True, progress=lambda done, _total: calls.append(done))
    second = [done for done in calls if size_of(root) < done < 2 * size_of(root)]
    assert len(second) > 4


def test_sizes_are_not_looked_up_for_nobody(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(checks, "log_size_in_bytes", lambda _found: looked.append(1) or 0)
    kstore.verify(root)
    assert looked == []
    kstore.verify(root, progress=lambda _done, _total: None)
    assert looked == [1]


def test_without_tqdm_nothing_is_done_and_the_extra_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'kstore\[progress\]'"):
        export(root, tmp_path / "target", progress=True)
    assert not (tmp_path / "target").exists()


def test_a_bar_that_is_begun_again_is_full_first() -> None:
    calls: list[tuple[int, int]] = []
    with ProgressBar(lambda done, total: calls.append((done, total)), "x") as bar:
        bar.begin(10)
        bar.add(4)
        bar.begin(20)
        bar.add(50)
    assert calls == [(0, 10), (4, 10), (10, 10), (0, 20), (20, 20)]
