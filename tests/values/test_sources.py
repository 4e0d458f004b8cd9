"""Goal: the schemas of a registry that answers over HTTP are those that its topic adds up to, and no answer does harm.
Method: a registry on loopback that answers as Confluent's, Karapace, Redpanda, or wrongly; requests and errors."""

from __future__ import annotations

import base64
import itertools
import json
import pickle
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.archive.options import export_options
from kstore.archive.plan import Source
from kstore.archive.tables.appending import TableResult, TableWork, result_of, run_tables
from kstore.config import config_or_default
from kstore.env import http
from kstore.env.http import http_get
from kstore.env.process import SystemClock
from kstore.errors import KStoreError, MemoryLimitError, SchemaNotFoundError, StorageError, UnsupportedError
from kstore.values import sources
from tests.cli.runner import Finished, runner
from tests.fakes.registry import FakeRegistry, serving
from tests.making.rides import KEY, ROWS, V1, V2, V3, append_ride, framed, write_rides

GUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
SECRET = "se:cr/et"
REFERENCE = {"name": "x", "subject": "base", "version": 1}


def version(subject: str, number: int, schema_id: int, schema: Any, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "version": number, "id": schema_id, "schema": json.dumps(schema), **more}


SCHEMAS = [
    version(":.lab:a/b c", 1, 1, "int", schemaType="AVRO"),
    version("base", 1, 4, {"type": "record", "name": "Base", "fields": []}),
    version("old", 1, 9, "long", deleted=True),
    version("rides-key", 1, 3, KEY),
    version("rides-value", 1, 1, V1, deleted=True),
    version("rides-value", 2, 2, V2, guid=GUID, references=[REFERENCE]),
]
LEVELS = {"": "FULL", "rides-value": "NONE", ":.lab:": "BACKWARD"}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv(sources.CREDENTIALS_VARIABLE, raising=False)
    with serving(FakeRegistry(SCHEMAS, LEVELS)) as serving_registry:
        yield serving_registry


def test_ids_of_eight_bytes_are_looked_up_only_among_ids_that_the_caller_has(registry: FakeRegistry) -> None:
    with pytest.raises(ValueError, match="may have global ids where it has content ids"):
        kstore.ValueFormat("avro", schemas=registry.url, framing="apicurio")
    kstore.ValueFormat("avro", schemas=kstore.read_schemas(registry.url), framing="apicurio")


