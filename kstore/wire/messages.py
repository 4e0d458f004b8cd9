"""The classes of the requests and answers of Kafka's protocol, by Kafka's names: ProduceRequest, ProduceResponse.

Each is made of its table when it is first imported or asked for. messages.pyi, which tests/wire/stub.py writes, has
their fields for type checkers.
"""

from __future__ import annotations

from functools import cache

from kstore.wire.classes import Message, message_class
from kstore.wire.requests import REQUESTS
from kstore.wire.responses import RESPONSES
from kstore.wire.schema import parse_schema, split_table


@cache
def tables() -> dict[str, str]:
    """Return the table of each message by its name."""
    return split_table(REQUESTS) | split_table(RESPONSES)


def __getattr__(name: str) -> type[Message]:
    table = tables().get(name)
    if table is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = message_class(parse_schema(table), module=__name__)
    return found


def message_named(name: str) -> type[Message]:
    """Return the class of a message.

    Raises: KeyError if there is no such message.
    """
    found: type[Message] | None = globals().get(name)
    if found is None:
        if name not in tables():
            raise KeyError(name)
        found = __getattr__(name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *tables()])
