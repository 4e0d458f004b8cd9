"""`kstore serve`: a root by Kafka's protocol, until a signal ends it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.serving.logs import logged
from kstore.cli.serving.properties import config_of, parse_config
from kstore.env import locate
from kstore.env.process import until_told_to_end
from kstore.errors import SecurityError
from kstore.log.files.checkpoints import read_text
from kstore.serve.server import Server
from kstore.store.store import WritableStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstore.cli.output import Output
    from kstore.serve.config import ServerConfig

_MOST_CONFIG_BYTES = 1 << 20


class Serving(NamedTuple):
    """What the options of the command say. Addresses are host:port; users, certificate, key and client_ca are files.

    flushes: whether acks=all waits for the disk, None for what the config says.
    """

    is_read_only: bool
    listen: str | None
    advertised: str | None
    config: str | None
    metrics: str | None
    is_forced: bool
    cleans: bool | None
    flushes: bool | None
    logs_access: bool
    log_format: str
    is_json: bool
    users: str | None
    certificate: str | None
    key: str | None
    client_ca: str | None
    is_insecure: bool


def run(root: str, out: Output, wanted: Serving) -> int:
    """Serve until SIGTERM or Ctrl-C, and return the exit status."""
    with ExitStack() as stack:
        stack.enter_context(logged(out, log_format=wanted.log_format, is_access_logged=wanted.logs_access))
        wait = stack.enter_context(until_told_to_end())
        config = _config(wanted, out)
        metrics = None if wanted.metrics is None else _address(wanted.metrics, option="--metrics")
        server = Server(root, read_only=wanted.is_read_only, config=config)
        try:
            server.start()
        except OSError as error:
            out.notice(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}")
            return EXIT_DAMAGE
        stack.callback(server.close)
        if metrics is not None:
            stack.callback(_exposed(server, *metrics))
        _tell(server, out, is_json=wanted.is_json)
        wait()
    return EXIT_FINE


def _config(wanted: Serving, out: Output) -> ServerConfig:
    """Return what the file says, and what the options say over it."""
    values = _values_of_file(wanted.config, out)
    own, security = values[""], values["security"]
    if wanted.listen is not None:
        own["host"], own["port"] = _address(wanted.listen, option="--listen")
    if wanted.advertised is not None:
        own["advertised_host"], own["advertised_port"] = _address(wanted.advertised, option="--advertise")
    own["changes_topics_of_clusters"] = wanted.is_forced
    if wanted.cleans is not None:
        own["cleans"] = wanted.cleans
    if wanted.flushes is not None:
        own["ack_of_all"] = "flushed" if wanted.flushes else "written"
    files = {name: getattr(wanted, name) for name in ("users", "certificate", "key", "client_ca")}
    security |= {name: file for name, file in files.items() if file is not None}
    security["insecure"] = wanted.is_insecure
    if wanted.client_ca is not None:
        security.setdefault("client_certificates", "required")
    try:
        return config_of(values)
    except SecurityError as error:
        raise WrongUseError(str(error)) from error


def _values_of_file(place: str | None, out: Output) -> dict[str, dict[str, Any]]:
    if place is None:
        return parse_config("")[0]
    env, path = locate(place)
    text = read_text(path, env, max_bytes=_MOST_CONFIG_BYTES)
    if text is None:
        raise WrongUseError(f"--config: there is no file {place}")
    try:
        values, unknown = parse_config(text)
    except ValueError as error:
        raise WrongUseError(f"--config {place}: {error}") from error
    if unknown:
        out.notice(f"{place}: not settings of this server, ignored: {', '.join(unknown)}")
    return values


def _address(text: str, *, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise WrongUseError(f"{option} must be HOST:PORT, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _exposed(server: Server, host: str, port: int) -> Callable[[], None]:
    """Serve the metrics by HTTP; return what ends that."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ModuleNotFoundError as error:
        raise WrongUseError("--metrics needs the package prometheus_client: pip install 'kstore[metrics]'") from error
    from kstore.serve.metrics import ServerCollector
    from kstore.store.upkeep.prometheus import StoreCollector

    registry = CollectorRegistry()
    registry.register(ServerCollector(server.metrics))
    if isinstance(server.store, WritableStore):
        registry.register(StoreCollector(server.store))
    httpd, thread = start_http_server(port, host, registry)

    def end() -> None:
        httpd.shutdown()
        httpd.server_close()
        thread.join()

    return end


def _tell(server: Server, out: Output, *, is_json: bool) -> None:
    store = server.store
    mode = "read and written" if isinstance(store, WritableStore) else "only read"
    if is_json:
        facts = {"root": store.root, "bootstrapServers": server.bootstrap_servers, "topics": len(store.topics)}
        out.line(json.dumps(facts | {"isReadOnly": not isinstance(store, WritableStore)}))
    else:
        out.line(f"{store.root} is served on {server.bootstrap_servers}: {len(store.topics)} topics, {mode}")
    out.flush()
