"""A broker and a server of kstore, against each of which one program runs: what they answer is compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.interop.broker import Broker
from tests.interop.store import CLUSTER_ID, Problems

NOT_ASKED = "(not asked)"


class Restartable(Protocol):
    """A server that keeps its root and its address when it is stopped and started again."""

    @property
    def address(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def new_broker(work: Path, settings: str = "", *, features: Mapping[str, int] | None = None) -> Broker:
    """Format a broker with an empty root, below a directory that is there.

    Args: features: levels other than those of its release.
    """
    root = work / "root"
    root.mkdir()
    broker = Broker(root, work, settings)
    broker.format(CLUSTER_ID, features=features or {})
    return broker


class Difference(NamedTuple):
    """What a broker and kstore answer to one question, and why these differ."""

    of_broker: Any
    of_kstore: Any
    reason: str


def compared(
    of_broker: Mapping[str, Any], of_kstore: Mapping[str, Any], known: Mapping[str, Difference] | None = None
) -> Problems:
    """Say which answers differ otherwise than known, by question, and which known differences are none any more."""
    known = known or {}
    for question in [*of_broker, *(one for one in of_kstore if one not in of_broker)]:
        pair = of_broker.get(question, NOT_ASKED), of_kstore.get(question, NOT_ASKED)
        expected = known.get(question)
        if expected is None and pair[0] != pair[1]:
            yield f"{question}: broker {pair[0]!r}, kstore {pair[1]!r}"
        elif expected is not None and pair != (expected.of_broker, expected.of_kstore):
            yield f"{question}, a known difference: broker {pair[0]!r}, kstore {pair[1]!r}"
    yield from (f"{question}: known, and never asked" for question in known if question not in of_broker)
