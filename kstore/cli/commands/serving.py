"""serve: a root for the clients of Kafka."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.commands.operating import Force, Root
from kstore.cli.commands.options import Json
from kstore.cli.output import Output


class LogFormat(str, Enum):
    """How the log of the server is written."""

    TEXT = "text"
    JSON = "json"


@command("serve")
def serve(
    out: Output,
    directory: Root,
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Take no lock, write nothing: for a live, foreign or damaged root."),
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients connect; default: 127.0.0.1:9092."),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients are told to connect."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Settings, by the names of a broker's server.properties.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Also serve /metrics there, in Prometheus' text.")
    ] = None,
    retention: Annotated[
        bool | None,
        typer.Option(
            "--retention/--no-retention",
            help="Whether retention and compaction delete records; default: only in a root that kstore created.",
        ),
    ] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log each request.")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How the log on standard error is written.")] = LogFormat.TEXT,
    force: Force = False,
    json: Json = False,
) -> int:
    """Serve a root to any client of Kafka, until Ctrl-C or SIGTERM."""
    from kstore.cli.serving import serve as serving

    wanted = serving.Serving(
        is_read_only=read_only,
        listen=listen,
        advertised=advertise,
        config=config,
        metrics=metrics,
        is_forced=force,
        cleans=retention,
        logs_access=access_log,
        log_format=log_format.value,
        is_json=json,
    )
    return serving.run(directory, out, wanted)
