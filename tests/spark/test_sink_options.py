"""Goal: the options of a write mean what they mean in Spark's Kafka sink and in Kafka's producer; mistakes are named.
Method: tables of option texts against the parsed value or the message; no Spark, no file."""

from __future__ import annotations

import re

import pytest

from kstore.producer.config import ProducerConfig
from kstore.spark.sink.options import WriteOptions, parse_write_options
from kstore.staging import AppVersion

DEFAULT = WriteOptions(
    root="/data",
    topic=None,
    new_topic_partitions=None,
    app=None,
    settings={"batch_size": 256 * 1024},
    max_block_ms=60_000,
    transaction_timeout_ms=60_000,
)


def parse(*, is_stream: bool = False, **options: str) -> WriteOptions:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return parse_write_options({"path": "/data", **given}, is_stream=is_stream)


def test_batch_is_larger_than_kafkas_but_no_larger_than_the_memory() -> None:
    assert parse().settings == {"batch_size": 256 * 1024}
    assert parse(kafka__buffer__memory="65536").settings == {"batch_size": 65536, "buffer_memory": 65536}


def test_other_defaults_are_kafkas() -> None:
    assert parse() == parse(checkpointLocation="/c", is_stream=True) == DEFAULT


def test_options_of_the_sink_are_taken_in_any_case() -> None:
    options = parse_write_options(
        {"PATH": "file:///data", "Topic": "t.1_-", "CREATETOPICS": "3", "txnappid": "a/ü", "TxnVersion": "7"},
        is_stream=False,
    )
    assert (options.root, options.topic, options.new_topic_partitions) == ("/data", "t.1_-", 3)
    assert options.app == AppVersion("app-a/ü", 7)


def test_producer_settings_have_kafkas_names() -> None:
    options = parse(
        kafka__compression__type="zstd",
        kafka__compression__zstd__level="5",
        kafka__batch__size="65536",
        kafka__linger__ms="20",
        kafka__max__block__ms="1000",
        kafka__transaction__timeout__ms="2000",
        kafka__partitioner__ignore__keys="TRUE",
    )
    assert options.settings == {
        "compression_type": "zstd",
        "compression_zstd_level": 5,
        "batch_size": 65536,
        "linger_ms": 20,
        "max_block_ms": 1000,
        "transaction_timeout_ms": 2000,
        "partitioner_ignore_keys": True,
    }
    assert (options.max_block_ms, options.transaction_timeout_ms) == (1000, 2000)
    assert ProducerConfig.of(options.settings).compression_level == 5


def test_settings_of_connections_have_no_effect() -> None:
    for name in ("bootstrap.servers", "acks", "security.protocol", "sasl.jaas.config", "ssl.key.password", "retries"):
        assert parse_write_options({"path": "/data", f"kafka.{name}": "x"}, is_stream=True) == DEFAULT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topc": "t"}, "unknown option topc; did you mean topic?"),
        ({"createTopic": "3"}, "unknown option createTopic; did you mean createTopics?"),
        ({"subscribe": "t"}, "unknown option subscribe; write knows createTopics, "),
        ({"kafka.batch.sze": "1"}, "a producer has no setting kafka.batch.sze; did you mean kafka.batch.size?"),
        ({"kafka.compression_type": "lz4"}, "did you mean kafka.compression.type?"),
        ({"kafka.foo": "1"}, "a producer has no setting kafka.foo; expected one of kafka.batch.size"),
        ({"kafka.batch.size": "16k"}, "kafka.batch.size must be a whole number from"),
        ({"kafka.batch.size": "-1"}, "batch_size must be from 0 to 2147483647, got -1 (set by kafka.batch.size)"),
        ({"kafka.compression.type": "lzo"}, "compression_type must be one of none, gzip, snappy, lz4, zstd, got 'lzo'"),
        ({"kafka.partitioner.ignore.keys": "1"}, 'kafka.partitioner.ignore.keys must be true or false, got "1"'),
        (
            {"kafka.transaction.timeout.ms": "900001"},
            "transaction_timeout_ms must be from 1 to 900000, got 900001 (set by kafka.transaction.timeout.ms)",
        ),
        ({"kafka.key.serializer": "x"}, "Kafka option 'key.serializer' is not supported: keys are written as"),
        ({"kafka.value.serializer": "x"}, "Kafka option 'value.serializer' is not supported: values are written as"),
        ({"kafka.transactional.id": "x"}, "Kafka option 'transactional.id' is not supported: the sink has one"),
        ({"path": "s3://b/t"}, "path must be a local or mounted directory"),
        ({"topic": "a b"}, "topic must have 1 to 249 of a-z A-Z 0-9 . _ -"),
        ({"topic": ""}, "topic must have 1 to 249"),
        ({"topic": "__kstore_sink"}, "topic __kstore_sink is internal"),
        ({"createTopics": "0"}, "createTopics must be a whole number from 1 to 2147483647"),
        ({"createTopics": "x"}, "createTopics must be a whole number"),
        ({"txnAppId": "x"}, "txnAppId and txnVersion belong together, got txnAppId x, txnVersion None"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion belong together, got txnAppId None, txnVersion 1"),
        ({"txnAppId": "", "txnVersion": "1"}, "txnAppId must have 1 to 200 characters, got 0"),
        ({"txnAppId": "x" * 201, "txnVersion": "1"}, "txnAppId must have 1 to 200 characters, got 201"),
        ({"txnAppId": "x", "txnVersion": "-1"}, "txnVersion must be a whole number from 0 to"),
        ({"txnAppId": "x", "txnVersion": str(2**63)}, "txnVersion must be a whole number from 0 to"),
    ],
)
def test_mistake_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_write_options({"path": "/data", **options}, is_stream=False)


def test_path_must_be_given() -> None:
    with pytest.raises(ValueError, match="path must be given"):
        parse_write_options({"topic": "t"}, is_stream=False)


def test_stream_takes_no_application() -> None:
    with pytest.raises(ValueError, match="txnAppId and txnVersion are for batch writes"):
        parse(is_stream=True, txnAppId="x", txnVersion="1")
