"""What a sink says, checked before it is believed: a sink may be anybody's. Layer 5."""

from __future__ import annotations

import logging
import operator
import traceback
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import SupportsIndex

from kstore.config import MAX_INT64
from kstore.errors import KStoreError, SinkResponseError
from kstore.producer.cluster import Cluster
from kstore.producer.sink import ProduceResponse, Sink
from kstore.types import NO_OFFSET, NO_TIMESTAMP

_logger = logging.getLogger("kstore.producer")


def cluster_of(sink: Sink) -> Cluster:
    """Ask a sink what partitions there are.  Raises: SinkResponseError; what the sink raises."""
    cluster: object = sink.cluster()
    if not isinstance(cluster, Cluster):
        raise SinkResponseError(f"cluster() of {_name_of(sink)}: expected a Cluster, found {_name_of(cluster)}")
    return cluster


def answers_of(answers: object, *, count: int) -> list[object]:
    """Return the answers of a sink, of which nothing is known but how many there are.

    Raises: SinkResponseError if there is not one a batch; what a sequence of a sink's own raises.
    """
    if not isinstance(answers, Sequence):
        raise SinkResponseError(f"responses of the sink: expected a sequence of {count}, found {_name_of(answers)}")
    found = list(islice(answers, count + 1))
    if len(found) != count or len(answers) != count:
        raise SinkResponseError(f"responses of the sink: expected {count}, one a batch, found {len(answers)}")
    return found


def checked_response(answer: object, *, record_count: int) -> ProduceResponse:
    """Return the response to a batch of so many records, or one with a SinkResponseError where it can't be true.

    Errors that are none of kstore's are wrapped.
    """
    try:
        return _checked(answer, record_count)
    except SinkResponseError as error:
        return ProduceResponse(NO_OFFSET, error=error)
    except Exception as error:
        _logger.exception("a response of the sink can't be read")
        wrong = SinkResponseError(f"response of the sink: {_name_of(answer)} can't be read: {_text_of(error)}")
        wrong.__cause__ = error
        return ProduceResponse(NO_OFFSET, error=wrong)


def _checked(answer: object, record_count: int) -> ProduceResponse:
    if not isinstance(answer, ProduceResponse):
        raise SinkResponseError(f"response of the sink: expected a ProduceResponse, found {_name_of(answer)}")
    if answer.error is None:
        return ProduceResponse(
            _number("base_offset", answer.base_offset, least=NO_OFFSET, most=MAX_INT64 - record_count),
            _number("log_append_time_ms", answer.log_append_time_ms, least=NO_TIMESTAMP, most=MAX_INT64),
        )
    record_errors: object = answer.record_errors
    if not isinstance(record_errors, Mapping):
        raise SinkResponseError(f"record_errors of a response: expected a mapping, found {_name_of(record_errors)}")
    return ProduceResponse(
        NO_OFFSET,
        error=_error("error", answer.error),
        is_retriable=bool(answer.is_retriable),
        record_errors={operator.index(at): _error("record_errors", error) for at, error in record_errors.items()},
    )


def _number(field: str, value: object, *, least: int, most: int) -> int:
    if not isinstance(value, SupportsIndex):
        raise SinkResponseError(f"{field} of a response: expected an int, found {_name_of(value)}")
    number = operator.index(value)
    if not least <= number <= most:
        raise SinkResponseError(f"{field} of a response: expected {least} to {most}, found {number}")
    return number


def _error(field: str, value: object) -> KStoreError:
    if not isinstance(value, Exception):
        raise SinkResponseError(f"{field} of a response: expected a KStoreError, found {_name_of(value)}")
    return as_kstore_error(value)


def as_kstore_error(error: BaseException, what: str = "the batch was not sent") -> KStoreError:
    """Return the error, or a KStoreError that says so with the error as its cause."""
    if isinstance(error, KStoreError):
        return error
    wrapped = KStoreError(f"{what}: {_text_of(error)}")
    wrapped.__cause__ = error
    return wrapped


def _text_of(error: BaseException) -> str:
    # str() of an error of a sink's own may raise.
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def _name_of(value: object) -> str:
    return type(value).__name__
