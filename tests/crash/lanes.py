"""The lanes of `python -m tests.crash`: what a case of each does, and how many there are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.crash import bit_flips, interrupted_calls, recovered_side_files, side_files, topic_states
from tests.crash.commit_states import states_of_commits
from tests.crash.crash_states import PAIRS, states_of_history, states_of_pair
from tests.crash.export_states import FORMATS, states_of_exports
from tests.crash.power_cuts import CUTS, cut_again_and_again
from tests.fakes.power import FILE_SYSTEMS
from tests.golden.recovery_cases import NEW_SETS, cases
from tests.making.in_memory import IN_MEMORY
from tests.making.served_histories import History, broker_in_process

_HISTORIES_OF_COORDINATORS = 10_000
# The same few histories before each pair.
_BEGINNINGS = 7
_CASES_OF_COMMITS = 100
_CASES_OF_EXPORTS = 100
_CASES_OF_TOPICS = 400
# Each case of the golden sets, and then roots with 16 damages or more each.
_RECOVERIES = len(cases(*NEW_SETS)) + 60
_CUTS_OF_EACH_FILE_SYSTEM = 50


class Lane(NamedTuple):
    """run: does the case of a seed and a number, and returns how many states it looked at; raises if one is wrong.

    case_count: None for a lane without end; is_alone: run only if asked for, one case at a time; is_long: run only if
    asked for.
    """

    name: str
    run: Callable[[int, int], int]
    case_count: int | None = None
    unit: str = "states"
    target: str = "crash"
    is_alone: bool = False
    counts_as_crash: bool = True
    is_long: bool = False


def pair(seed: int, number: int) -> int:
    return states_of_pair(f"{seed}-{number % _BEGINNINGS}", *PAIRS[number])


def history(seed: int, number: int) -> int:
    return states_of_history(f"{seed}-{number}")


def cut(file_system: str, seed: int, number: int) -> int:
    return cut_again_and_again(f"{seed}-{number}", file_system)


def commits(seed: int, number: int) -> int:
    return states_of_commits(f"{seed}-{number}")


def exports(seed: int, number: int) -> int:
    return states_of_exports(f"{seed}-{number}", format=FORMATS[number % len(FORMATS)])


def topics(seed: int, number: int) -> int:
    return topic_states.states_of_topics(f"{seed}-{number}")


def topic_pair(seed: int, number: int) -> int:
    return topic_states.states_of_topic_pair(f"{seed}-{number % _BEGINNINGS}", *topic_states.PAIRS[number])


def damage_side_files(seed: int, number: int) -> int:
    del seed
    return side_files.check_part(number)


def coordinators(seed: int, number: int) -> int:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory, broker_in_process(f"{directory}/root") as broker:
        return History(f"{seed}-{number}", broker, topic="t").run()


def interrupt(seed: int, number: int) -> int:
    del seed
    return interrupted_calls.check_part(number)


def flip_bits(seed: int, number: int) -> int:
    del seed
    return bit_flips.check_part(number)


_FOUND = (
    Lane("side-files", damage_side_files, len(side_files.LOGS) * side_files.PARTS, "damages", counts_as_crash=False),
    Lane("recovered", recovered_side_files.check_case, _RECOVERIES, "damages", counts_as_crash=False),
    Lane("bits", flip_bits, bit_flips.CASES, "bits", counts_as_crash=False),
    Lane("interrupts", interrupt, interrupted_calls.CASES, "places", counts_as_crash=False),
    Lane("pairs", pair, len(PAIRS)),
    Lane("commits", commits, _CASES_OF_COMMITS),
    Lane("exports", exports, _CASES_OF_EXPORTS),
    Lane("topic-pairs", topic_pair, len(topic_states.PAIRS)),
    Lane("topics", topics, _CASES_OF_TOPICS),
    Lane("histories", history),
    Lane("coordinators", coordinators, _HISTORIES_OF_COORDINATORS, "steps", counts_as_crash=False, is_long=True),
    *(
        Lane(name, partial(cut, name), _CUTS_OF_EACH_FILE_SYSTEM // CUTS, "cuts", "powercut", True, False)
        for name in FILE_SYSTEMS
    ),
)
LANES = {lane.name: lane for lane in _FOUND}
