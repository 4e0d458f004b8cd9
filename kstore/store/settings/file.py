"""The file of a root in which kstore keeps settings: kstore-topic-settings, which brokers ignore.

JSON with the settings that topics have by default, if kstore created the root; the settings of each topic that were
changed; the topics whose deletion has begun; and a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kstore._core import crc32c
from kstore.config import LogConfig
from kstore.env import Env, join_path
from kstore.errors import json_fault
from kstore.log.files.checkpoints import malformed, read_text, replace_file
from kstore.log.files.names import TOPIC_SETTINGS
from kstore.types import is_topic_name

MAX_SETTINGS_BYTES = 16 * 1024 * 1024
_VERSION = 1


class SettingsFile(NamedTuple):
    """The content of a root's file: the changed settings of each topic, the topics that are being deleted, and the
    settings of topics that say nothing (None if kstore did not create the root, or did before it noted them).
    """

    changed: dict[str, dict[str, Any]]
    deleting: tuple[str, ...] = ()
    defaults: Mapping[str, Any] | None = None


def read_settings(root: str, env: Env) -> SettingsFile:
    """Read a root's settings; empty if the file does not exist.

    Raises: CorruptCheckpointError if it is malformed; StorageError.
    """
    path = join_path(root, TOPIC_SETTINGS)
    text = read_text(path, env, max_bytes=MAX_SETTINGS_BYTES)
    if text is None:
        return SettingsFile({})
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise malformed(path, f"expected JSON: {json_fault(error)}") from error
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise malformed(path, f"expected an object of version {_VERSION}, found {text[:40]!r}")
    changed, deleting, defaults = content.get("topics"), content.get("deleting"), content.get("defaults")
    checksum = _checksum(changed, deleting, defaults)
    if content.get("crc32c") != checksum:
        raise malformed(path, f"expected the checksum {checksum}, found {content.get('crc32c')!r}")
    is_valid = (
        isinstance(changed, dict)
        and isinstance(deleting, list)
        and (defaults is None or _is_valid(defaults))
        and all(isinstance(name, str) and is_topic_name(name) for name in (*changed, *deleting))
        and all(isinstance(settings, dict) for settings in changed.values())
    )
    if not is_valid or not isinstance(changed, dict) or not isinstance(deleting, list):
        raise malformed(path, "expected settings by topic, a list of topics, and default settings")
    return SettingsFile(changed, tuple(deleting), defaults)


def write_settings(root: str, settings: SettingsFile, env: Env) -> None:
    """Durably replace a root's settings.  Raises: StorageError."""
    changed = {topic: values for topic, values in sorted(settings.changed.items()) if values}
    deleting = sorted(settings.deleting)
    noted = {} if settings.defaults is None else {"defaults": dict(settings.defaults)}
    content = {
        "version": _VERSION,
        **noted,
        "topics": changed,
        "deleting": deleting,
        "crc32c": _checksum(changed, deleting, noted.get("defaults")),
    }
    replace_file(join_path(root, TOPIC_SETTINGS), (json.dumps(content, indent=1) + "\n").encode(), env)


def _is_valid(defaults: object) -> bool:
    try:
        return isinstance(defaults, dict) and LogConfig(**defaults) is not None
    except (TypeError, ValueError):
        return False


def _checksum(changed: object, deleting: object, defaults: object) -> str:
    parts = [changed, deleting] if defaults is None else [changed, deleting, defaults]
    return f"{crc32c(json.dumps(parts, sort_keys=True).encode()):08x}"
