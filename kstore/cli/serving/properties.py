"""parse_config: the settings of a server by the names and texts of a broker's server.properties."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from kstore.config import MAX_INT32
from kstore.log.files.root_files import parse_properties
from kstore.serve.config import ServerConfig

_LISTENER = re.compile(r"(\w+)://(\[[^\]]*\]|[^:]*):(\d+)")
_BOOLS = {"true": True, "false": False}


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise ValueError("expected true or false")
    return _BOOLS[text.lower()]


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MAX_INT32:
        raise ValueError(f"expected a number from 0 to {MAX_INT32}")
    return int(text)


class _Setting(NamedTuple):
    """Where the value of a setting goes: a field of ServerConfig, or of one of the configs in it."""

    field: str
    parse: Callable[[str], Any] = _count
    within: str | None = None


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
    "transactional.id.expiration.ms": _Setting("transactional_id_expiration_ms"),
}


def parse_config(text: str) -> tuple[ServerConfig, list[str]]:
    """Return the settings that a file says, and the names in it that are none of this server's.

    Of `listeners` and `advertised.listeners`, the first that is no controller's counts.
    Raises: ValueError, with the name of the setting, for a text that is no value of it.
    """
    given = parse_properties(text)
    config, unknown = ServerConfig(), []
    controllers = {name.strip().upper() for name in given.pop("controller.listener.names", "").split(",")}
    for name, value in given.items():
        try:
            if name in ("listeners", "advertised.listeners"):
                host, port = _listener(value, controllers)
                is_advertised = name == "advertised.listeners"
                config = (
                    replace(config, advertised_host=host, advertised_port=port)
                    if is_advertised
                    else replace(config, host=host, port=port)
                )
            elif name in _SETTINGS:
                config = _with(config, _SETTINGS[name], value.strip())
            else:
                unknown.append(name)
        except ValueError as error:
            raise ValueError(f"{name}={value}: {error}") from error
    return config, unknown


def _with(config: ServerConfig, setting: _Setting, text: str) -> ServerConfig:
    changed: dict[str, Any] = {setting.field: setting.parse(text)}
    if setting.within is None:
        return replace(config, **changed)
    within: dict[str, Any] = {setting.within: replace(getattr(config, setting.within), **changed)}
    return replace(config, **within)


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
