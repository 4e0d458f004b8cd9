"""The options of a write: those of Spark's Kafka sink, and the producer's settings by Kafka's names.

Opens no file and does not import Spark. Each invalid option is a ValueError with its name and its value, and what was
expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kstore.compression import CODECS_WITH_LEVELS
from kstore.config import KIB, MAX_INT32, MAX_INT64
from kstore.env import is_local, shown_path
from kstore.producer.config import ProducerConfig
from kstore.spark.option_names import check_names, checked_path
from kstore.staging.area import AppVersion
from kstore.types import INTERNAL_TOPICS, is_topic_name

_KAFKA = "kafka."
_NUMBERS = (
    "batch.size",
    "buffer.memory",
    *(f"compression.{codec.label}.level" for codec in CODECS_WITH_LEVELS),
    "delivery.timeout.ms",
    "linger.ms",
    "max.block.ms",
    "max.request.size",
    "partitioner.availability.timeout.ms",
    "request.timeout.ms",
    "transaction.timeout.ms",
)
_FLAGS = ("partitioner.adaptive.partitioning.enable", "partitioner.ignore.keys")
_TEXTS = ("compression.type",)
_REFUSED = {
    "key.serializer": "keys are written as the bytes of the key column; serialize them with DataFrame operations",
    "value.serializer": "values are written as the bytes of the value column; serialize them with DataFrame operations",
    "interceptor.classes": "no Kafka producer is involved",
    "partitioner.class": "write a partition column instead",
    "transactional.id": "the sink has one of its own for each query; see txnAppId",
}
# Settings of Kafka's ProducerConfig that concern a connection, retries or metrics.
_WITHOUT_EFFECT = (
    "acks",
    "auto.include.jmx.reporter",
    "bootstrap.servers",
    "client.dns.lookup",
    "client.id",
    "config.providers",
    "connections.max.idle.ms",
    "enable.idempotence",
    "enable.metrics.push",
    "max.in.flight.requests.per.connection",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "security.protocol",
    "security.providers",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
_PREFIXES_WITHOUT_EFFECT = ("sasl.", "ssl.")
_MOST_APP_ID = 200
# Kafka's 16 KiB limit how long records wait. A task writes at full speed, so larger batches only save work.
_BATCH_BYTES = 256 * KIB


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """All options of a write, validated.

    root: the root to write to, absolute. topic: that of all rows, None to take it from their topic column.
    new_topic_partitions: how many partitions a missing topic gets, None to refuse it. app: None to commit without a
    version. settings: those of the producer in each task.
    """

    root: str
    topic: str | None
    new_topic_partitions: int | None
    app: AppVersion | None
    settings: Mapping[str, Any]
    max_block_ms: int
    transaction_timeout_ms: int


def _root(path: str) -> str:
    """Return the absolute path of a root to write to.

    Raises: ValueError for a URL of another place, where kstore only reads.
    """
    if not is_local(path):
        raise ValueError(
            "path must be a local or mounted directory, the same on the driver and on every executor; kstore only "
            f"reads URLs, got {shown_path(path)}"
        )
    return checked_path(path)


def parse_write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Parse and validate the options of a write.

    Raises: ValueError that names the option, with the nearest name for an unknown one.
    """
    given = {name.lower(): value for name, value in options.items()}
    check_names(options, "writeStream" if is_stream else "write")
    _check_settings(given)
    path = given.get("path")
    if path is None:
        raise ValueError("path must be given: the log.dirs root to write to")
    settings = _settings(given)
    config = _config_of(settings)
    return WriteOptions(
        root=_root(path),
        topic=_topic(given.get("topic")),
        new_topic_partitions=_integer("createTopics", given.get("createtopics"), least=1, most=MAX_INT32),
        app=_app(given, is_stream=is_stream),
        settings={"batch_size": min(_BATCH_BYTES, config.buffer_memory), **settings},
        max_block_ms=config.max_block_ms,
        transaction_timeout_ms=config.transaction_timeout_ms,
    )


def _check_settings(given: Mapping[str, str]) -> None:
    known = (*_NUMBERS, *_FLAGS, *_TEXTS)
    for name in given:
        if not name.startswith(_KAFKA):
            continue
        setting = name.removeprefix(_KAFKA)
        if setting in _REFUSED:
            raise ValueError(f"Kafka option '{setting}' is not supported: {_REFUSED[setting]}")
        is_ignored = setting in _WITHOUT_EFFECT or setting.startswith(_PREFIXES_WITHOUT_EFFECT)
        if setting not in known and not is_ignored:
            nearest = get_close_matches(setting.replace("_", "."), known, n=1)
            names = ", ".join(_KAFKA + other for other in known)
            hint = f"did you mean {_KAFKA}{nearest[0]}?" if nearest else f"expected one of {names}"
            raise ValueError(f"a producer has no setting {name}; {hint}")


def _settings(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that were given, by kstore's names."""
    settings: dict[str, Any] = {}
    for setting in (*_NUMBERS, *_FLAGS, *_TEXTS):
        name = _KAFKA + setting
        text = given.get(name)
        if text is None:
            continue
        value: int | bool | str | None = text
        if setting in _NUMBERS:
            value = _integer(name, text, least=-MAX_INT64, most=MAX_INT64)
        elif setting in _FLAGS:
            if text.lower() not in ("true", "false"):
                raise ValueError(f'{name} must be true or false, got "{text}"')
            value = text.lower() == "true"
        settings[setting.replace(".", "_")] = value
    return settings


def _config_of(settings: Mapping[str, Any]) -> ProducerConfig:
    try:
        return ProducerConfig.of(settings)
    except ValueError as error:
        names = ", ".join(_KAFKA + name.replace("_", ".") for name in settings)
        raise ValueError(f"{error} (set by {names})") from error


def _topic(text: str | None) -> str | None:
    if text is not None and not is_topic_name(text):
        raise ValueError(f'topic must have 1 to 249 of a-z A-Z 0-9 . _ -, got "{text}"')
    if text in INTERNAL_TOPICS:
        raise ValueError(f"topic {text} is internal: records can't be written to it")
    return text


def _app(given: Mapping[str, str], *, is_stream: bool) -> AppVersion | None:
    app_id, version = given.get("txnappid"), given.get("txnversion")
    if app_id is None and version is None:
        return None
    if is_stream:
        raise ValueError("txnAppId and txnVersion are for batch writes: a stream has its query's id and its batch's")
    if app_id is None or version is None:
        raise ValueError(f"txnAppId and txnVersion belong together, got txnAppId {app_id}, txnVersion {version}")
    if not 1 <= len(app_id) <= _MOST_APP_ID:
        raise ValueError(f"txnAppId must have 1 to {_MOST_APP_ID} characters, got {len(app_id)}")
    number = _integer("txnVersion", version, least=0, most=MAX_INT64)
    return None if number is None else AppVersion(f"app-{app_id}", number)


def _integer(name: str, text: str | None, *, least: int, most: int) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()) or not least <= int(text) <= most:
        raise ValueError(f'{name} must be a whole number from {least} to {most}, got "{text}"')
    return int(text)