@pytest.mark.parametrize("kind", ["pages", "no pages", "no list", "an empty list"])
def test_schemas_are_those_of_a_registry_of_any_make(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(sources, "_PAGE_SCHEMAS", len(SCHEMAS) if kind == "no pages" else 2)
    registry.has_pages, registry.has_list = kind == "pages", kind != "no list"
    registry.knows_all_contexts = kind != "an empty list"
    read = kstore.read_schemas(registry.url + "/")
    shown = [(each.subject, each.version, each.schema_id, each.is_deleted) for each in read.schemas]
    assert shown == [(e["subject"], e["version"], e["id"], bool(e.get("deleted"))) for e in SCHEMAS]
    assert read.latest("rides-value").guid == GUID
    assert read.referenced(read.latest("rides-value"))[0].schema_id == 4
    assert read.compatibility == LEVELS
    assert read.latest("rides-value").text == json.dumps(V2)


def test_a_deleted_version_that_a_registry_gives_by_its_id_alone_is_read(registry: FakeRegistry) -> None:
    registry.schemas, registry.has_list, registry.hides_deleted = SCHEMAS[1:], False, True
    read = kstore.read_schemas(registry.url)
    shown = [(each.subject, each.version, each.schema_id, each.is_deleted) for each in read.schemas]
    assert shown == [(e["subject"], e["version"], e["id"], bool(e.get("deleted"))) for e in SCHEMAS[1:]]
    assert (read.by_id(9).text, read.by_id(1).text) == ('"long"', json.dumps(V1))


def test_the_search_for_a_version_that_no_id_has_ends(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST_ABSENT_IDS", 3)
    monkeypatch.setattr(sources, "_MOST_SCHEMAS", 20)
    registry.has_list, registry.hides_deleted = False, True
    for answer in ((404, b"{}"), (200, b'[{"subject": ["old"], "version": 1}, 7]')):
        registry.paths.clear()
        registry.fault = lambda _number, path, answer=answer: answer if path.startswith("/schemas/ids/") else None
        places = {(each.subject, each.version) for each in kstore.read_schemas(registry.url).schemas}
        assert places == {(each["subject"], each["version"]) for each in SCHEMAS if not each.get("deleted")}
        assert sum(path.startswith("/schemas/ids/") for path in registry.paths) <= 20


@pytest.mark.parametrize("most", range(1, len(SCHEMAS) + 2))
def test_a_registry_that_caps_its_pages_is_read_whole(registry: FakeRegistry, most: int) -> None:
    registry.most_on_page = most
    assert len(kstore.read_schemas(registry.url).schemas) == len(SCHEMAS)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("has_more", [False, True])
def test_a_registry_that_changes_between_two_pages_is_listed_again(
    registry: FakeRegistry, number: int, has_more: bool
) -> None:
    registry.most_on_page = 2
    more = version(":.a:x", 1, 9, "int")

    def change(request: int, _path: str) -> None:
        if request == number:
            registry.schemas = [more, *SCHEMAS] if has_more else SCHEMAS[1:]

    registry.fault = change
    subjects = [each.subject for each in kstore.read_schemas(registry.url).schemas]
    assert {*subjects} >= {each["subject"] for each in SCHEMAS[1:]}


def test_a_registry_that_changes_all_the_time_is_an_error(registry: FakeRegistry) -> None:
    registry.most_on_page = 2

    def change(request: int, _path: str) -> None:
        registry.schemas = [version(f"s{request + each:05}", 1, 1, "int") for each in range(5)]

    registry.fault = change
    with pytest.raises(StorageError, match="each time they changed while they were listed"):
        kstore.read_schemas(registry.url)


@pytest.mark.parametrize("has_list", [False, True])
def test_a_registry_of_more_schemas_than_the_limit_is_refused(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, has_list: bool
) -> None:
    monkeypatch.setattr(sources, "_MOST_SCHEMAS", 3)
    registry.has_list = has_list
    with pytest.raises(UnsupportedError, match="has more than 3 schemas"):
        kstore.read_schemas(registry.url)
    assert len(registry.paths) < 12


def test_values_are_read_by_the_schemas_of_a_registry(registry: FakeRegistry, tmp_path: Path) -> None:
    write_rides(tmp_path / "root")
    partition = tmp_path / "elsewhere" / "rides-0"
    partition.parent.mkdir()
    (tmp_path / "root" / "rides-0").rename(partition)
    scan = kstore.scan(partition, value="avro", key="avro", schemas=registry.url)
    count = len(registry.paths)
    assert scan.to_table()["value"].to_pylist() == ROWS
    assert len(registry.paths) == count
    assert not any(path.startswith("/config/") for path in registry.paths)
    assert sum(path == "/config" for path in registry.paths) == 1


def test_a_source_is_read_again_and_is_the_same_if_nothing_changed(registry: FakeRegistry) -> None:
    source = sources.schemas_source(registry.url)
    first = source.read()
    assert source.read() is first
    registry.schemas = [*SCHEMAS, version("rides-value", 3, 5, V1)]
    assert source.read().latest("rides-value").schema_id == 5
    assert pickle.loads(pickle.dumps(first)).schemas == first.schemas


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("--get", "2", "--json"), ["/config", "/config/rides-value"]),
        (("--get", "2"), ["/config"]),
        (("--subject", ":.lab:a/b c"), ["/config", "/config/%3A.lab%3A", "/config/%3A.lab%3Aa%2Fb%20c"]),
    ],
)
def test_the_command_asks_for_the_levels_that_it_shows(
    registry: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    arguments: tuple[str, ...],
    asked: list[str],
) -> None:
    run = runner(monkeypatch, capsysbinary)
    assert run("schemas", registry.url, *arguments).status == 0
    assert [path for path in registry.paths if path.startswith("/config")] == asked


