"""Goal: a topic gets the settings that its root says, and none with which a broker does not start.
Method: settings as texts, and files of them, each with what is to become of it."""

from __future__ import annotations

import json

import pytest

from kstore.adoption.settings import accepted, check_setting, checked_given, internal_texts, read_given, texts_of
from kstore.config import LogConfig
from kstore.errors import TopicSettingsError


def test_only_settings_of_topics_are_written_by_kafkas_names():
    settings = {"retention_ms": 5, "preallocate": True, "message_format_magic": 1, "read_chunk_bytes": 4096}
    assert texts_of(settings) == {"retention.ms": "5", "preallocate": "true"}


def test_no_compression_is_what_brokers_call_uncompressed():
    assert texts_of({"compression_type": "none"}) == {"compression.type": "uncompressed"}


def test_topics_of_brokers_get_the_settings_that_brokers_create_them_with():
    offsets = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert internal_texts("__consumer_offsets") == offsets
    assert internal_texts("__transaction_state") == {**offsets, "compression.type": "uncompressed"}
    assert internal_texts("orders") == {}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("segment.bytes", "1048575", "do not start with less than 1048576"),
        ("message.format.version", "2.8", "brokers of 4.0 and later do not have it"),
        ("message.timestamp.difference.max.ms", "1", "brokers of 4.0 and later do not have it"),
        ("remote.storage.enable", "true", "the records in remote storage are not served"),
        ("leader.replication.throttled.replicas", "0:1", "there is one replica"),
    ],
)
def test_a_setting_that_keeps_a_broker_from_starting_is_left_out_and_said(name, text, reason):
    written = accepted({name: text, "retention.ms": "7"}, "t")
    assert written.texts == {"retention.ms": "7"}
    assert written.notes == [f"{name}={text} is left out: {written.notes[0].split(': ', 1)[1]}"]
    assert reason in written.notes[0]


def test_segments_of_a_mebibyte_are_kept():
    assert accepted({"segment.bytes": "1048576"}, "t").texts == {"segment.bytes": "1048576"}


@pytest.mark.parametrize(("text", "notes"), [("1", 0), ("2", 1), ("3", 1)])
def test_in_sync_replicas_are_lowered_to_the_one_that_there_is(text, notes):
    written = accepted({"min.insync.replicas": text}, "t")
    assert (written.texts, len(written.notes)) == ({"min.insync.replicas": "1"}, notes)


@pytest.mark.parametrize(
    ("name", "text"),
    [("retention.ms", "-2"), ("cleanup.policy", "shred"), ("compression.type", "none"), ("preallocate", "perhaps")],
)
def test_a_value_that_no_broker_takes_is_refused_with_what_to_do(name, text):
    with pytest.raises(TopicSettingsError, match=f"topic 't': a broker does not start with {name}={text}.*--config"):
        check_setting(name, text, "t")
    with pytest.raises(TopicSettingsError):
        accepted({name: text}, "t")


def test_a_setting_that_kstore_does_not_know_is_left_to_the_broker():
    check_setting("some.new.setting", "x", "t")
    assert accepted({"some.new.setting": "x"}, "t").texts == {"some.new.setting": "x"}


@pytest.mark.parametrize(
    ("texts", "is_said"),
    [
        ({}, False),
        ({"cleanup.policy": "delete"}, False),
        ({"cleanup.policy": "compact,delete"}, False),
        ({"cleanup.policy": "compact"}, True),
        ({"cleanup.policy": "delete", "retention.ms": "5"}, True),
    ],
)
def test_what_a_broker_deletes_by_its_defaults_is_not_said(texts, is_said):
    assert accepted(texts, "t").says_what_is_deleted is is_said


def test_given_settings_may_be_numbers_and_booleans(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"t": {"retention.ms": -1, "preallocate": True}, "*": {"cleanup.policy": "compact"}}))
    assert read_given(str(path)) == {
        "t": {"retention.ms": "-1", "preallocate": "true"},
        "*": {"cleanup.policy": "compact"},
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "expected settings by topic"),
        ('{"t": 5}', "expected settings of topic 't' by name"),
        ("{", "expected JSON"),
        ('{"t": {"retention.ms": "soon"}}', "does not start with retention.ms=soon"),
        ('{"t": {"segment.bytes": "4096"}}', "less than 1048576: leave it out"),
        ('{"t": {"retention.mss": "-1"}}', r"'retention.mss' is not a setting of a topic; did you mean retention.ms"),
    ],
)
def test_a_file_that_has_no_settings_is_refused(tmp_path, content, said):
    path = tmp_path / "settings.json"
    path.write_text(content)
    with pytest.raises(TopicSettingsError, match=said):
        read_given(str(path))


def test_settings_of_replicas_tiers_and_internal_ones_may_be_given():
    given = {"t": {"min.insync.replicas": "1", "remote.storage.enable": "true", "internal.segment.bytes": "4096"}}
    assert checked_given(given, "settings") == given


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TopicSettingsError, match="no such file"):
        read_given(str(tmp_path / "none"))


def test_all_settings_of_a_default_topic_are_taken_by_a_broker():
    texts = texts_of(vars(LogConfig()))
    assert accepted(texts, "t").texts == texts
    checked_given({"t": texts}, "settings")
