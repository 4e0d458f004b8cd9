"""Goal: each partition has one member that wants it, evenly, and what can stay with its member stays.
Method: cases by hand, and random subscriptions against what has to hold and against an exhaustive search."""

from __future__ import annotations

from collections import Counter
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.coordinator.group.consumer.assignors import ASSIGNORS, Subscriber, range_, uniform

T, U, V = (UUID(int=number) for number in (1, 2, 3))
TOPICS = (T, U, V)


def subscribers(*wanted, owned=()):
    """Members m0, m1, ... by the topics that they want."""
    places = dict(enumerate(owned))
    return {
        f"m{number}": Subscriber(None, frozenset(topics), frozenset(places.get(number, ())))
        for number, topics in enumerate(wanted)
    }


def again(members, assigned, **changes):
    """The members with what they were assigned, as they are asked about next."""
    return {
        name: one._replace(places=assigned.get(name, frozenset())) for name, one in (members | changes).items() if one
    }


def sizes(assigned):
    return sorted(len(places) for places in assigned.values())


def numbers(assigned, member, topic=T):
    return sorted(number for of, number in assigned[member] if of == topic)


def test_uniform_gives_all_partitions_evenly():
    assert sizes(uniform(subscribers([T, U], [T, U], [T, U]), {T: 5, U: 3})) == [2, 3, 3]
    assert sizes(uniform(subscribers([T], [T], [T]), {T: 2})) == [0, 1, 1]
    assert uniform({}, {T: 2}) == {}


def test_nobody_gets_a_topic_that_is_not_there_or_not_wanted():
    members = subscribers([T, V], [])
    assert uniform(members, {T: 1, U: 4}) == {"m0": {(T, 0)}, "m1": frozenset()}
    assert range_(members, {T: 1, U: 4}) == {"m0": {(T, 0)}, "m1": frozenset()}


def test_a_member_that_joins_takes_from_each_only_what_is_uneven():
    members = subscribers([T], [T])
    before = uniform(members, {T: 7})
    after = uniform(again(members, before, m2=Subscriber(None, frozenset([T]))), {T: 7})
    assert sizes(after) == [2, 2, 3]
    assert sum(len(after[name] - before[name]) for name in before) == 0
    assert len(after["m2"]) == 2


def test_a_member_that_leaves_gives_its_own_partitions_alone():
    members = subscribers([T], [T], [T])
    before = uniform(members, {T: 6})
    after = uniform(again(members, before, m1=None), {T: 6})
    assert all(after[name] >= before[name] for name in after)
    assert sizes(after) == [3, 3]


def test_one_more_partition_stays_with_who_has_it():
    members = subscribers([T], [T], [T], owned=[[(T, 0)], [(T, 1), (T, 2)], [(T, 3)]])
    assert uniform(members, {T: 4}) == {name: one.places for name, one in members.items()}


def test_a_partition_goes_through_a_third_member_where_that_evens_out():
    # m0 wants what m1 may take over, who wants what m2 may take over.
    members = subscribers([T], [T, U], [U], owned=[[(T, n) for n in range(3)], [(U, 0), (U, 1)], []])
    assigned = uniform(members, {T: 3, U: 2})
    assert sizes(assigned) == [1, 2, 2]


def test_two_members_that_had_the_same_partition_do_not_both_keep_it():
    members = subscribers([T], [T], owned=[[(T, 0)], [(T, 0), (T, 1)]])
    assigned = uniform(members, {T: 2})
    assert sizes(assigned) == [1, 1]
    assert set().union(*assigned.values()) == {(T, 0), (T, 1)}


def test_range_gives_the_first_members_one_more_of_each_topic():
    assigned = range_(subscribers([T, U], [T, U], [U]), {T: 3, U: 4})
    assert [numbers(assigned, name) for name in ("m0", "m1", "m2")] == [[0, 1], [2], []]
    assert [numbers(assigned, name, U) for name in ("m0", "m1", "m2")] == [[0, 1], [2], [3]]


def test_static_members_come_first_by_their_instance_ids():
    members = {
        "a": Subscriber(None, frozenset([T])),
        "b": Subscriber("z", frozenset([T])),
        "c": Subscriber("y", frozenset([T])),
    }
    assigned = range_(members, {T: 4})
    assert [numbers(assigned, name) for name in ("c", "b", "a")] == [[0, 1], [2], [3]]


def best_spread(members, counts):
    """The least sum of squared sizes of all assignments, by trying each."""
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    takers = [[name for name, one in members.items() if topic in one.topics] for topic, _ in places]
    takers = [names for names in takers if names]
    return min(sum(size**2 for size in Counter(choice).values()) for choice in product(*takers))


counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 4), max_size=3)
wanted = st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(wanted=wanted, counts=counts)
def test_each_partition_that_somebody_wants_has_one_member(name, wanted, counts):
    members = subscribers(*wanted)
    assigned = ASSIGNORS[name](members, counts)
    given_out = Counter(place for places in assigned.values() for place in places)
    anybodys = set().union(*wanted)
    assert given_out == Counter(
        (topic, n) for topic, count in counts.items() for n in range(count) if topic in anybodys
    )
    assert all(topic in members[name].topics for name, places in assigned.items() for topic, _ in places)
    shuffled = dict(reversed(members.items()))
    assert ASSIGNORS[name](shuffled, dict(reversed(counts.items()))) == assigned, (
        "the order of its input does not count"
    )


@given(wanted=wanted, counts=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 2), max_size=3), changed=wanted)
def test_uniform_is_as_even_as_can_be_and_moves_nothing_without_a_cause(wanted, counts, changed):
    members = subscribers(*wanted)
    for number, topics in enumerate(changed):
        assigned = uniform(members, counts)
        assert sum(len(places) ** 2 for places in assigned.values()) == best_spread(members, counts)
        members = again(members, assigned)
        assert uniform(members, counts) == assigned
        members[f"m{number}"] = members.get(f"m{number}", Subscriber(None, frozenset()))._replace(
            topics=frozenset(topics)
        )


def test_large_groups_are_assigned_in_bounded_steps():
    members = subscribers(*[[T, U]] * 100)
    before = uniform(members, {T: 3000, U: 2000})
    after = uniform(again(members, before, m100=Subscriber(None, frozenset([T, U]))), {T: 3000, U: 2000})
    assert sizes(after)[0] == 49
    assert sum(len(after[name] & before[name]) for name in before) == 5000 - 49
