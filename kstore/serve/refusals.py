"""What a client is told in place of what it asked for: the codes and messages of errors."""

from __future__ import annotations

from kstore.errors import KStoreError, LogNotFoundError, TopicSettingsError, UnknownTopicOrPartitionError
from kstore.wire.codes import ErrorCode


def code_of(error: KStoreError | type[KStoreError]) -> int:
    """Return the code that a broker answers for an error, or for a class of them."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.kafka_code is None else error.kafka_code


class RefusedError(Exception):
    """What a client asked for is not done; the code and the message that it gets."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


REFUSALS = (RefusedError, KStoreError)


def told(error: Exception, *, root: str) -> str:
    """Return the message of an error for a client, which is not to know the directories of the machine."""
    return str(error).replace(f"{root}/", "").replace(root, "the root")


def refusal(error: RefusedError | KStoreError | ValueError | TypeError, *, root: str) -> tuple[int, str | None]:
    """Return code and message for an error of a change of topics or of their settings.

    A ValueError or a TypeError is one of settings.
    """
    if isinstance(error, RefusedError):
        return error.code, error.message
    text = told(error, root=root)
    if isinstance(error, LogNotFoundError):
        # The topic was deleted meanwhile.
        return code_of(UnknownTopicOrPartitionError), text
    return code_of(error if isinstance(error, KStoreError) else TopicSettingsError), text