def test_the_command_lists_a_registry(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    run = runner(monkeypatch, capsysbinary)
    lines = run("schemas", registry.url, "--json").objects()
    assert [(each["subject"], each["compatibility"]) for each in lines] == [
        (":.lab:a/b c", "BACKWARD"),
        ("base", "FULL"),
        ("old", "FULL"),
        ("rides-key", "FULL"),
        ("rides-value", "NONE"),
        ("rides-value", "NONE"),
    ]
    refused = run("schemas", registry.url.replace("//", f"//user:{SECRET}@"))
    assert (refused.status, "may have no credentials" in refused.err, SECRET in refused.err) == (2, True, False)


def test_credentials_are_those_of_the_environment_and_in_no_error(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.authorization = "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode()
    with pytest.raises(StorageError, match="refuses to answer") as caught:
        kstore.read_schemas(registry.url)
    assert caught.value.errno is not None
    monkeypatch.setenv(sources.CREDENTIALS_VARIABLE, f"user:{SECRET}")
    assert len(kstore.read_schemas(registry.url).schemas) == len(SCHEMAS)
    monkeypatch.setenv(sources.CREDENTIALS_VARIABLE, f"other:{SECRET}")
    with pytest.raises(StorageError) as caught:
        kstore.read_schemas(registry.url)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(kstore.ValueFormat("avro", schemas=registry.url))


def test_credentials_that_are_no_text_are_sent_as_their_bytes_and_in_no_error(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sources.CREDENTIALS_VARIABLE, "user:pa\udcff55")
    registry.authorization = "Basic " + base64.b64encode(b"user:pa\xff55").decode()
    assert len(kstore.read_schemas(registry.url).schemas) == len(SCHEMAS)


class RawServer:
    """Answers each connection with bytes."""

    def __init__(self, answers: list[list[bytes]]) -> None:
        self._answers = answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for chunks in self._answers:
            connection, _ = self._socket.accept()
            with connection:
                connection.recv(65536)
                try:
                    for chunk in chunks:
                        connection.sendall(chunk)
                except OSError:
                    pass

    def join(self) -> None:
        self._thread.join()
        self._socket.close()


def test_an_answer_that_was_cut_off_is_asked_for_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    body = b'[{"subject": "s"}]'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    server = RawServer([[head + body[:5]], [head + body]])
    assert http_get(server.url, credentials=None, most_bytes=100) == (200, body, 0)
    server.join()
    server = RawServer([[head + body[:5]], [head + body[:5]]])
    with pytest.raises(StorageError, match="gave no answer: IncompleteRead"):
        http_get(server.url, credentials=None, most_bytes=100)
    server.join()


def test_headers_that_come_byte_by_byte_have_the_same_end_as_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    # A clock that goes on by a second whenever it is asked.
    seconds = itertools.count()
    monkeypatch.setattr(SystemClock, "monotonic_ms", lambda _: next(seconds) * 1000)
    original = http._Bounded.readinto
    monkeypatch.setattr(http._Bounded, "readinto", lambda self, buffer: original(self, memoryview(buffer)[:1]))
    head = b"HTTP/1.1 200 OK\r\n" + b"X" * 1000
    server = RawServer([[head], [head]])
    with pytest.raises(StorageError, match=r"gave no answer: the answer was not complete after 60000 ms"):
        http_get(server.url, credentials=None, most_bytes=100)
    server.join()


@pytest.mark.parametrize(
    ("asked", "waited"), [("2", [0, 2000]), ("86400", [0, 5000]), ("soon", [0, 0]), (None, [0, 0])]
)
def test_a_server_that_has_too_many_requests_is_asked_after_the_time_that_it_names(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, waited: list[int]
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    waits: list[float] = []
    monkeypatch.setattr(SystemClock, "sleep_ms", lambda _, duration_ms: waits.append(duration_ms))
    header = b"" if asked is None else b"Retry-After: %s\r\n" % asked.encode()
    server = RawServer(
        [
            [b"HTTP/1.1 429 No\r\n" + header + b"Content-Length: 0\r\n\r\n"],
            [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"],
        ]
    )
    assert http_get(server.url, credentials=None, most_bytes=100).body == b"[]"
    server.join()
    assert waits == waited


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_request_is_repeated_once(registry: FakeRegistry, status: int) -> None:
    registry.fault = lambda number, _path: (status, b"") if number == 1 else None
    assert len(kstore.read_schemas(registry.url).schemas) == len(SCHEMAS)
    registry.paths.clear()
    registry.fault = lambda _number, _path: (status, b"")
    with pytest.raises(StorageError, match=f"gave no answer: status {status}"):
        kstore.read_schemas(registry.url)
    assert len(registry.paths) == 2


def test_no_redirect_is_followed(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sources.CREDENTIALS_VARIABLE, f"user:{SECRET}")
    with serving(FakeRegistry(SCHEMAS)) as other:
        registry.fault = lambda _number, path: (302, f"{other.url}{path}".encode())
        with pytest.raises(UnsupportedError, match="answers as no schema registry does"):
            kstore.read_schemas(registry.url)
        assert other.paths == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, b"not json"), UnsupportedError),
        ((200, b"{}"), UnsupportedError),
        ((200, b"[1]"), UnsupportedError),
        ((200, b'[{"subject": "a"}]'), UnsupportedError),
        ((200, b'[{"subject": "a", "version": 1, "id": "1", "schema": "x"}]'), UnsupportedError),
        ((200, b"[" * 100_000), UnsupportedError),
        ((400, b"[]"), UnsupportedError),
        ((404, b""), SchemaNotFoundError),
        ((403, b""), StorageError),
        ((200, b" " * 2000), MemoryLimitError),
    ],
    ids=lambda value: str(value)[:30],
)
def test_answers_of_no_registry_are_errors(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes], error: type[KStoreError]
) -> None:
    monkeypatch.setattr(sources, "_MOST_ANSWER_BYTES", 1000 if error is MemoryLimitError else 1 << 20)
    registry.fault = lambda _number, _path: answer
    with pytest.raises(error) as caught:
        kstore.read_schemas(registry.url)
    assert caught.value.path.startswith(registry.url)
    assert len(str(caught.value)) < 500


