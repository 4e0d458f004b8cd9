"""Goal: a topic keeps the settings that it was given, also those that are the default, until they are reset.
Method: stores that are opened again, with other defaults; the policy that is kept with a limit is not its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kstore import CorruptCheckpointError, LogConfig, open_store
from kstore._core import crc32c
from kstore.env import DEFAULT_ENV
from kstore.log.files.names import TOPIC_SETTINGS
from kstore.store.settings.file import SettingsFile, read_settings, write_settings

DEFAULTS: Mapping[str, object] = {
    "cleanup_policy": "delete",
    "message_timestamp_type": "CreateTime",
    "segment_ms": 604_800_000,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def test_settings_that_a_topic_is_made_with_are_its_own_where_they_are_the_default(root: Path) -> None:
    with open_store(root, "a") as store:
        store.create_topic("t", config=DEFAULTS)
        assert store.overridden_topic_config("t") == DEFAULTS
    with open_store(root, "a", LogConfig(cleanup_policy="compact", segment_ms=7)) as store:
        assert store.overridden_topic_config("t") == DEFAULTS
        assert store.topic_config("t") == LogConfig()


def test_a_setting_that_is_changed_to_the_default_is_the_topics_own_until_it_is_reset(root: Path) -> None:
    with open_store(root, "a") as store:
        store.create_topic("t")
        store.change_topic_config("t", {"segment_ms": 7, "preallocate": False})
        store.change_topic_config("t", {"segment_ms": 604_800_000})
        assert store.overridden_topic_config("t") == {"segment_ms": 604_800_000, "preallocate": False}
        store.change_topic_config("t", {}, reset=["segment_ms"])
        assert store.overridden_topic_config("t") == {"preallocate": False}
    with open_store(root, "a", LogConfig(segment_ms=9, preallocate=True)) as store:
        assert store.topic_config("t") == LogConfig(segment_ms=9)


def test_of_a_configuration_what_differs_from_the_default_is_the_topics_own(root: Path) -> None:
    with open_store(root, "a", LogConfig(flush_messages=1)) as store:
        store.create_topic("t", config=LogConfig(segment_ms=7))
        assert store.overridden_topic_config("t") == {"segment_ms": 7, "flush_messages": 2**63 - 1}


def test_the_policy_that_is_kept_with_a_limit_is_not_the_topics_own(root: Path) -> None:
    with open_store(root, "a", LogConfig(cleanup_policy="compact")) as store:
        store.create_topic("t", config={"retention_ms": 1})
    with open_store(root, "a") as store:
        assert store.overridden_topic_config("t") == {"retention_ms": 1}
        assert store.change_topic_config("t", {"segment_ms": 7}).cleanup_policy == "compact"
        assert store.change_topic_config("t", {}, reset=["retention_ms"]) == LogConfig(segment_ms=7)
        store.change_topic_config("t", {"retention_bytes": 1})
        store.change_topic_config("t", {"cleanup_policy": "delete"})
        assert store.overridden_topic_config("t")["cleanup_policy"] == "delete"
    assert read_settings(str(root), DEFAULT_ENV).limits_alone == frozenset()


def test_a_policy_that_is_reset_is_that_of_the_store_where_a_limit_stays(root: Path) -> None:
    with open_store(root, "a", LogConfig(cleanup_policy="compact")) as store:
        store.create_topic("t", config={"retention_ms": 1})
    with open_store(root, "a") as store:
        assert store.change_topic_config("t", {}, reset=["cleanup_policy"]) == LogConfig(retention_ms=1)
    with open_store(root, "a", LogConfig(cleanup_policy="compact")) as store:
        assert store.topic_config("t") == LogConfig(retention_ms=1)


def test_a_topic_given_to_open_store_has_its_own_policy_with_a_limit(root: Path) -> None:
    with open_store(root, "a", LogConfig(cleanup_policy="compact")) as store:
        store.create_topic("t", config={"retention_ms": 1})
    with open_store(root, "a", topic_configs={"t": LogConfig(retention_ms=1)}) as store:
        assert store.change_topic_config("t", {"segment_ms": 7}) == LogConfig(retention_ms=1, segment_ms=7)


@pytest.mark.parametrize("alone", ["t", 7, [7], [["t"]], ["t", "u"], {"t": 1}])
def test_a_note_of_limits_that_is_malformed_is_refused(root: Path, alone: object) -> None:
    root.mkdir()
    topics = {"t": {"cleanup_policy": "delete", "retention_ms": 1}}
    checksum = f"{crc32c(json.dumps([topics, [], alone], sort_keys=True).encode()):08x}"
    content = {"version": 1, "topics": topics, "deleting": [], "limits_alone": alone, "crc32c": checksum}
    (root / TOPIC_SETTINGS).write_text(json.dumps(content))
    with pytest.raises(CorruptCheckpointError, match="expected settings by topic"):
        read_settings(str(root), DEFAULT_ENV)


def test_a_policy_that_an_earlier_version_kept_with_a_limit_is_the_topics_own(root: Path) -> None:
    settings = {"cleanup_policy": "delete", "retention_ms": 1}
    with open_store(root, "a") as store:
        store.create_topic("t")
    write_settings(str(root), SettingsFile({"t": settings}), DEFAULT_ENV)
    with open_store(root, "a") as store:
        assert store.overridden_topic_config("t") == settings
