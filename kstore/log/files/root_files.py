"""Small files that identify a log.dirs root and a partition, read and written as Kafka does.

These are meta.properties, partition.metadata and .kafka_cleanshutdown. Ids are UUIDs, stored as 22 characters of
base64url.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from datetime import datetime, timezone
from typing import NamedTuple

from kstore.config import MAX_INT32
from kstore.env import DEFAULT_ENV, Env, join_path, split_path
from kstore.errors import CorruptCheckpointError
from kstore.log.files.checkpoints import malformed, read_text, replace_file
from kstore.log.files.names import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kstore.wire.protocol import ZERO_UUID

MAX_ROOT_FILE_BYTES = 64 * 1024
NO_BROKER_EPOCH = -1

_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
# Kafka reserves 0 and 1, and generates another id if the text looks like a command line option.
_RESERVED_IDS = (0, 1)
_NUMBER = re.compile(r"[0-9]{1,10}")
_PARTITION_METADATA = re.compile(r"version: ([0-9]{1,9})\r?\ntopic_id: (\S{1,64})\s*")
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE = re.compile(r"[\\=:#!\t\n\r\f ]|[^\x20-\x7e]")


class MetaProperties(NamedTuple):
    """The broker and cluster that a root belongs to (Kafka: MetaProperties); version 0 with ZooKeeper, 1 with KRaft.

    node_id: broker.id in version 0. None for what the file does not contain.
    """

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: uuid.UUID | None = None


class CleanShutdown(NamedTuple):
    """The marker of a clean shutdown; broker_epoch is -1 if the file does not contain it (before Kafka 3.7)."""

    broker_epoch: int = NO_BROKER_EPOCH


def random_id() -> uuid.UUID:
    """Return a random id for a topic or directory, generated as by Kafka's Uuid.randomUuid."""
    while True:
        drawn = uuid.uuid4()
        if drawn.int not in _RESERVED_IDS and not id_text(drawn).startswith("-"):
            return drawn


def id_text(value: uuid.UUID) -> str:
    """Return an id as Kafka writes it.

    Source: Kafka Uuid.toString.
    """
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_id(text: str) -> uuid.UUID:
    """Parse an id.

    Raises: ValueError unless the text is 22 characters of base64url.
    Source: Kafka Uuid.fromString.
    """
    if _UUID_TEXT.fullmatch(text) is None:
        raise ValueError(f"an id must be 22 characters of base64url, got {text[:40]!r}")
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not an id: {error}") from error


def read_meta_properties(root: str, env: Env = DEFAULT_ENV) -> MetaProperties | None:
    """Read a root's meta.properties; None if the file does not exist.

    Raises: CorruptCheckpointError if malformed; StorageError.
    Source: Kafka MetaProperties, PropertiesUtils.
    """
    path = join_path(root, META_PROPERTIES)
    text = read_text(path, env, max_bytes=MAX_ROOT_FILE_BYTES)
    if text is None:
        return None
    properties = parse_properties(text)
    version = _number(properties.get("version"), name="version", path=path)
    if version is None or version > 1:
        raise malformed(path, f"expected version 0 or 1, found {properties.get('version')!r}")
    directory_id = properties.get("directory.id")
    try:
        directory = None if directory_id is None else parse_id(directory_id)
    except ValueError as error:
        raise malformed(path, f"directory.id: {error}") from error
    name = "node.id" if version else "broker.id"
    node_id = _number(properties.get(name), name=name, path=path)
    return MetaProperties(version, properties.get("cluster.id"), node_id, directory)


