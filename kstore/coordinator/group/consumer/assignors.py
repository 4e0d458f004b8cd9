"""Assignors: which member of a group is to get which partitions (KIP-848)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple
from uuid import UUID

# A partition by the id of its topic and its number.
Place = tuple[UUID, int]
Places = frozenset[Place]
Assignments = dict[str, Places]


class Subscriber(NamedTuple):
    """What an assignor knows of a member: the topics that it wants, and the partitions that it was to have so far."""

    instance_id: str | None
    topics: frozenset[UUID]
    places: Places = frozenset()


Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], Assignments]


def uniform(subscribers: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> Assignments:
    """Give each partition to one of its subscribers, so that no member could have two fewer than another one that gives
    it up, with as few partitions moved as that takes.

    A partition goes from member to member where only a chain of moves makes it even. The result depends on nothing but
    the arguments.
    Args: counts: of the partitions of each topic that there is.
    Cost: O(partitions * log(members)), and O(members * topics) for each partition that moves.
    Source: Kafka UniformAssignor, whose order is balance before stickiness too; which members get one more than others
        is that of a hash map there, and of what they have here.
    """
    return _Balance(subscribers, counts).assigned()


def range_(subscribers: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> Assignments:
    """Give each topic's partitions to its subscribers in ranges; the first members in order have one more each.

    Source: Kafka RangeAssignor.
    """
    wanted_by = _subscribers_by_topic(subscribers, counts)
    assigned: dict[str, set[Place]] = {member: set() for member in subscribers}
    for topic, members in wanted_by.items():
        least, more = divmod(counts[topic], len(members))
        start = 0
        for slot, member in enumerate(members):
            end = start + least + (slot < more)
            assigned[member].update((topic, number) for number in range(start, end))
            start = end
    return {member: frozenset(places) for member, places in assigned.items()}


# Each by its name in requests; the first is the default.
ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}


def _subscribers_by_topic(
    subscribers: Mapping[str, Subscriber], counts: Mapping[UUID, int]
) -> dict[UUID, tuple[str, ...]]:
    """Return who wants each topic that there is: static members by their instance ids, then the others by theirs."""
    wanted_by: dict[UUID, list[str]] = defaultdict(list)
    for member in sorted(subscribers, key=lambda name: _order(name, subscribers[name])):
        for topic in subscribers[member].topics & counts.keys():
            wanted_by[topic].append(member)
    return {topic: tuple(wanted_by[topic]) for topic in sorted(wanted_by)}


def _order(member: str, subscriber: Subscriber) -> tuple[bool, str]:
    return (True, member) if subscriber.instance_id is None else (False, subscriber.instance_id)


class _Balance:
    def __init__(self, subscribers: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> None:
        self._before = {member: one.places for member, one in subscribers.items()}
        self._wanted_by = _subscribers_by_topic(subscribers, counts)
        ranked = sorted(subscribers, key=lambda name: _order(name, subscribers[name]))
        self._rank = {member: slot for slot, member in enumerate(ranked)}
        # Of each member, the numbers of the partitions by topic, and how many they are.
        self._has: dict[str, dict[UUID, set[int]]] = {member: {} for member in ranked}
        self._size = dict.fromkeys(ranked, 0)
        self._keep(subscribers, counts)
        self._give_out(counts)
        self._even_out()

    def assigned(self) -> Assignments:
        return {
            member: frozenset((topic, number) for topic, numbers in has.items() for number in numbers)
            for member, has in self._has.items()
        }

    def _keep(self, subscribers: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> None:
        """Leave with the members what they have and still want."""
        self._taken: set[Place] = set()
        for member, one in subscribers.items():
            for place in one.places:
                topic, number = place
                if topic in one.topics and number < counts.get(topic, 0) and place not in self._taken:
                    self._add(member, place)
                    self._taken.add(place)

    def _give_out(self, counts: Mapping[UUID, int]) -> None:
        """Give what nobody has to the subscriber with the fewest; topics that few want come first."""
        smallest: dict[tuple[str, ...], list[tuple[int, int, str]]] = {}
        for topic, members in sorted(self._wanted_by.items(), key=lambda one: (len(one[1]), one[0])):
            heap = smallest.setdefault(members, [])
            if not heap:
                heap += [(self._size[member], self._rank[member], member) for member in members]
                heapify(heap)
            for number in range(counts[topic]):
                if (topic, number) not in self._taken:
                    self._add(self._pop_smallest(heap), (topic, number))

    def _pop_smallest(self, heap: list[tuple[int, int, str]]) -> str:
        """Return the member with the fewest; entries of members that got more since are put right on the way."""
        while True:
            size, rank, member = heap[0]
            if size == self._size[member]:
                heapreplace(heap, (size + 1, rank, member))
                return member
            heapreplace(heap, (self._size[member], rank, member))

    def _even_out(self) -> None:
        """Move partitions from the members with most, along chains, to those with two fewer, while there are any."""
        heap = [(-size, self._rank[member], member) for member, size in self._size.items()]
        heapify(heap)
        while heap:
            size, _, start = heap[0]
            chain = self._chain_from(start) if -size == self._size[start] else ()
            if not chain:
                # An entry that is out of date, or a member that is done: what moves later is out of its reach.
                heappop(heap)
                continue
            for giver, topic, taker in chain:
                number = self._number_to_give(giver, topic)
                self._has[giver][topic].discard(number)
                self._size[giver] -= 1
                self._add(taker, (topic, number))
            for member in (start, chain[0][2]):
                heappush(heap, (-self._size[member], self._rank[member], member))

    def _chain_from(self, start: str) -> list[tuple[str, UUID, str]]:
        """Return the moves by which a member with two fewer gets one more, the last one first; or none."""
        most = self._size[start] - 2
        came_by: dict[str, tuple[str, UUID]] = {}
        seen_topics: set[UUID] = set()
        reached = [start]
        for member in reached:
            for topic in sorted(topic for topic, numbers in self._has[member].items() if numbers):
                if topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for taker in self._wanted_by[topic]:
                    if taker not in came_by and taker != start:
                        came_by[taker] = member, topic
                        reached.append(taker)
            found = self._smallest(reached[1:], most)
            if found is not None:
                return _moves(came_by, found)
        return []

    def _smallest(self, members: Iterable[str], most: int) -> str | None:
        fitting = [member for member in members if self._size[member] <= most]
        return min(fitting, key=lambda member: (self._size[member], self._rank[member]), default=None)

    def _number_to_give(self, giver: str, topic: UUID) -> int:
        """Return the partition that the member gives up: rather one that it did not have before."""
        before = self._before[giver]
        return max(self._has[giver][topic], key=lambda number: ((topic, number) not in before, number))

    def _add(self, member: str, place: Place) -> None:
        topic, number = place
        self._has[member].setdefault(topic, set()).add(number)
        self._size[member] += 1


def _moves(came_by: Mapping[str, tuple[str, UUID]], last: str) -> list[tuple[str, UUID, str]]:
    moves = []
    while last in came_by:
        giver, topic = came_by[last]
        moves.append((giver, topic, last))
        last = giver
    return moves
