"""Goal: a call that an interrupt or a lack of memory ends anywhere loses nothing that was acknowledged, leaves no lock,
and nothing that uses the same objects hangs. Method: a sample of the places of each method of the lane `interrupts` of
`python -m tests.crash`, and planted faults, which must be noticed."""

from __future__ import annotations

import pytest

from tests.crash.interrupted_calls import FAULTS, METHODS, Fault, Method, check_sample

# An interrupt within a finalizer is reported, and goes no further.
pytestmark = [pytest.mark.traces, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

# Few of the lines of what is long, most of what is short.
_PLACES = 3


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_call_that_is_ended_anywhere_leaves_what_was_acknowledged(method: Method, fault: Fault) -> None:
    assert check_sample(method, fault, count=_PLACES) > 0


@pytest.mark.parametrize("fault", FAULTS[:1], ids=lambda fault: fault.name)
def test_follower_that_is_interrupted_anywhere_gives_each_record_once(fault: Fault) -> None:
    method = next(method for method in METHODS if method.name == "follow")
    assert check_sample(method, fault, count=1000, within="/kstore/log/following/") > 20
