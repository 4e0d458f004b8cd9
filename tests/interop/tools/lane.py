"""All comparisons with Kafka's tools, each with a broker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.interop.store import Problems
from tests.interop.tools import groups, metadata, operating, restoring, transactions

PARTS = {
    "transactions": transactions.steps,
    "groups": groups.steps,
    "metadata": metadata.steps,
    "operating": operating.steps,
    "restoring": restoring.steps,
}


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    for name, part in PARTS.items():
        (work / name).mkdir()
        yield from part(work / name)
