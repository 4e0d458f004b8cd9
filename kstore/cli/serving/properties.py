"""The settings of a server by the names and texts of a broker's server.properties."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from kstore.config import MAX_INT32
from kstore.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
from kstore.log.files.root_files import parse_properties
from kstore.serve.config import ConnectionLimits, SecurityConfig, ServerConfig

_LISTENER = re.compile(r"(\w+)://(\[[^\]]*\]|[^:]*):(\d+)")
_LISTENERS = {"listeners": ("host", "port"), "advertised.listeners": ("advertised_host", "advertised_port")}
_BOOLS = {"true": True, "false": False}


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise ValueError("expected true or false")
    return _BOOLS[text.lower()]


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MAX_INT32:
        raise ValueError(f"expected a number from 0 to {MAX_INT32}")
    return int(text)


def _level(text: str) -> int:
    if text not in ("0", "1", "2"):
        raise ValueError("expected 0, 1 or 2")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _ack(text: str) -> str:
    if text not in ("written", "flushed"):
        raise ValueError("expected written or flushed")
    return text


def _positive(text: str) -> int:
    if not _count(text):
        raise ValueError("expected 1 or more")
    return _count(text)


class _Setting(NamedTuple):
    """Where the value of a setting goes: a field of ServerConfig, or of one of the configs in it."""

    field: str
    parse: Callable[[str], Any] = _count
    within: str = ""


_SETTINGS = {
    "auto.create.topics.enable": _Setting("creates_topics", _boolean),
    "num.partitions": _Setting("partitions"),
    "log.cleaner.enable": _Setting("cleans", _boolean),
    "socket.request.max.bytes": _Setting("most_request_bytes"),
    "queued.max.request.bytes": _Setting("most_held_bytes"),
    "fetch.max.bytes": _Setting("most_fetch_bytes"),
    "group.initial.rebalance.delay.ms": _Setting("initial_rebalance_delay_ms", within="groups"),
    "group.min.session.timeout.ms": _Setting("min_session_timeout_ms", within="groups"),
    "group.max.session.timeout.ms": _Setting("max_session_timeout_ms", within="groups"),
    "group.max.size": _Setting("max_size", within="groups"),
    "transaction.version": _Setting("transaction_version", _level),
    "transactional.id.expiration.ms": _Setting("transactional_id_expiration_ms"),
    "transaction.max.timeout.ms": _Setting("max_transaction_timeout_ms", _positive),
    # None of Kafka's: a broker has replicas for it.
    "kstore.ack.of.all": _Setting("ack_of_all", _ack),
    "offsets.retention.minutes": _Setting("offsets_retention_ms", lambda text: _count(text) * 60_000, within="groups"),
    "offsets.retention.check.interval.ms": _Setting("offsets_retention_check_interval_ms", within="groups"),
    "ssl.keystore.location": _Setting("certificate", str, within="security"),
    "ssl.key.password": _Setting("key_password", str, within="security"),
    "ssl.truststore.location": _Setting("client_ca", str, within="security"),
    "ssl.client.auth": _Setting("client_certificates", str, within="security"),
    "sasl.enabled.mechanisms": _Setting("sasl_mechanisms", _names, within="security"),
    "max.connections": _Setting("most_connections", within="limits"),
    "max.connections.per.ip": _Setting("most_per_address", within="limits"),
    "connections.max.idle.ms": _Setting("idle_ms", within="limits"),
    "connection.failed.authentication.delay.ms": _Setting("failure_delay_ms", within="limits"),
    "group.consumer.session.timeout.ms": _Setting("session_timeout_ms", within="consumer_groups"),
    "group.consumer.heartbeat.interval.ms": _Setting("heartbeat_interval_ms", within="consumer_groups"),
    "group.consumer.max.size": _Setting("max_size", within="consumer_groups"),
}
_WITHIN = {
    "groups": GroupSettings,
    "consumer_groups": ConsumerGroupSettings,
    "security": SecurityConfig,
    "limits": ConnectionLimits,
}


def parse_config(text: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the settings that a file says, as config_of() takes them, and the names in it that are none of a server's.

    Of `listeners` and `advertised.listeners`, the first that is no controller's counts. Certificates are PEM files.
    Raises: ValueError, with the name of the setting, for a text that is no value of it.
    """
    given = parse_properties(text)
    values: dict[str, dict[str, Any]] = {"": {}, **{name: {} for name in _WITHIN}}
    unknown = []
    controllers = {name.upper() for name in _names(given.pop("controller.listener.names", ""))}
    for name, value in given.items():
        setting = _SETTINGS.get(name)
        try:
            if name in _LISTENERS:
                values[""] |= zip(_LISTENERS[name], _listener(value, controllers), strict=True)
            elif setting is None:
                unknown.append(name)
            else:
                values[setting.within][setting.field] = setting.parse(value.strip())
        except ValueError as error:
            raise ValueError(f"{name}={value}: {error}") from error
    return values, unknown


def config_of(values: dict[str, dict[str, Any]]) -> ServerConfig:
    """Return the config with these values, and defaults for others.

    Raises: SecurityError for values that contradict each other.
    """
    within = {name: kind(**values.get(name, {})) for name, kind in _WITHIN.items()}
    return ServerConfig(**within, **values.get("", {}))


def _listener(text: str, controllers: set[str]) -> tuple[str, int]:
    """Return the host and the port of the first listener for clients; no host stands for all addresses."""
    for one in text.split(","):
        match = _LISTENER.fullmatch(one.strip())
        if match is None:
            raise ValueError("expected listeners such as PLAINTEXT://127.0.0.1:9092")
        name, host, port = match.groups()
        if name.upper() not in controllers:
            return host.strip("[]") or "0.0.0.0", int(port)
    raise ValueError("expected a listener for clients")
