"""The errors of Kafka's protocol: of each its code, name and exception, as kafka_errors.txt lists them (Kafka 4.1)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

KAFKA_ERRORS = Path(__file__).with_suffix(".txt")


class KafkaError(NamedTuple):
    code: int
    name: str
    exception: str


def kafka_errors() -> list[KafkaError]:
    lines = map(str.split, KAFKA_ERRORS.read_text().splitlines())
    return [KafkaError(int(code), name, exception) for code, name, exception in lines]
