"""Codes of Kafka's protocol that no error of kstore has, and the code of an error (Kafka: Errors)."""

from __future__ import annotations

from kstore.errors import KStoreError, LogNotFoundError, TopicSettingsError, UnknownTopicOrPartitionError

UNKNOWN_SERVER_ERROR = -1
LEADER_NOT_AVAILABLE = 5
COORDINATOR_NOT_AVAILABLE = 15
INVALID_REQUIRED_ACKS = 21
TOPIC_AUTHORIZATION_FAILED = 29
CLUSTER_AUTHORIZATION_FAILED = 31
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
POLICY_VIOLATION = 44
INVALID_TRANSACTION_TIMEOUT = 50
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
SECURITY_DISABLED = 54
OPERATION_NOT_ATTEMPTED = 55
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNKNOWN_TOPIC_ID = 100
TRANSACTIONAL_ID_NOT_FOUND = 105
MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115
TRANSACTION_ABORTABLE = 120
INVALID_REGULAR_EXPRESSION = 128


def code_of(error: KStoreError | type[KStoreError]) -> int:
    """Return the code that a broker answers for an error, or for a class of them."""
    return UNKNOWN_SERVER_ERROR if error.kafka_code is None else error.kafka_code


class RefusedError(Exception):
    """What a client asked for is not done; the code and the message that it gets."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


REFUSALS = (RefusedError, KStoreError)


def refusal(error: RefusedError | KStoreError | ValueError | TypeError) -> tuple[int, str | None]:
    """Return code and message for an error of a change of topics or of their settings.

    A ValueError or a TypeError is one of settings.
    """
    if isinstance(error, RefusedError):
        return error.code, error.message
    if isinstance(error, LogNotFoundError):
        # The topic was deleted meanwhile.
        return code_of(UnknownTopicOrPartitionError), str(error)
    return code_of(error if isinstance(error, KStoreError) else TopicSettingsError), str(error)
