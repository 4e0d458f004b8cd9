"""`kstore adopt`: makes roots ready for one KRaft broker, and says what it did and what the broker needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstore.adoption.run import adopt
from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Column
from kstore.cli.render import JSON_TEXT
from kstore.env import shown_path
from kstore.log.files.root_files import id_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.adoption.features import Release
    from kstore.adoption.report import AdoptedTopic, AdoptionReport
    from kstore.cli.output import Output

COLUMNS = (
    Column("topic"),
    Column("id", rank=2),
    Column("partitions", is_number=True),
    Column("epoch", is_number=True, rank=1),
    Column("settings", wraps=True),
    Column("said by", rank=3),
)


@dataclass(frozen=True, kw_only=True)
class TypedOptions:
    """The options of `adopt` as they were typed."""

    roots: Sequence[str]
    node_id: int | None
    cluster_id: str | None
    release: Release | None
    config: str | None
    keep_forever: bool
    replace: bool
    set_aside: str | None
    dry_run: bool


def run(typed: TypedOptions, out: Output, *, is_json: bool) -> int:
    """Adopt the roots, print what was done, and return the exit status."""
    try:
        report = adopt(
            typed.roots,
            node_id=typed.node_id,
            cluster_id=typed.cluster_id,
            release=typed.release,
            settings=typed.config,
            keep_forever=typed.keep_forever,
            replace=typed.replace,
            set_aside=typed.set_aside,
            dry_run=typed.dry_run,
        )
    except ValueError as error:
        raise WrongUseError(str(error)) from error
    if is_json:
        out.line(JSON_TEXT(json_of(report)))
    else:
        _show(report, out)
    if report.is_dry_run:
        out.notice("dry run: nothing was changed")
    return EXIT_FINE


def json_of(report: AdoptionReport) -> dict[str, object]:
    """Return the JSON object of a report."""
    return {
        "roots": list(report.roots),
        "node_id": report.node_id,
        "cluster_id": report.cluster_id,
        "features": dict(report.features),
        "topics": [_json_of_topic(topic) for topic in report.topics],
        "next_producer_id": report.next_producer_id,
        "snapshot": report.snapshot,
        "changed": report.is_changed,
        "set_aside": report.set_aside,
        "lost": list(report.lost),
        "left_alone": list(report.left_alone),
        "notices": list(report.notices),
        "server_properties": list(report.server_properties),
        "dry_run": report.is_dry_run,
    }


def _json_of_topic(topic: AdoptedTopic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "id": id_text(topic.topic_id),
        "new_id": topic.has_new_id,
        "partitions": topic.partitions,
        "holes": list(topic.holes),
        "leader_epoch": topic.highest_epoch,
        "settings": dict(topic.settings),
        "settings_from": topic.settings_from,
        "notes": list(topic.notes),
    }


def _show(report: AdoptionReport, out: Output) -> None:
    out.table(COLUMNS, [_row(topic) for topic in report.topics])
    for topic in report.topics:
        for note in topic.notes:
            out.notice(f"topic {topic.name}: {note}")
    for text in report.lost:
        out.notice(f"not carried over: {text}")
    for path in report.left_alone:
        out.notice(f"left alone: {shown_path(path)}")
    for text in report.notices:
        out.notice(text)
    if report.set_aside is not None:
        out.notice(f"the files of the earlier cluster: {shown_path(report.set_aside)}")
    if not report.is_changed:
        out.notice("the roots were adopted before; nothing was changed")
    out.line("")
    out.line("server.properties needs:")
    for line in report.server_properties:
        out.line(line)


def _row(topic: AdoptedTopic) -> list[str]:
    settings = ",".join(f"{name}={value}" for name, value in topic.settings.items())
    return [
        topic.name,
        id_text(topic.topic_id),
        str(topic.partitions),
        str(topic.highest_epoch),
        settings or "-",
        topic.settings_from or "-",
    ]
