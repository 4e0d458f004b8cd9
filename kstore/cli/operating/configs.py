"""`kstore configs`: the settings of topics, who says each of them, and changes of them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.operating.owners import changed_store, check_owner, find_root
from kstore.cli.operating.topics import check_exists, in_kafkas_names, parse_settings, topics_of
from kstore.cli.output import Column
from kstore.cli.render import JSON_TEXT
from kstore.config import LogConfig
from kstore.log.files.names import CLUSTER_METADATA_TOPIC
from kstore.store.settings.kafka_names import TOPIC_SETTINGS_BY_NAME, parse_name, setting_text
from kstore.store.settings.known import KnownSettings
from kstore.store.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.cli.output import Output

COLUMNS = (Column("topic"), Column("name"), Column("value", wraps=True), Column("said by", rank=1))
_IGNORED = (
    "brokers ignore kstore-topic-settings: a setting there holds for kstore alone, and theirs are set by kafka-configs"
)


class Setting(NamedTuple):
    """A setting of a topic by Kafka's name, its text, and who says it; is_default: nothing about this topic does."""

    topic: str
    name: str
    value: str
    source: str
    is_default: bool


class ConfigChange(NamedTuple):
    """Settings that a topic gets, as NAME=VALUE, and names of those whose default is to hold."""

    topic: str
    given: tuple[str, ...]
    reset: tuple[str, ...]
    is_dry: bool
    is_forced: bool


def run(directory: str, topics: Sequence[str], out: Output, *, shows_all: bool, is_json: bool) -> int:
    """Show the settings of topics, and return the exit status."""
    root, env = find_root(directory)
    known = KnownSettings(root, env)
    with open_store(root) as store:
        wanted = [check_exists(store, topic) for topic in topics] or topics_of(store)
    of_each = (setting for topic in wanted for setting in settings_of(topic, known))
    settings = [setting for setting in of_each if shows_all or not setting.is_default]
    if is_json:
        for setting in settings:
            out.line(JSON_TEXT(setting._asdict()))
    elif settings:
        out.table(COLUMNS, [[setting.topic, setting.name, setting.value, setting.source] for setting in settings])
    if not is_json:
        if not settings:
            out.notice("nothing says a setting of these topics; --all shows the defaults")
        for topic in wanted:
            doubt = known.of(topic).doubt
            if doubt and known.damage is not None:
                out.notice(f"{topic}: {doubt}")
    return EXIT_FINE


def change(directory: str, wanted: ConfigChange, out: Output, *, is_json: bool) -> int:
    """Set and unset settings of a topic, show those that it has then, and return the exit status."""
    root, env = find_root(directory)
    check_owner(root, env, consequence=_IGNORED, is_forced=wanted.is_forced)
    topic, changes = wanted.topic, parse_settings(wanted.given)
    try:
        names = [parse_name(name) for name in wanted.reset]
    except ValueError as error:
        raise WrongUseError(str(error)) from error
    both = sorted(set(names) & changes.keys())
    if both:
        raise WrongUseError(f"{both[0].replace('_', '.')} is both set and unset")
    with open_store(root) as store:
        check_exists(store, topic)
    try:
        if wanted.is_dry:
            _check(topic, KnownSettings(root, env), changes, names)
        else:
            with changed_store(root, out, consequence=_IGNORED) as writable:
                writable.change_topic_config(topic, changes, reset=names)
    except (TypeError, ValueError) as error:
        raise in_kafkas_names(error) from error
    if wanted.is_dry:
        out.notice("dry run: nothing was changed")
        return EXIT_FINE
    return run(directory, [topic], out, shows_all=False, is_json=is_json)


def settings_of(topic: str, known: KnownSettings) -> list[Setting]:
    """Return all settings of a topic, by name; also those that only a cluster has use for."""
    found, defaults, told = known.of(topic), known.defaults, known.texts_of_cluster(topic)
    settings = []
    of_log_config = {field.name: field.default for field in fields(LogConfig)}
    for name, field in TOPIC_SETTINGS_BY_NAME.items():
        if field in found.settings:
            settings.append(Setting(topic, name, setting_text(found.settings[field]), found.sources[field], False))
        elif name in told:
            settings.append(Setting(topic, name, told[name], CLUSTER_METADATA_TOPIC, False))
        elif field in defaults:
            settings.append(Setting(topic, name, setting_text(defaults[field]), "the default of the root", True))
        else:
            settings.append(Setting(topic, name, setting_text(of_log_config[field]), "Kafka's default", True))
    others = sorted(told.keys() - TOPIC_SETTINGS_BY_NAME.keys())
    return settings + [Setting(topic, name, told[name], CLUSTER_METADATA_TOPIC, False) for name in others]


def _check(topic: str, known: KnownSettings, changes: dict[str, object], reset: list[str]) -> None:
    merged = {name: value for name, value in known.of(topic).settings.items() if name not in reset}
    LogConfig(**{**merged, **changes})
