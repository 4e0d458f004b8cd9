"""Goal: a producer's settings have Kafka's defaults and limits, and contradictions are refused as Kafka refuses them.
Method: tables of settings and what they must give or say."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from kstore.producer.config import ProducerConfig, ProducerSettings
from kstore.producer.interceptors import ProducerInterceptor
from kstore.serializers import StringSerializer

MAX_INT32 = 2**31 - 1

DEFAULTS = {
    "batch_size": 16384,
    "linger_ms": 5,
    "buffer_memory": 33554432,
    "max_block_ms": 60000,
    "delivery_timeout_ms": 120000,
    "request_timeout_ms": 30000,
    "retries": MAX_INT32,
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1000,
    "max_request_size": 1048576,
    "max_in_flight_requests_per_connection": 5,
    "compression_type": "none",
    "partitioner_adaptive_partitioning_enable": True,
    "partitioner_availability_timeout_ms": 0,
    "partitioner_ignore_keys": False,
    "transaction_timeout_ms": 60000,
    "metadata_max_age_ms": 300000,
    "transactional_id": None,
}


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_default_is_kafkas(name: str) -> None:
    assert getattr(ProducerConfig(), name) == DEFAULTS[name]


def test_a_producer_is_idempotent_and_waits_until_written_by_default() -> None:
    config = ProducerConfig()
    assert (config.is_idempotent, config.ack) == (True, "written")


@pytest.mark.parametrize(
    ("acks", "ack"),
    [
        (0, "buffered"),
        ("0", "buffered"),
        ("buffered", "buffered"),
        (1, "written"),
        ("1", "written"),
        ("all", "written"),
        (-1, "written"),
        ("-1", "written"),
        ("written", "written"),
        ("flushed", "flushed"),
    ],
    ids=repr,
)
def test_acks_take_kafkas_words_and_kstores(acks: Any, ack: str) -> None:
    assert ProducerConfig(acks=acks).ack == ack


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param({"acks": "most"}, "acks must be one of", id="acks"),
        pytest.param({"acks": True}, "acks must be one of", id="acks-bool"),
        pytest.param({"batch_size": -1}, "batch_size must be from 0", id="batch-size"),
        pytest.param({"max_in_flight_requests_per_connection": 0}, "must be from 1", id="in-flight"),
        pytest.param({"compression_type": "brotli"}, "brotli", id="codec"),
        pytest.param({"compression_type": "zstd", "compression_zstd_level": 99}, "99", id="level"),
        pytest.param({"key_serializer": 5}, "key_serializer must be callable or a name", id="serializer"),
        pytest.param({"value_serializer": "text"}, "expected one of string.*got 'text'", id="serializer-name"),
        pytest.param({"transactional_id": ""}, "transactional_id must not be empty", id="transactional-id"),
        pytest.param({"transaction_timeout_ms": 0}, "transaction_timeout_ms must be from 1", id="transaction-timeout"),
        pytest.param({"transaction_timeout_ms": 900_001}, "from 1 to 900000, got 900001", id="transaction-too-long"),
    ],
)
def test_value_that_kafka_refuses_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ProducerConfig(**settings)


def test_delivery_timeout_that_was_given_below_linger_and_request_timeout_is_refused() -> None:
    with pytest.raises(ValueError, match=r"delivery_timeout_ms must be at least .* = 1500, got 1499"):
        ProducerConfig(linger_ms=500, request_timeout_ms=1000, delivery_timeout_ms=1499)


def test_delivery_timeout_of_kafkas_default_is_refused_too_if_it_was_given() -> None:
    with pytest.raises(ValueError, match="got 120000"):
        ProducerConfig(linger_ms=100_000, delivery_timeout_ms=120_000)


def test_delivery_timeout_that_was_not_given_is_raised_to_linger_and_request_timeout() -> None:
    assert ProducerConfig(linger_ms=100_000).delivery_timeout_ms == 130_000
    assert ProducerConfig(linger_ms=2**40).delivery_timeout_ms == MAX_INT32


AGAINST_IDEMPOTENCE = [
    pytest.param({"retries": 0}, "retries", id="retries"),
    pytest.param({"acks": 0}, "acks", id="acks"),
]


@pytest.mark.parametrize("other", [{}, {"enable_idempotence": True}, {"retries": 0}, {"acks": 0}], ids=repr)
def test_more_than_5_in_flight_are_refused_unless_idempotence_is_off(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at most 5 unless enable_idempotence is False, got 6"):
        ProducerConfig(max_in_flight_requests_per_connection=6, **other)
    settings = ProducerConfig(max_in_flight_requests_per_connection=6, enable_idempotence=False)
    assert settings.max_in_flight_requests_per_connection == 6


@pytest.mark.parametrize(("settings", "name"), AGAINST_IDEMPOTENCE)
def test_idempotence_that_was_asked_for_needs_retries_and_acks(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"enable_idempotence needs .*{name}"):
        ProducerConfig(enable_idempotence=True, **settings)
    with pytest.raises(ValueError, match=f"transactional_id needs .*{name}"):
        ProducerConfig(transactional_id="id", **settings)


@pytest.mark.parametrize(("settings", "name"), AGAINST_IDEMPOTENCE)
def test_idempotence_that_was_not_asked_for_gives_way_in_silence(settings: dict[str, Any], name: str) -> None:
    assert name
    assert not ProducerConfig(**settings).is_idempotent


def test_transactions_need_idempotence() -> None:
    with pytest.raises(ValueError, match="transactional_id needs enable_idempotence"):
        ProducerConfig(transactional_id="id", enable_idempotence=False)


def test_level_is_that_of_the_codec_in_use() -> None:
    levels = {"compression_gzip_level": 9, "compression_zstd_level": 7}
    found = [
        ProducerConfig(compression_type=codec, **levels).compression_level for codec in ("none", "gzip", "zstd", "lz4")
    ]  # type: ignore[arg-type]
    assert found == [None, 9, 7, None]


def test_setting_that_does_not_exist_is_named() -> None:
    assert ProducerConfig.of({"linger_ms": 1, "key_serializer": StringSerializer()}).linger_ms == 1
    with pytest.raises(TypeError, match="bootstrap_servers"):
        ProducerConfig.of({"bootstrap_servers": "localhost"})


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("linger_mss", "linger_ms"), ("linger.ms", "linger_ms"), ("Batch.Size", "batch_size"), ("ack", "acks")],
)
def test_setting_that_is_misspelt_is_answered_with_the_nearest_name(given: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=f"no setting '{given}': did you mean '{nearest}'\\?"):
        ProducerConfig.of({given: 1})


def test_setting_that_resembles_none_is_answered_with_where_they_are_listed() -> None:
    with pytest.raises(TypeError, match=r"no setting 'xyz'; kstore\.ProducerConfig lists them"):
        ProducerConfig.of({"xyz": "localhost"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("bootstrap.servers", "there is no broker to connect to, the store is the first argument"),
        ("queue.buffering.max.ms", "did you mean 'linger_ms'"),
        ("max_batch_size", "did you mean 'batch_size'"),
        ("message.timeout.ms", "did you mean 'delivery_timeout_ms'"),
    ],
)
def test_setting_of_another_client_is_answered_with_what_is_here_in_its_place(given: str, said: str) -> None:
    with pytest.raises(TypeError, match=f"a producer has no setting '{given}': {said}"):
        ProducerConfig.of({given: 1})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param({"linger_ms": "5"}, "linger_ms must be an int, got '5'", id="text for a number"),
        pytest.param({"linger_ms": 5.5}, "linger_ms must be an int, got 5.5", id="fraction"),
        pytest.param({"retries": True}, "retries must be an int, got True", id="flag for a number"),
        pytest.param(
            {"enable_idempotence": "false"}, "enable_idempotence must be a bool, got 'false'", id="text for a flag"
        ),
        pytest.param(
            {"partitioner_ignore_keys": None}, "partitioner_ignore_keys must be a bool, got None", id="no flag"
        ),
        pytest.param({"client_id": 7}, "client_id must be a str, got 7", id="number for a text"),
        pytest.param({"transactional_id": b"id"}, "transactional_id must be a str, got b'id'", id="bytes for a text"),
        pytest.param(
            {"partitioner_class": 5}, r"expected a Partitioner .*, found 5 without partition\(\)", id="partitioner"
        ),
        pytest.param({"interceptor_classes": 5}, "must be a list of ProducerInterceptors, got 5", id="one interceptor"),
        pytest.param(
            {"interceptor_classes": [ProducerInterceptor, 5]},
            r"found 5 without on_send, on_acknowledgement, close\(\)",
            id="interceptor",
        ),
    ],
)
def test_value_of_another_type_is_refused_with_the_name_of_the_setting(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        ProducerConfig(**settings)


def test_interceptors_may_come_from_an_iterator() -> None:
    given = [ProducerInterceptor(), ProducerInterceptor]
    assert ProducerConfig(interceptor_classes=iter(given)).interceptor_classes == tuple(given)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_taken() -> None:
    assert ProducerConfig(linger_ms=np.int64(7)).linger_ms == 7  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["key_serializer", "value_serializer"])
def test_name_of_no_serializer_is_refused_with_the_name_of_the_setting(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected one of string"):
        ProducerConfig(**{name: "strin"})  # type: ignore[arg-type]


def test_keyword_arguments_of_a_producer_have_the_names_and_types_of_its_settings() -> None:
    types = {field.name: field.type for field in fields(ProducerConfig)}
    assert {name: one.__forward_arg__ for name, one in ProducerSettings.__annotations__.items()} == types
    assert ProducerSettings.__required_keys__ == frozenset()