def test_a_registry_that_is_not_there_is_an_error() -> None:
    with serving(FakeRegistry([])) as gone:
        url = gone.url
    with pytest.raises(StorageError, match="gave no answer"):
        kstore.read_schemas(url)


@pytest.mark.parametrize("ending", ["?a=b", "#x"])
def test_options_of_a_url_are_refused(ending: str) -> None:
    with pytest.raises(ValueError, match="no credentials, options"):
        kstore.read_schemas(f"http://127.0.0.1:1/{ending}")


def test_credentials_in_a_url_get_into_no_format(tmp_path: Path) -> None:
    url = f"https://user:{SECRET}@registry.example"
    with pytest.raises(ValueError, match="no credentials") as caught:
        kstore.export(write_rides(tmp_path / "root"), tmp_path / "out", topics="rides", value="avro", schemas=url)
    assert SECRET not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_export_reads_the_schemas_of_a_registry(registry: FakeRegistry, tmp_path: Path) -> None:
    root = write_rides(tmp_path / "root")
    summary = kstore.export(root, tmp_path / "out", topics="rides", value="avro", schemas=registry.url)
    assert summary.new_records == len(ROWS)
    many = root.parent / "many"
    with kstore.open_store(many, "a") as store:
        for number in range(5):
            store.create_topic(f"t{number}", partitions=1)
        with kstore.Producer(store) as producer:
            for number in range(5):
                producer.send(f"t{number}", b"\0\0\0\0" + bytes([number]) + b"\2")
    registry.schemas = [version(f"t{number}-value", 1, number, "int") for number in range(5)]
    registry.paths.clear()
    kstore.export(many, tmp_path / "many-out", value="avro", schemas=registry.url)
    assert sum(path.startswith("/config") for path in registry.paths) == 1


