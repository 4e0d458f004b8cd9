"""serve, serve-users: a root for the clients of Kafka, and who they are."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.commands.options import Force, Json, Root
from kstore.cli.output import Output


class LogFormat(str, Enum):
    """How the log of the server is written."""

    TEXT = "text"
    JSON = "json"


Retention = Annotated[
    bool | None,
    typer.Option(
        "--retention/--no-retention",
        help="Whether retention and compaction delete records; default: only in a root that kstore created.",
    ),
]
Flush = Annotated[
    bool | None,
    typer.Option(
        "--flush/--no-flush", help="Whether acks=all waits for the disk; default: as a broker, which does not."
    ),
]


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
    users: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file of serve-users: clients log in by SASL.")
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="The server's certificate, and key, as PEM: clients use TLS.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The private key, where the certificate's file has none.")
    ] = None,
    client_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="Clients have certificates that are signed by one of these.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine although anybody could then do anything.")
    ] = False,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Also serve /metrics there, in Prometheus' text.")
    ] = None,
    retention: Retention = None,
    flush: Flush = None,
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
        flushes=flush,
        logs_access=access_log,
        log_format=log_format.value,
        is_json=json,
        users=users,
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        is_insecure=insecure,
    )
    return serving.run(directory, out, wanted)


class Right(str, Enum):
    """What a rule allows."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


Prefix = Annotated[str | None, typer.Option(metavar="PREFIX", help="The rule is of those whose names begin so.")]


@command("serve-users")
def serve_users(
    out: Output,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file for --users of kstore serve.")],
    add: Annotated[str | None, typer.Option(metavar="NAME", help="Add this user, or change the password.")] = None,
    superuser: Annotated[bool, typer.Option("--superuser", help="The user may do everything.")] = False,
    password_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its first line is the password; default: it is asked for.")
    ] = None,
    remove: Annotated[str | None, typer.Option(metavar="NAME", help="Remove this user and its rules.")] = None,
    allow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Add a rule for this user, or subject of a certificate.")
    ] = None,
    disallow: Annotated[str | None, typer.Option(metavar="NAME", help="Remove a rule.")] = None,
    topic: Prefix = None,
    group: Prefix = None,
    transactional_id: Prefix = None,
    right: Annotated[list[Right] | None, typer.Option("--may", help="What the rule allows; repeatable.")] = None,
    json: Json = False,
) -> int:
    """List and change the users of a server, and their rules."""
    from kstore.cli.serving import users

    wanted = users.Wanted(
        added=add,
        removed=remove,
        allowed=allow,
        disallowed=disallow,
        is_superuser=superuser,
        password_file=password_file,
        prefixes={"topic": topic, "group": group, "transactional_id": transactional_id},
        operations=tuple(one.value for one in right or ()),
    )
    return users.run(file, out, wanted, is_json=json)
