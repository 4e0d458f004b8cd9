"""The memory that a value takes as parsed messages, before it is parsed.

A message in a message may take two bytes as a value, and in memory as much as it has fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_MESSAGE_BYTES = 128
_FIELD_BYTES = 16
_MOST_VARINT_BYTES = 10
# Wire types: those of fixed sizes, and the others.
_SIZES = {1: 8, 5: 4}
_VARINT, _BYTES, _GROUP, _GROUP_END = 0, 2, 3, 4


class Weights:
    """What messages of a type and those in it take.

    Threads: thread-safe.
    """

    def __init__(self, message: Descriptor) -> None:
        self._message = message
        self._inner = _types_in(message)
        self._weights = {each.full_name: _weight(each) for each in (message, *self._inner)}
        self._heaviest = max((self._weights[each.full_name] for each in self._inner), default=0)

    def most(self, values: Sequence[bytes]) -> int:
        """Return what values take at most."""
        weight = len(values) * self._weights[self._message.full_name]
        return weight + sum(map(len, values)) // 2 * self._heaviest if self._heaviest else weight

    def of(self, value: bytes, *, limit: int) -> int:
        """Return what a value takes, or more than `limit` if it is more; of a malformed one what is read of it.

        Cost: reads the tags of all fields.
        """
        total = self._weights[self._message.full_name]
        # The messages that are read: their types, and the end of those that are no groups.
        within: list[tuple[Descriptor | None, int]] = [(self._message, len(value))]
        at = 0
        while within and total <= limit:
            message, end = within[-1]
            if at >= end:
                within.pop()
                continue
            tag, at = varint(value, at) or (0, len(value))
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                _, at = varint(value, at) or (0, len(value))
            elif wire in _SIZES:
                at += _SIZES[wire]
            elif wire == _GROUP_END:
                within.pop()
            elif wire in (_BYTES, _GROUP):
                each: FieldDescriptor | None = None if message is None else message.fields_by_number.get(number)
                inner: Descriptor | None = None if each is None else each.message_type
                if inner is not None:
                    total += self._weights[inner.full_name]
                if wire == _GROUP:
                    within.append((inner, end))
                    continue
                size, at = varint(value, at) or (0, len(value))
                if inner is not None:
                    within.append((inner, min(at + size, end)))
                else:
                    at += size
            else:
                break
        return total


def _weight(message: Descriptor) -> int:
    return _MESSAGE_BYTES + _FIELD_BYTES * len(message.fields)


def _types_in(message: Descriptor) -> list[Descriptor]:
    """Return the types of all messages that may be in one."""
    known: dict[str, Descriptor] = {}
    waiting = [message]
    while waiting:
        for each in waiting.pop().fields:
            inner = each.message_type
            if inner is not None and inner.full_name not in known:
                known[inner.full_name] = inner
                waiting.append(inner)
    return list(known.values())


def varint(data: bytes, at: int, *, most_bytes: int = _MOST_VARINT_BYTES) -> tuple[int, int] | None:
    """Return a number, and where it ends; None if it does not end within so many bytes."""
    number = 0
    for shift, byte in enumerate(data[at : at + most_bytes]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    return None
