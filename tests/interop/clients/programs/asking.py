"""Commands as lines of JSON on standard input, each answered by a line on standard output.

A command is {"do": NAME, ...}; its answer {"answer": ...}, or {"error": [Kafka's code or null, a text]}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

# Key, value, headers and time of a record.
Row = list[Any]


def said(line: str, client: object) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the method of the client that a line names, and its arguments."""
    command = json.loads(line)
    return getattr(client, command.pop("do")), command


def tell(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def encoded(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def answer(client: object, refusals: tuple[type[Exception], ...], refusal: Callable[[Any], list[Any]]) -> None:
    """Answer until the input ends.  refusals: the errors that are answers, told as `refusal` says."""
    for line in sys.stdin:
        method, arguments = said(line, client)
        try:
            tell(answer=method(**arguments))
        except refusals as error:
            tell(error=refusal(error))


async def answer_in_loop(
    client: object, refusals: tuple[type[Exception], ...], refusal: Callable[[Any], list[Any]]
) -> None:
    """As answer, of a client whose methods are coroutines."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        method, arguments = said(line, client)
        answered: Awaitable[Any] = method(**arguments)
        try:
            tell(answer=await answered)
        except refusals as error:
            tell(error=refusal(error))