def test_an_export_to_tables_asks_a_registry_once_and_never_in_a_task(registry: FakeRegistry, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    root = tmp_path / "many"
    topics = [f"t{number}" for number in range(3)]
    with kstore.open_store(root, "a") as store:
        for topic in topics:
            store.create_topic(topic, partitions=1)
        with kstore.Producer(store) as producer:
            for number, topic in enumerate(topics):
                producer.send(topic, b"\0\0\0\0" + bytes([number]) + b"\2")
    registry.schemas = [version(f"{topic}-value", 1, number, "int") for number, topic in enumerate(topics)]
    options = export_options("parquet", value="avro", schemas=registry.url)
    asked: list[int] = []

    def execute(todo: Sequence[TableWork]) -> Iterator[TableResult]:
        asked.append(len(registry.paths))
        yield from map(result_of, pickle.loads(pickle.dumps(todo)))

    source = Source(root, config_or_default(None), None)
    summary = run_tables(source, f"delta:{tmp_path}/{{topic}}", options, execute, partition_by=None)
    assert (summary.new_records, asked) == (3, [len(registry.paths)])
    assert sum(path == "/config" for path in registry.paths) == 1


def test_a_record_that_comes_after_the_registry_was_asked_is_of_the_next_run(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    root = write_rides(tmp_path / "root")
    options: Any = {"table": f"delta:{tmp_path}/{{topic}}", "topics": "rides", "value": "avro", "flatten": True}

    def append(_number: int, path: str) -> None:
        # All versions are listed before those that are not deleted.
        if "deleted=false" in path and registry.schemas is SCHEMAS:
            registry.schemas = [*SCHEMAS, version("rides-value", 3, 20, V3)]
            append_ride(root, 20, V3, id=7, delay=1, gate="A1")

    registry.fault = append
    assert kstore.export(root, schemas=registry.url, **options).new_records == len(ROWS)
    assert kstore.export(root, schemas=registry.url, **options).new_records == 1
    rows = deltalake.DeltaTable(f"{tmp_path}/rides").to_pyarrow_table(columns=["offset", "gate"]).sort_by("offset")
    assert rows.column("gate").to_pylist() == [None] * len(ROWS) + ["A1"]


def test_the_text_of_one_schema_needs_no_levels(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    run = runner(monkeypatch, capsysbinary)
    assert json.loads(run("schemas", registry.url, "--get", 2).out) == V2
    assert not any(path.startswith("/config/") for path in registry.paths)


def followed(
    registry: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    root: Path,
    *appended: tuple[str, int],
    begun: Callable[[], None],
) -> Finished:
    """Return what `cat --follow` shows of rides, to which records of carriers, with schema ids, are appended singly.

    begun: called after the first record is shown.
    """
    from kstore.cli.printing.cat import Printer

    show, left = Printer.show, list(appended)

    def show_and_write(*args: Any, **options: Any) -> Any:
        shown = show(*args, **options)
        if len(left) == len(appended):
            begun()
        if left:
            carrier, schema_id = left.pop(0)
            with kstore.open_store(root, "a") as store, kstore.Producer(store) as producer:
                producer.send("rides", framed(schema_id, V1, {"id": 1, "carrier": carrier}))
        return shown

    monkeypatch.setattr(Printer, "show", show_and_write)
    options = ["--topic", "rides", "--value", "avro", "--json", "--follow", "--schemas", registry.url]
    return runner(monkeypatch, capsysbinary)("cat", root, *options, "--from", 5, "--limit", len(appended) + 1)


def test_a_command_that_follows_asks_a_registry_again_only_for_an_unknown_id(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    newer = version("rides-value", 3, 7, V1)

    def add() -> None:
        registry.schemas = [*SCHEMAS, newer]

    root = write_rides(tmp_path / "root")
    appended = [("B6", 1), ("B6", 1), ("DL", 7), ("UA", 7)]
    run = followed(registry, monkeypatch, capsysbinary, root, *appended, begun=add)
    carriers = [each["decodedValue"]["carrier"] for each in run.objects()]
    assert (run.status, carriers) == (0, ["DL", "B6", "B6", "DL", "UA"])
    assert sum(path == "/config" for path in registry.paths) == 2


def test_a_registry_that_fails_does_not_end_a_command_that_follows(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    def fail() -> None:
        registry.paths.clear()
        registry.fault = lambda _number, _path: (503, b"")

    root = write_rides(tmp_path / "root")
    appended = [("B6", 1), ("DL", 7), ("AA", 7), ("UA", 1)]
    run = followed(registry, monkeypatch, capsysbinary, root, *appended, begun=fail)
    carriers = [each["decodedValue"] and each["decodedValue"]["carrier"] for each in run.objects()]
    assert (run.status, carriers) == (1, ["DL", "B6", None, None, "UA"])
    assert run.err.count("gave no answer: status 503") == 1
    assert len(registry.paths) == 2


def test_a_command_asks_a_registry_once_for_all_partitions(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("rides", partitions=5)
        with kstore.Producer(store) as producer:
            for partition in range(5):
                producer.send("rides", framed(1, V1, {"id": 1, "carrier": "B6"}), partition=partition)
    run = runner(monkeypatch, capsysbinary)("cat", tmp_path / "root", "--value", "avro", "--schemas", registry.url)
    assert (run.status, len(run.out.splitlines())) == (0, 5)
    assert sum(path == "/config" for path in registry.paths) == 1
