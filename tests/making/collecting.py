"""Tests over many cases: one test per group of cases, which tries every case and reports all failures together."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# A report ends here; the failures that follow are counted only.
MOST_SHOWN = 20
MOST_LINES = 12
MOST_CHARACTERS = 500
# pytest's own outcomes, such as that of pytest.raises, do not derive from Exception.
CAUGHT = (Exception, pytest.fail.Exception, pytest.skip.Exception)


class Failure(NamedTuple):
    """A case that failed: its label, where in the test, and what was said."""

    label: str
    place: str
    text: str


def over(
    names: str,
    cases: Sequence[Any],
    *,
    by: Callable[[Any], str] = lambda case: str(case).partition("/")[0],
    label: Callable[[Any], str] = str,
    long: Sequence[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator: in place of a test per case, as of parametrize, a test per group of cases.

    Args: names: the parameters of the test that take a case, separated by commas; several take a tuple. by: returns the
        group of a case, which is the test's id; by default what stands before the first slash, which for partitions is
        their set. label: names the case in the report of failures. long: groups of the long lane.
    A tmp_path is a directory of its own for each case.
    """
    parameters = [name.strip() for name in names.split(",")]
    groups: dict[str, list[Any]] = {}
    for case in cases:
        groups.setdefault(by(case), []).append(case)
    marked = [pytest.param(name, marks=pytest.mark.long) if name in long else name for name in groups]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def test_of_group(*, group: str, **fixtures: Any) -> None:
            failures = []
            for number, case in enumerate(groups[group]):
                arguments = dict(zip(parameters, case if len(parameters) > 1 else (case,), strict=True))
                if "tmp_path" in fixtures:
                    arguments["tmp_path"] = fixtures["tmp_path"] / str(number)
                    arguments["tmp_path"].mkdir()
                try:
                    test(**{**fixtures, **arguments})
                except CAUGHT as error:
                    failures.append(Failure(label(case), place_of(error, test), str(error) or repr(error)))
            if failures:
                pytest.fail(report(failures, count=len(groups[group])), pytrace=False)

        kept = [one for one in inspect.signature(test).parameters.values() if one.name not in parameters]
        own = inspect.Parameter("group", inspect.Parameter.KEYWORD_ONLY)
        keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in kept]
        vars(test_of_group)["__signature__"] = inspect.Signature([own, *keywords])
        return pytest.mark.parametrize("group", marked)(test_of_group)

    return decorate


def place_of(error: BaseException, test: Callable[..., None]) -> str:
    """Return file and line where the test's own file raised the error."""
    path = inspect.getfile(test)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{Path(path).name}:{frames[-1].lineno}: {frames[-1].line}"


def report(failures: Sequence[Failure], *, count: int) -> str:
    """Return the text of all failures; the first line names all cases."""
    lines = [f"{len(failures)} of {count} failed: {', '.join(failure.label for failure in failures[:MOST_SHOWN])}"]
    for failure in failures[:MOST_SHOWN]:
        said = failure.text.splitlines()
        lines += [
            "",
            f"{failure.label}: {failure.place}",
            *(f"    {line[:MOST_CHARACTERS]}" for line in said[:MOST_LINES]),
        ]
        lines += [f"    ... {len(said) - MOST_LINES} lines more"] * (len(said) > MOST_LINES)
    lines += [f"... and {len(failures) - MOST_SHOWN} more"] * (len(failures) > MOST_SHOWN)
    return "\n".join(lines)