def write_meta_properties(root: str, properties: MetaProperties, env: Env = DEFAULT_ENV) -> None:
    """Replace a root's meta.properties, with the properties in Kafka's order and the time in UTC.

    Raises: ValueError for an unknown version or a negative node id; StorageError.
    """
    version, cluster_id, node_id, directory_id = properties
    if version not in (0, 1) or (node_id is not None and node_id < 0):
        raise ValueError(f"meta.properties must have version 0 or 1 and no negative node id, got {properties}")
    values = {
        "node.id" if version else "broker.id": node_id,
        "directory.id": None if directory_id is None else id_text(directory_id),
        "version": version,
        "cluster.id": cluster_id,
    }
    now = datetime.fromtimestamp(env.wall_clock_ms() // 1000, timezone.utc)
    lines = ["#", f"#{_java_date(now)}"]
    lines += [f"{name}={_escaped(str(value))}" for name, value in values.items() if value is not None]
    replace_file(join_path(root, META_PROPERTIES), "".join(f"{line}\n" for line in lines).encode("ascii"), env)


def parse_properties(text: str) -> dict[str, str]:
    """Parse a Java properties file into names and values; of a repeated name the last value counts.

    Source: java.util.Properties.load.
    """
    properties = {}
    for line in _logical_lines(text):
        match = _PROPERTY.fullmatch(line)
        if match is not None:
            properties[_unescaped(match[1])] = _unescaped(match[2])
    return properties


def read_partition_metadata(directory: str, env: Env = DEFAULT_ENV) -> uuid.UUID | None:
    """Read the topic id from a partition's partition.metadata; None if the file does not exist.

    Raises: CorruptCheckpointError if malformed or the id is zero; StorageError.
    Source: Kafka PartitionMetadataFile.
    """
    path = join_path(directory, PARTITION_METADATA)
    text = read_text(path, env, max_bytes=MAX_ROOT_FILE_BYTES)
    if text is None:
        return None
    match = _PARTITION_METADATA.fullmatch(text)
    if match is None:
        raise malformed(path, f"expected lines of version and topic_id, found {text[:80]!r}")
    try:
        topic_id = parse_id(match[2])
    except ValueError as error:
        raise malformed(path, f"topic_id: {error}") from error
    if topic_id == ZERO_UUID:
        raise malformed(path, "topic_id: expected the id of a topic, found zero")
    return topic_id


def write_partition_metadata(directory: str, topic_id: uuid.UUID, env: Env = DEFAULT_ENV) -> None:
    """Replace a partition's partition.metadata.

    Raises: ValueError for the zero id; StorageError.
    """
    if topic_id == ZERO_UUID:
        raise ValueError("the id of a topic must not be zero")
    content = f"version: 0\ntopic_id: {id_text(topic_id)}"
    replace_file(join_path(directory, PARTITION_METADATA), content.encode("ascii"), env)


def read_clean_shutdown(root: str, env: Env = DEFAULT_ENV) -> CleanShutdown | None:
    """Return the marker of a clean shutdown, None if the root was not closed cleanly. Only the file's existence
    matters.

    Source: Kafka CleanShutdownFileHandler.
    """
    if env.stat(join_path(root, CLEAN_SHUTDOWN_FILE), follow_symlinks=False) is None:
        return None
    try:
        content = read_text(join_path(root, CLEAN_SHUTDOWN_FILE), env, max_bytes=MAX_ROOT_FILE_BYTES)
        epoch = json.loads(content or "{}")["brokerEpoch"]
    except (CorruptCheckpointError, ValueError, KeyError, TypeError, RecursionError):
        epoch = NO_BROKER_EPOCH
    return CleanShutdown(epoch if type(epoch) is int else NO_BROKER_EPOCH)


def write_clean_shutdown(root: str, clean_shutdown: CleanShutdown, env: Env = DEFAULT_ENV) -> None:
    """Mark every log of the root as closed cleanly; the last step of closing it."""
    content = f'{{"version":0,"brokerEpoch":{clean_shutdown.broker_epoch}}}'
    replace_file(join_path(root, CLEAN_SHUTDOWN_FILE), content.encode("ascii"), env)


def remove_clean_shutdown(root: str, env: Env = DEFAULT_ENV) -> None:
    """Durably remove the clean shutdown marker, before any log of the root is loaded for writing."""
    path = join_path(root, CLEAN_SHUTDOWN_FILE)
    if env.unlink(path):
        env.sync_directory(split_path(path)[0])


def _number(text: str | None, *, name: str, path: str) -> int | None:
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None or int(text) > MAX_INT32:
        raise malformed(path, f"{name}: expected a number, found {text[:40]!r}")
    return int(text)


def _logical_lines(text: str) -> list[str]:
    """Return the lines of a properties file without comments; lines that end in a backslash are joined with the
    next.
    """
    lines = []
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        trailing = len(pending) - len(pending.rstrip("\\"))
        if trailing % 2:
            pending = pending[:-1]
            continue
        lines.append(pending)
        pending = ""
    return [*lines, pending] if pending else lines


def _unescaped(text: str) -> str:
    """Return a name or value without escapes; two escapes that form one UTF-16 character are joined."""
    units = _ESCAPE.sub(lambda match: _character(match[1]), text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _character(escape: str) -> str:
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, escape)


def _escaped(value: str) -> str:
    """Return a value as java.util.Properties.store writes it; only a leading space needs an escape."""
    names = {character: f"\\{name}" for name, character in _ESCAPED.items()}

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        if character == " ":
            return "\\ " if match.start() == 0 else " "
        if " " < character <= "~":
            return f"\\{character}"
        units = character.encode("utf-16-be")
        return names.get(character) or "".join(
            f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2)
        )

    return _TO_ESCAPE.sub(escape, value)


def _java_date(moment: datetime) -> str:
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{days[moment.weekday()]} {months[moment.month - 1]} {moment:%d %H:%M:%S} UTC {moment.year}"
