"""The file of a root in which kstore keeps settings: kstore-topic-settings, which brokers ignore.

JSON with the settings that topics have by default, if kstore created the root; the settings that each topic was
given; the topics whose deletion has begun; and a checksum.
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
_LIMITS = frozenset({"retention_ms", "retention_bytes"})
_POLICY = "cleanup_policy"
_LIMITS_ALONE = "limits_alone"


class SettingsFile(NamedTuple):
    """The content of a root's file: the settings of each topic that was given some, also where they are the default;
    the topics that are being deleted; the settings of topics that say nothing (None if kstore did not create the root,
    or did before it noted them); and the topics that were given a limit without the policy that is kept with it.
    """

    changed: dict[str, dict[str, Any]]
    deleting: tuple[str, ...] = ()
    defaults: Mapping[str, Any] | None = None
    limits_alone: frozenset[str] = frozenset()

    def given_to(self, topic: str) -> dict[str, Any]:
        """Return the settings that a topic was given."""
        is_alone = topic in self.limits_alone
        return {name: value for name, value in self.changed.get(topic, {}).items() if name != _POLICY or not is_alone}

    def kept_with(self, topic: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a topic that was given these: a limit has the policy that an earlier one came with."""
        is_alone = topic in self.limits_alone and given.keys() & _LIMITS
        return {_POLICY: self.changed[topic][_POLICY], **given} if is_alone else dict(given)

    def with_topic(self, topic: str, given: Mapping[str, Any], policy: str) -> SettingsFile:
        """Return the content with the settings that a topic was given, in place of earlier ones.

        Args: policy: that of the topic, which is kept with a limit: it must not delete anything by another one later.
        """
        left, is_alone = self.without(topic), bool(given.keys() & _LIMITS) and _POLICY not in given
        settings = {**given, _POLICY: policy} if is_alone else dict(given)
        changed = {**left.changed, topic: settings} if settings else left.changed
        return left._replace(changed=changed, limits_alone=left.limits_alone | ({topic} if is_alone else set()))

    def without(self, topic: str) -> SettingsFile:
        """Return the content without the settings of a topic."""
        changed = {name: settings for name, settings in self.changed.items() if name != topic}
        return self._replace(changed=changed, limits_alone=self.limits_alone - {topic})


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
    alone = content.get(_LIMITS_ALONE, [])
    checksum = _checksum(changed, deleting, defaults, alone)
    if content.get("crc32c") != checksum:
        raise malformed(path, f"expected the checksum {checksum}, found {content.get('crc32c')!r}")
    is_valid = (
        isinstance(changed, dict)
        and isinstance(deleting, list)
        and (defaults is None or _is_valid(defaults))
        and all(isinstance(name, str) and is_topic_name(name) for name in (*changed, *deleting))
        and all(isinstance(settings, dict) for settings in changed.values())
        and isinstance(alone, list)
        and all(isinstance(name, str) and _POLICY in changed.get(name, {}) for name in alone)
    )
    if not is_valid or not isinstance(changed, dict) or not isinstance(deleting, list):
        raise malformed(path, "expected settings by topic, a list of topics, and default settings")
    return SettingsFile(changed, tuple(deleting), defaults, frozenset(alone))


def write_settings(root: str, settings: SettingsFile, env: Env) -> None:
    """Durably replace a root's settings.  Raises: StorageError."""
    changed = {topic: values for topic, values in sorted(settings.changed.items()) if values}
    deleting, alone = sorted(settings.deleting), sorted(settings.limits_alone)
    noted = {} if settings.defaults is None else {"defaults": dict(settings.defaults)}
    content = {
        "version": _VERSION,
        **noted,
        "topics": changed,
        "deleting": deleting,
        **({_LIMITS_ALONE: alone} if alone else {}),
        "crc32c": _checksum(changed, deleting, noted.get("defaults"), alone),
    }
    replace_file(join_path(root, TOPIC_SETTINGS), (json.dumps(content, indent=1) + "\n").encode(), env)


def _is_valid(defaults: object) -> bool:
    try:
        return isinstance(defaults, dict) and LogConfig(**defaults) is not None
    except (TypeError, ValueError):
        return False


def _checksum(changed: object, deleting: object, defaults: object, alone: object) -> str:
    # Files of earlier versions lack the last two.
    parts = [changed, deleting, *([] if defaults is None else [defaults]), *([alone] if alone else [])]
    return f"{crc32c(json.dumps(parts, sort_keys=True).encode()):08x}"
