"""`kstore topics` and `kstore delete-topic`: which topics a root has, and how they come, grow and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.operating.owners import changed_store, check_owner, find_root
from kstore.cli.output import Column
from kstore.cli.printing.watching import Order
from kstore.cli.render import JSON_TEXT
from kstore.config import LogConfig
from kstore.env import shown_path
from kstore.errors import InvalidTopicError, TopicExistsError
from kstore.log.files.names import CLUSTER_METADATA_TOPIC
from kstore.log.files.root_files import id_text, parse_id
from kstore.naming import did_you_mean
from kstore.store.settings.cluster import read_cluster_topics
from kstore.store.settings.kafka_names import TOPIC_SETTINGS_BY_NAME, parse_setting, setting_text
from kstore.store.settings.known import KnownSettings
from kstore.store.store import open_store
from kstore.store.topics import check_no_collision, check_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from kstore.cli.output import Output
    from kstore.env import Env
    from kstore.store.settings.cluster import ClusterTopic
    from kstore.store.store import Store

COLUMNS = (
    Column("topic"),
    Column("id", rank=2),
    Column("partitions", is_number=True),
    Column("cluster", rank=1),
    Column("settings", wraps=True),
)
# What `--sort` sorts by.
SORT_KEYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda topic: topic["topic"],
    "partitions": lambda topic: len(topic["partitions"]),
}
DEFAULT_ORDER = Order()
_STRAY = "a broker that starts on it renames partitions that its metadata does not have to ...-stray"
_COMES_BACK = "a broker that starts on it makes the partitions again, empty, as long as its metadata has the topic"


@dataclass(frozen=True, kw_only=True)
class TopicChange:
    """A topic that is to be created, or to get more partitions; topic_id: None for a new one.

    is_conditional: a topic that is there, or is not there to be altered, is left alone, and no error.
    """

    name: str
    partitions: int | None
    settings: Sequence[str] = ()
    topic_id: str | None = None
    is_new: bool
    is_conditional: bool = False
    is_dry: bool
    is_forced: bool


@dataclass(frozen=True, kw_only=True)
class TopicDeletion:
    """A topic that is to be deleted; is_conditional: one that is not there is no error."""

    name: str
    is_conditional: bool
    is_dry: bool
    is_forced: bool


def run(directory: str, topics: Sequence[str], out: Output, *, is_json: bool, order: Order = DEFAULT_ORDER) -> int:
    """List the topics of a root, in the order of SORT_KEYS that is asked for, and return the exit status."""
    root, env = find_root(directory)
    known, cluster = KnownSettings(root, env), read_cluster_topics(root, env)
    with open_store(root) as store:
        wanted = [check_exists(store, topic) for topic in topics] or topics_of(store)
        shown = order.apply((_described(store, topic, known, cluster) for topic in wanted), SORT_KEYS)
    if is_json:
        for topic in shown:
            out.line(JSON_TEXT(topic))
    elif shown:
        out.table(COLUMNS, [_row(topic) for topic in shown])
    else:
        out.notice("the root has no topic")
    return EXIT_FINE


def change(directory: str, wanted: TopicChange, out: Output, *, is_json: bool) -> int:
    """Create a topic or add partitions to one, and return the exit status."""
    root, env = find_root(directory)
    if wanted.is_conditional and _has(root, wanted.name) == wanted.is_new:
        out.notice(f"topic {wanted.name} is {'already' if wanted.is_new else 'not'} in {shown_path(root)}")
        if is_json:
            unchanged = (
                _there(root, env, wanted.name)
                if wanted.is_new
                else _result(wanted.name, "add partitions", existed=False)
            )
            out.line(JSON_TEXT({**unchanged, "dry_run": wanted.is_dry}))
        return EXIT_FINE
    check_owner(root, env, consequence=_STRAY, is_forced=wanted.is_forced)
    settings = parse_settings(wanted.settings)
    result = _create(root, wanted, settings, out) if wanted.is_new else _grow(root, wanted, out)
    _report(result, wanted.is_dry, out, is_json=is_json)
    return EXIT_FINE


def delete(directory: str, wanted: TopicDeletion, out: Output, *, is_json: bool) -> int:
    """Delete a topic with its records, settings and committed offsets, and return the exit status."""
    name = wanted.name
    root, env = find_root(directory)
    if wanted.is_conditional and not _has(root, name):
        out.notice(f"topic {name} is not in {shown_path(root)}")
        if is_json:
            unchanged = _result(name, "delete", existed=False, id=None, size_in_bytes=0)
            out.line(JSON_TEXT({**unchanged, "dry_run": wanted.is_dry}))
        return EXIT_FINE
    check_owner(root, env, consequence=_COMES_BACK, is_forced=wanted.is_forced)
    with open_store(root) as store:
        check_exists(store, name)
        numbers = [partition for topic, partition in store.partitions if topic == name]
        size = sum(store.log(name, number).size_in_bytes for number in numbers)
        topic_id = store.topic_id(name)
    if not wanted.is_dry:
        with changed_store(root, out, consequence=_COMES_BACK) as writable:
            writable.delete_topic(name)
    result = _result(name, "delete", numbers, existed=True, id=_id_text(topic_id), size_in_bytes=size)
    _report(result, wanted.is_dry, out, is_json=is_json)
    return EXIT_FINE


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Return settings by the names of LogConfig from texts NAME=VALUE.  Raises: WrongUseError."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongUseError(f"a setting is NAME=VALUE, got {text!r}")
        try:
            field, parsed = parse_setting(name.strip(), value)
        except ValueError as error:
            raise WrongUseError(str(error)) from error
        settings[field] = parsed
    return settings


def in_kafkas_names(error: Exception) -> WrongUseError:
    """Return the error of a LogConfig as one about Kafka's names."""
    text = str(error)
    for name, field in sorted(TOPIC_SETTINGS_BY_NAME.items(), key=lambda item: -len(item[1])):
        text = text.replace(field, name)
    return WrongUseError(text)


