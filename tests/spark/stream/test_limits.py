"""Goal: micro-batches have the sizes that Spark's Kafka source gives them.
Method: micro-batches observed on the connector, and rules that hold for any numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstore.spark.stream.limits import TriggerDelay, limited
from kstore.spark.stream.positions import Offsets
from kstore.types import TopicPartition
from tests.making.producing import SetClock

# Topic f.skew; the ends of the micro-batches of maxOffsetsPerTrigger=200 from the earliest offsets, of 3 from others.
SKEWED = (1000, 100, 10, 1)
ENDS_BY_200 = [(180, 18, 1, 1), (360, 36, 2, 1), (539, 53, 4, 1), (718, 71, 6, 1), (897, 89, 8, 1), SKEWED]
START_OF_3 = (980, 90, 5, 0)
ENDS_BY_3 = [(981, 91, 6, 1), (982, 92, 7, 1), (983, 93, 8, 1), (984, 94, 9, 1), (986, 95, 10, 1), (988, 96, 10, 1)]
ENDS_BY_3 += [(990, 97, 10, 1), (992, 98, 10, 1), (994, 99, 10, 1), (996, 100, 10, 1), (999, 100, 10, 1), SKEWED]


def of(offsets: tuple[int, ...]) -> Offsets:
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


def ends_by(start: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
    ends = []
    while start != SKEWED:
        start = tuple(limited(of(start), of(SKEWED), most=most).values())
        ends.append(start)
    return ends


def test_shares_are_those_of_the_connector() -> None:
    assert ends_by((0, 0, 0, 0), 200) == ENDS_BY_200
    assert ends_by(START_OF_3, 3) == ENDS_BY_3


def test_limit_of_zero_lets_nothing_through() -> None:
    assert limited(of((1, 2)), of((5, 2)), most=0) == of((1, 2))


def test_end_that_moved_back_is_told() -> None:
    assert limited(of((5, 5)), of((3, 9)), most=2) == of((3, 7))


offsets = st.integers(0, 2**62)


@given(st.lists(st.tuples(offsets, offsets), min_size=1, max_size=8), st.integers(1, 2**63 - 1))
def test_every_partition_with_something_new_goes_on_within_the_limit(pairs: list[tuple[int, int]], most: int) -> None:
    start, end = of(tuple(one for one, _ in pairs)), of(tuple(max(one, other) for one, other in pairs))
    found = limited(start, end, most=most)
    assert all(start[tp] < found[tp] <= end[tp] for tp in start if start[tp] < end[tp])
    assert all(found[tp] == end[tp] for tp in start if start[tp] == end[tp])
    total = sum(found[tp] - start[tp] for tp in start)
    # In double precision; those whose share is below one get one.
    assert total <= most * (1 + 2**-40) + len(pairs)


def test_delay_holds_back_until_there_is_enough_or_it_is_over() -> None:
    clock = SetClock()
    delay = TriggerDelay(least=100, most_delay_ms=8000, clock=clock)
    assert not delay.holds_back(of((0,)), of((30,)))
    clock.now_ms += 7999
    assert delay.holds_back(of((30,)), of((60,)))
    clock.now_ms += 1
    assert not delay.holds_back(of((30,)), of((60,)))
    assert delay.holds_back(of((60,)), of((159,)))
    assert not delay.holds_back(of((60,)), of((160,)))
    clock.now_ms += 7999
    assert delay.holds_back(of((160,)), of((161,)))
