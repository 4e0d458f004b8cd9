"""Goal: an error is the same after it went to another process or was copied for another thread.
Method: each kind of error through pickle and copy, every attribute compared."""

from __future__ import annotations

import copy
import errno
import pickle
from collections.abc import Callable

import pytest

from kstore import errors
from kstore.errors import (
    CorruptRecordError,
    GroupStateError,
    KStoreError,
    LogFailedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordError,
    RecordErrorReason,
    RecordValidationError,
    StorageError,
)
from kstore.wire.codes import ErrorCode
from tests.making.collecting import over
from tests.reference.kafka_errors import kafka_errors

ERRORS = [
    pytest.param(
        CorruptRecordError("bad", path="/t-0", base_offset=7, position=9, expected=1, found=2), id="corruption"
    ),
    pytest.param(
        OffsetOutOfRangeError("far", path="/t-0", offset=5, log_start_offset=7, log_end_offset=9), id="offset"
    ),
    pytest.param(StorageError("disk", path="/t-0", errno=28), id="storage"),
    pytest.param(LogFailedError("disk", path="/t-0"), id="storage-without-errno"),
    pytest.param(OutOfOrderSequenceError("order", producer_id=3, producer_epoch=1), id="producer"),
    pytest.param(
        RecordValidationError("no key", errors=(RecordError(0, RecordErrorReason.INVALID_RECORD, "no key"),)),
        id="validation",
    ),
]


COPIES = [copy.copy, lambda error: pickle.loads(pickle.dumps(error))]


def made_final(error: StorageError) -> StorageError:
    error.is_final = True
    return error


@pytest.mark.parametrize(
    ("error", "is_out_of_space", "is_retriable"),
    [
        pytest.param(StorageError("full", errno=errno.ENOSPC), True, True, id="no-space"),
        pytest.param(StorageError("full", errno=errno.EDQUOT), True, True, id="no-quota"),
        pytest.param(StorageError("bad", errno=errno.EIO), False, False, id="bad-disk"),
        pytest.param(StorageError("bad"), False, False, id="no-errno"),
        pytest.param(made_final(StorageError("full", errno=errno.ENOSPC)), True, False, id="failed-the-log"),
        pytest.param(LogFailedError("failed", errno=errno.ENOSPC), True, False, id="log-that-had-failed"),
    ],
)
@pytest.mark.parametrize("copied", [lambda error: error, *COPIES], ids=["error", "copy", "pickle"])
def test_call_without_space_may_be_repeated_unless_its_log_has_failed(
    copied: Callable[[StorageError], StorageError], error: StorageError, *, is_out_of_space: bool, is_retriable: bool
) -> None:
    found = copied(error)
    assert (found.is_out_of_space, found.is_retriable) == (is_out_of_space, is_retriable)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("copied", COPIES, ids=["copy", "pickle"])
def test_copy_of_an_error_has_its_class_message_and_attributes(
    error: KStoreError, copied: Callable[[KStoreError], KStoreError]
) -> None:
    other = copied(error)
    assert type(other) is type(error)
    assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))
    if isinstance(error, StorageError):
        assert isinstance(other, StorageError)
        assert other.errno == error.errno


# Kafka's exceptions whose names are not those of kstore's errors with another ending; None: of several, or of no one.
EXCEPTIONS = {
    "UnsupportedMagicError": "CorruptRecordException",
    "ProducerTimeoutError": "TimeoutException",
    "TopicSettingsError": "InvalidConfigurationException",
    "TransactionStateError": "InvalidTxnStateException",
    "StorageError": "KafkaStorageException",
    "RecordValidationError": "InvalidRecordException",
}
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, KStoreError) and not name.startswith("_")
}


def named_code(name: str) -> int | None:
    """Return the code of the Kafka exception that a class is named after, None if there is none."""
    by_exception = {error.exception: error.code for error in kafka_errors()}
    return by_exception.get(EXCEPTIONS.get(name, name.removesuffix("Error") + "Exception"))


@over("name", sorted(KINDS), by=lambda _: "classes")
def test_code_of_a_class_is_that_of_kafkas_exception_of_its_name_else_of_the_class_above(name: str) -> None:
    kind = KINDS[name]
    above = next(base for base in kind.__mro__[1:] if issubclass(base, Exception))
    expected = named_code(name)
    assert kind.kafka_code == (getattr(above, "kafka_code", None) if expected is None else expected)


def test_code_of_an_error_is_that_of_its_class_and_goes_with_it() -> None:
    error = OutOfOrderSequenceError("order", producer_id=3, producer_epoch=1)
    assert error.kafka_code == pickle.loads(pickle.dumps(error)).kafka_code == 45
    assert KStoreError("other").kafka_code is None

    class OfAUser(CorruptRecordError):
        pass

    assert OfAUser("bad").kafka_code == 2


def test_code_of_a_group_error_is_that_of_its_reason() -> None:
    error = GroupStateError("has members", kafka_code=ErrorCode.NON_EMPTY_GROUP)
    assert (error.kafka_code, copy.copy(error).kafka_code) == (68, 68)
    assert GroupStateError("of another type").kafka_code is GroupStateError.kafka_code is None