def topics_of(store: Store) -> list[str]:
    """Return the topics of a root; its log of a KRaft quorum is none."""
    return [topic for topic in store.topics if topic != CLUSTER_METADATA_TOPIC]


def check_exists(store: Store, topic: str) -> str:
    """Return the name of a topic.  Raises: WrongUseError if the root does not have it."""
    topics = topics_of(store)
    if topic in topics:
        return topic
    raise WrongUseError(f"no topic {topic} in {shown_path(store.root)}{did_you_mean([topic], topics)}")


def _result(topic: str, action: str, partitions: Iterable[int] = (), *, existed: bool, **fields: Any) -> dict[str, Any]:
    return {"topic": topic, "action": action, "existed": existed, "partitions": list(partitions), **fields}


def _id_text(topic_id: UUID | None) -> str | None:
    return None if topic_id is None else id_text(topic_id)


def _there(root: str, env: Env, name: str) -> dict[str, Any]:
    """Return what would have been created, as it is."""
    with open_store(root) as store:
        numbers = [partition for topic, partition in store.partitions if topic == name]
        topic_id = store.topic_id(name)
    settings = _named(KnownSettings(root, env).of(name).settings)
    return _result(name, "create", numbers, existed=True, id=_id_text(topic_id), settings=settings)


def _has(root: str, topic: str) -> bool:
    with open_store(root) as store:
        return topic in topics_of(store)


def _create(root: str, wanted: TopicChange, settings: Mapping[str, Any], out: Output) -> dict[str, Any]:
    count = 1 if wanted.partitions is None else wanted.partitions
    try:
        check_topic_name(wanted.name, root)
        topic_id: UUID | None = None if wanted.topic_id is None else parse_id(wanted.topic_id)
        if wanted.is_dry:
            _check_new(root, wanted.name, settings)
        else:
            with changed_store(root, out, consequence=_STRAY) as store:
                topic_id = store.create_topic(wanted.name, count, config=dict(settings) or None, topic_id=topic_id)
    except (InvalidTopicError, TopicExistsError) as error:
        raise WrongUseError(str(error)) from error
    except (TypeError, ValueError) as error:
        raise in_kafkas_names(error) from error
    created = range(count)
    return _result(wanted.name, "create", created, existed=False, id=_id_text(topic_id), settings=_named(settings))


def _check_new(root: str, name: str, settings: Mapping[str, Any]) -> None:
    with open_store(root) as store:
        if name in store.topics:
            raise TopicExistsError(f"topic {name!r} already exists in {root}", path=root)
        check_no_collision(name, store.topics, root)
    LogConfig(**settings)


def _grow(root: str, wanted: TopicChange, out: Output) -> dict[str, Any]:
    if wanted.partitions is None:
        raise WrongUseError("--alter needs --partitions")
    with open_store(root) as store:
        check_exists(store, wanted.name)
        numbers = [partition for topic, partition in store.partitions if topic == wanted.name]
    if wanted.partitions <= max(numbers):
        count = max(numbers) + 1
        raise WrongUseError(f"topic {wanted.name} has {count} partitions already, got {wanted.partitions}")
    if not wanted.is_dry:
        with changed_store(root, out, consequence=_STRAY) as writable:
            writable.create_partitions(wanted.name, wanted.partitions)
    added = [number for number in range(wanted.partitions) if number not in numbers]
    return _result(wanted.name, "add partitions", added, existed=True)


def _report(result: Mapping[str, Any], is_dry: bool, out: Output, *, is_json: bool) -> None:
    if is_json:
        out.line(JSON_TEXT({**result, "dry_run": is_dry}))
    else:
        partitions = ", ".join(map(str, result["partitions"])) or "none"
        out.line(f"{result['action']} {result['topic']}: partitions {partitions}")
    if is_dry:
        out.notice("dry run: nothing was changed")


def _described(
    store: Store, topic: str, known: KnownSettings, cluster: Mapping[str, ClusterTopic] | None
) -> dict[str, Any]:
    topic_id, found = store.topic_id(topic), known.of(topic)
    return {
        "topic": topic,
        "id": _id_text(topic_id),
        "partitions": [partition for name, partition in store.partitions if name == topic],
        "cluster": _in_cluster(topic, topic_id, cluster),
        "settings": {**known.texts_of_cluster(topic), **_named(found.settings)},
        "doubt": found.doubt,
    }


def _in_cluster(topic: str, topic_id: UUID | None, cluster: Mapping[str, ClusterTopic] | None) -> str | None:
    """Return what the metadata in the root says of a topic; None if there is no metadata."""
    if cluster is None:
        return None
    there = cluster.get(topic)
    if there is None:
        return "missing"
    return "same" if topic_id is None or there.topic_id == topic_id else "another id"


def _named(settings: Mapping[str, Any]) -> dict[str, str]:
    names = {field: name for name, field in TOPIC_SETTINGS_BY_NAME.items()}
    return {names.get(field, field): setting_text(value) for field, value in sorted(settings.items())}


def _row(topic: Mapping[str, Any]) -> list[str]:
    settings = ",".join(f"{name}={value}" for name, value in topic["settings"].items())
    return [topic["topic"], topic["id"] or "-", str(len(topic["partitions"])), topic["cluster"] or "-", settings or "-"]
