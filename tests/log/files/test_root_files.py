"""Goal: the small files of a root and a partition are read as Kafka reads them and written with Kafka's bytes.
Method: small texts, right and wrong; what Java's Properties class writes, as tables; values through both ways."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.env import LocalEnv
from kstore.errors import CorruptCheckpointError, StorageError
from kstore.log.files import root_files
from kstore.log.files.root_files import (
    CleanShutdown,
    MetaProperties,
    id_text,
    parse_id,
    parse_properties,
    random_id,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)

ID_TEXT = "TEr1iNX8QQuLa2HzZ_guYg"
ID = uuid.UUID("4c4af588-d5fc-410b-8b6b-61f367f82e62")


class ClockEnv(LocalEnv):
    def wall_clock_ms(self) -> int:
        return int(datetime(2026, 3, 1, 4, 5, 6, tzinfo=timezone.utc).timestamp()) * 1000 + 789


def test_id_is_22_characters_of_base64url() -> None:
    assert id_text(ID) == ID_TEXT
    assert parse_id(ID_TEXT) == ID


@given(st.uuids())
def test_every_id_is_read_back(value: uuid.UUID) -> None:
    assert parse_id(id_text(value)) == value


@pytest.mark.parametrize("text", ["", ID_TEXT[:-1], ID_TEXT + "A", ID_TEXT[:-1] + "+", ID_TEXT[:-1] + "=", "é" * 22])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22 characters"):
        parse_id(text)


def test_random_id_is_none_that_kafka_keeps_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=0xFB << 120), ID])
    monkeypatch.setattr(root_files.uuid, "uuid4", lambda: next(drawn))
    assert random_id() == ID


PROPERTIES = [
    pytest.param("", {}, id="empty"),
    pytest.param("#c\n!c\n \t#c\n\n  \na=b\n", {"a": "b"}, id="comments-and-blanks"),
    pytest.param("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}, id="line-ends"),
    pytest.param("  a  =  b c \n", {"a": "b c "}, id="spaces"),
    pytest.param("a:b\nc d\ne\tf\ng", {"a": "b", "c": "d", "e": "f", "g": ""}, id="separators"),
    pytest.param("a==b\nc : =d", {"a": "=b", "c": "=d"}, id="second-separator-is-the-values"),
    pytest.param("a=1\na=2", {"a": "2"}, id="last-value-counts"),
    pytest.param("a=b\\\n   c\nd=e", {"a": "bc", "d": "e"}, id="continued-line"),
    pytest.param("a=b\\\\\nd=e", {"a": "b\\", "d": "e"}, id="escaped-backslash-at-the-end"),
    pytest.param("a=b\\", {"a": "b"}, id="backslash-at-the-end-of-the-file"),
    pytest.param("a=b\\\n#c", {"a": "b#c"}, id="no-comment-in-a-continued-line"),
    pytest.param("a\\=b\\:\\ c=d\\t\\u00e9\\q", {"a=b: c": "d\té" + "q"}, id="escapes"),
]


@pytest.mark.parametrize(("text", "expected"), PROPERTIES)
def test_properties_are_read_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_value_that_is_written_is_read_back(value: str) -> None:
    assert parse_properties(f"cluster.id={root_files._escaped(value)}\n") == {"cluster.id": value}


WRITTEN_PROPERTIES = [
    pytest.param(MetaProperties(0), "version=0\n", id="v0-nothing-known"),
    pytest.param(MetaProperties(0, node_id=1), "broker.id=1\nversion=0\n", id="v0-broker"),
    pytest.param(
        MetaProperties(0, node_id=1, cluster_id="CIofk4ACR7mSPzv16gDvKA"),
        "broker.id=1\nversion=0\ncluster.id=CIofk4ACR7mSPzv16gDvKA\n",
        id="v0-cluster",
    ),
    pytest.param(
        MetaProperties(1, "a=b c#é", 7, ID),
        f"node.id=7\ndirectory.id={ID_TEXT}\nversion=1\ncluster.id=a\\=b c\\#\\u00E9\n",
        id="v1-all",
    ),
]


@pytest.mark.parametrize(("properties", "expected"), WRITTEN_PROPERTIES)
def test_meta_properties_are_written_as_java_does(tmp_path: Path, properties: MetaProperties, expected: str) -> None:
    write_meta_properties(str(tmp_path), properties, ClockEnv())
    text = (tmp_path / "meta.properties").read_bytes().decode("ascii")
    assert text == f"#\n#Sun Mar 01 04:05:06 UTC 2026\n{expected}"
    assert read_meta_properties(str(tmp_path)) == properties


@pytest.mark.parametrize("properties", [MetaProperties(2), MetaProperties(-1), MetaProperties(1, node_id=-1)])
def test_impossible_properties_are_not_written(tmp_path: Path, properties: MetaProperties) -> None:
    with pytest.raises(ValueError, match=r"meta\.properties"):
        write_meta_properties(str(tmp_path), properties)
    assert list(tmp_path.iterdir()) == []


MALFORMED_PROPERTIES = [
    pytest.param("", "version 0 or 1, found None", id="no-version"),
    pytest.param("version=2", "version 0 or 1, found '2'", id="other-version"),
    pytest.param("version=x", "version: expected a number", id="version-no-number"),
    pytest.param("version=1\nnode.id=-1", "node.id: expected a number", id="negative-node-id"),
    pytest.param("version=1\nnode.id=2147483648", "node.id: expected a number", id="node-id-too-large"),
    pytest.param("version=1\ndirectory.id=x", "directory.id", id="directory-id"),
]


@pytest.mark.parametrize(("text", "reason"), MALFORMED_PROPERTIES)
def test_malformed_meta_properties_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(CorruptCheckpointError, match=reason) as caught:
        read_meta_properties(str(tmp_path))
    assert caught.value.path == str(tmp_path / "meta.properties")


def test_missing_files_are_none(tmp_path: Path) -> None:
    assert read_meta_properties(str(tmp_path)) is None
    assert read_partition_metadata(str(tmp_path)) is None
    assert read_clean_shutdown(str(tmp_path)) is None


def test_partition_metadata_is_written_as_kafka_does(tmp_path: Path) -> None:
    write_partition_metadata(str(tmp_path), ID)
    assert (tmp_path / "partition.metadata").read_bytes() == f"version: 0\ntopic_id: {ID_TEXT}".encode()
    assert read_partition_metadata(str(tmp_path)) == ID
    with pytest.raises(ValueError, match="must not be zero"):
        write_partition_metadata(str(tmp_path), uuid.UUID(int=0))


@pytest.mark.parametrize("text", [f"version: 3\ntopic_id: {ID_TEXT}\n", f"version: 0\r\ntopic_id: {ID_TEXT}"])
def test_partition_metadata_of_other_writers_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_bytes(text.encode())
    assert read_partition_metadata(str(tmp_path)) == ID


MALFORMED_METADATA = [
    pytest.param(b"", id="empty"),
    pytest.param(b"version: 0\n", id="no-id"),
    pytest.param(b"version: -1\ntopic_id: " + ID_TEXT.encode(), id="negative-version"),
    pytest.param(b"version: 0\ntopic_id: x", id="no-such-id"),
    pytest.param(b"version: 0\ntopic_id: " + b"A" * 22, id="zero"),
    pytest.param(b"version: 0\ntopic_id: \xff", id="not-utf8"),
    pytest.param(b"version: 0\ntopic_id: " + b"A" * 100_000, id="endless"),
]


@pytest.mark.parametrize("content", MALFORMED_METADATA)
def test_malformed_partition_metadata_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as caught:
        read_partition_metadata(str(tmp_path))
    assert caught.value.path == str(tmp_path / "partition.metadata")
    assert len(str(caught.value)) < 400


def test_link_in_place_of_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").symlink_to("/etc/hostname")
    with pytest.raises(StorageError):
        read_partition_metadata(str(tmp_path))


def test_clean_shutdown_is_written_as_kafka_does_and_taken_back(tmp_path: Path) -> None:
    write_clean_shutdown(str(tmp_path), CleanShutdown(12))
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":12}'
    assert read_clean_shutdown(str(tmp_path)) == CleanShutdown(12)
    remove_clean_shutdown(str(tmp_path))
    remove_clean_shutdown(str(tmp_path))
    assert read_clean_shutdown(str(tmp_path)) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b'{"version":0}', b'{"brokerEpoch":"1"}', b"[" * 60_000, b" " * 100_000]
)
def test_clean_shutdown_counts_whatever_the_file_says(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    assert read_clean_shutdown(str(tmp_path)) == CleanShutdown(-1)
