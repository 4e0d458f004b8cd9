"""Codes of Kafka's protocol that no error of kstore has, and the code of an error (Kafka: Errors)."""

from __future__ import annotations

from kstore.errors import KStoreError

UNKNOWN_SERVER_ERROR = -1
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_NOT_AVAILABLE = 15
INVALID_REQUIRED_ACKS = 21
UNSUPPORTED_VERSION = 35
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100


def code_of(error: KStoreError) -> int:
    """Return the code that a broker answers for an error."""
    return UNKNOWN_SERVER_ERROR if error.kafka_code is None else error.kafka_code
