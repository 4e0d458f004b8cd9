"""Codes of Kafka's protocol that no error of kstore has, and the code of an error (Kafka: Errors)."""

from __future__ import annotations

from kstore.errors import KStoreError

UNKNOWN_SERVER_ERROR = -1
INVALID_REQUIRED_ACKS = 21
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
POLICY_VIOLATION = 44
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNKNOWN_TOPIC_ID = 100


def code_of(error: KStoreError | type[KStoreError]) -> int:
    """Return the code that a broker answers for an error, or for a class of them."""
    return UNKNOWN_SERVER_ERROR if error.kafka_code is None else error.kafka_code
