"""Goal: an export into an object store adds each record once, whatever ends a run and whoever else writes there.
Method: a real S3 server on loopback; exports that meet at chosen requests, and that end at each step of a commit."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

import kstore
from kstore.archive import ExportSummary, export, read_manifest
from kstore.archive.manifest import MANIFEST_FILE, Manifest
from kstore.archive.objects.target import ObjectTarget
from kstore.archive.options import export_options
from kstore.archive.target import STAGING_DIRECTORY
from kstore.env import shown_path
from kstore.env.objects import ObjectEnv
from kstore.errors import (
    CorruptManifestError,
    ExportConflictError,
    ExportError,
    ExportOptionsError,
    StorageError,
    UnsupportedError,
)
from tests.fakes.s3 import BUCKET, Request, S3Server, error, times
from tests.making.exporting import grow

SECRET = "never/shown+secret"
DENIED = error("403 Forbidden", "AccessDenied", f"Access Denied {SECRET}")
BUSY = error("503 Slow Down", "SlowDown", "Please reduce your request rate.")


class KilledError(BaseException):
    """The process ends here."""


class Out(NamedTuple):
    """A target of a test."""

    server: S3Server
    key: str

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/{self.key}"

    def names(self) -> list[str]:
        """Return all keys below the target, relative to it."""
        infos = self.server.store.get_file_info(
            fs.FileSelector(f"{BUCKET}/{self.key}", recursive=True, allow_not_found=True)
        )
        start = len(f"{BUCKET}/{self.key}/")
        return sorted(info.path[start:] for info in infos if info.type is fs.FileType.File)

    def data(self) -> list[str]:
        """Return the keys that a reader of the directory takes for data."""
        return [key for key in self.names() if not key.startswith("_")]

    def manifest(self) -> Manifest:
        manifest = read_manifest(self.url)
        assert manifest is not None
        return manifest

    def rows(self) -> list[tuple[int, int]]:
        """Return the partition and offset of each row in the data, sorted."""
        paths = [f"{BUCKET}/{self.key}/{name}" for name in self.data()]
        table = ds.dataset(paths, filesystem=self.server.store).to_table(columns=["partition", "offset"])
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def check_holds(self, root: Path) -> None:
        """Check that the data is each record of a root once, and that nothing else is there but the manifest."""
        assert self.names() == sorted([MANIFEST_FILE, *(file.path for file in self.manifest().files)])
        scanned = kstore.scan(root, columns=["partition", "offset"]).to_table()
        assert self.rows() == sorted(zip(*(column.to_pylist() for column in scanned.columns), strict=True))


@pytest.fixture
def out(server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Out]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.address}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "writer")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    yield Out(server, "exports/" + "".join(char if char.isalnum() else "-" for char in request.node.name) + "/an out")
    server.fault, server.loses_answer, server.ignores_conditions = None, lambda _: False, False


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    grow(root, 30)
    return root


def at(kind: str, end: str, do: Callable[[], object]) -> Callable[[Request], None]:
    """Return a fault that does something, once, before a request of a kind for a key that ends so."""
    left = [do]

    def called(request: Request) -> None:
        if request.kind == kind and request.key.endswith(end) and left:
            left.pop()()

    return called


def answering(kind: str, part: str, answer: tuple[str, dict[str, str], bytes]) -> Any:
    return lambda request: answer if request.kind == kind and part in request.key else None


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_each_run_adds_what_is_new_and_nothing_twice(out: Out, source: Path, format: str) -> None:
    first = export(source, out.url, format)
    assert (first.target, first.new_records, first.was_resumed) == (out.url, 60, False)
    assert len(out.data()) == first.file_count == len(out.manifest().files)
    assert all(out.manifest().run_id in key for key in out.data())
    before = out.names()
    assert export(source, out.url, format).new_records == 0
    assert out.names() == before
    grow(source, 20)
    assert export(source, out.url, format).new_records == 40
    if format == "parquet":
        out.check_holds(source)


def test_engines_read_the_export(out: Out, source: Path, tmp_path: Path) -> None:
    export(source, out.url)
    options = {
        "aws_endpoint_url": f"http://{out.server.address}",
        "aws_access_key_id": "writer",
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
    }
    frame = polars.scan_parquet(f"{out.url}/**/*.parquet", hive_partitioning=True, storage_options=options)
    assert sorted(frame.select("partition", "offset").collect().rows()) == out.rows()
    assert frame.select("topic").unique().collect().rows() == [("orders",)]
    dataset = ds.dataset(f"{BUCKET}/{out.key}", filesystem=out.server.store, partitioning="hive")
    assert dataset.count_rows() == 60
    # DuckDB's httpfs is another download: the same files, as they lie.
    import duckdb

    fs.copy_files(f"{BUCKET}/{out.key}", str(tmp_path / "copy"), source_filesystem=out.server.store)
    found = duckdb.sql(
        f"SELECT count(*), any_value(topic) FROM read_parquet('{tmp_path}/copy/**/*.parquet')"
    ).fetchall()
    assert found == [(60, "orders")]


def test_small_files_are_joined_and_removed_after_the_manifest(out: Out, source: Path) -> None:
    export(source, out.url)
    joined = 0
    for _ in range(3):
        grow(source, 30)
        out.server.requests.clear()
        joined += export(source, out.url).joined_files
    assert joined > 0
    out.check_holds(source)
    requests = [(request.kind, request.key) for request in out.server.requests]
    written = next(at for at, (kind, key) in enumerate(requests) if kind == "PUT" and key.endswith(MANIFEST_FILE))
    removals = [at for at, (kind, _) in enumerate(requests) if kind in ("POST", "DELETE")]
    assert removals
    assert min(removals) > written


def test_options_of_a_later_run_have_to_agree(out: Out, source: Path) -> None:
    export(source, out.url)
    with pytest.raises(ExportOptionsError):
        export(source, out.url, codec="zstd")
    assert not [key for key in out.names() if STAGING_DIRECTORY in key]


def test_a_directory_reader_sees_nothing_of_a_run_before_its_commit(out: Out, source: Path) -> None:
    seen: list[list[str]] = []
    with out.server.failing(at("PUT", "commit.json", lambda: seen.append(out.data()))):
        export(source, out.url)
    assert seen == [[]]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("kind", "end"), [("PUT", "plan.json"), ("PUT", "commit.json"), ("PUT", MANIFEST_FILE)])
def test_of_two_exports_at_once_one_commits_and_the_other_leaves_nothing(
    out: Out, source: Path, kind: str, end: str, is_first: bool
) -> None:
    if not is_first:
        export(source, out.url)
        grow(source, 20)
    winner: list[ExportSummary] = []
    with (
        out.server.failing(at(kind, end, lambda: winner.append(export(source, out.url)))),
        pytest.raises(ExportConflictError, match="committed first"),
    ):
        export(source, out.url)
    assert winner[0].new_records == (60 if is_first else 40)
    out.check_holds(source)
    assert export(source, out.url).new_records == 0


def test_manifest_that_is_gone_at_the_commit_is_a_conflict(out: Out, source: Path) -> None:
    export(source, out.url)
    grow(source, 20)
    gone = at("PUT", MANIFEST_FILE, lambda: out.server.delete(f"{out.key}/{MANIFEST_FILE}"))
    with out.server.failing(gone), pytest.raises(ExportConflictError):
        export(source, out.url)
    assert not [key for key in out.names() if key.startswith("_")]


def test_run_that_may_be_alive_keeps_its_files(out: Out, source: Path) -> None:
    seen: list[bool] = []

    def look() -> None:
        with ObjectTarget.opened(out.url, export_options("parquet"), {}) as target:
            seen.append(target.resume_commit(finish=lambda _: None))

    with out.server.failing(at("PUT", "commit.json", look)):
        export(source, out.url)
    assert seen == [False]
    out.check_holds(source)


def killed(monkeypatch: pytest.MonkeyPatch, method: str, when: Callable[[str], bool], *, is_after: bool) -> None:
    """End the process at a call of ObjectEnv: before or after it has done its work."""
    unpatched = getattr(ObjectEnv, method)

    def call(self: ObjectEnv, path: Any, *rest: Any, **named: Any) -> Any:
        is_here = when(str(path))
        if is_here and not is_after:
            raise KilledError
        found = unpatched(self, path, *rest, **named)
        if is_here:
            raise KilledError
        return found

    monkeypatch.setattr(ObjectEnv, method, call)
    monkeypatch.setattr(ObjectTarget, "_discard", lambda _: None)


STEPS = [
    ("write_if", "plan.json", True),
    ("create_file", ".parquet", True),
    ("write", "commit.json", False),
    ("write", "commit.json", True),
    ("copy", ".parquet", True),
    ("write_if", MANIFEST_FILE, False),
    ("write_if", MANIFEST_FILE, True),
    ("remove", "", False),
]


@pytest.mark.parametrize(
    ("is_first", "method", "end", "is_after"),
    [*((False, *step) for step in STEPS), *((True, *step) for step in STEPS[3:6])],
)
def test_after_a_run_that_was_killed_the_next_ones_hold_everything_once(
    out: Out, source: Path, is_first: bool, method: str, end: str, is_after: bool
) -> None:
    if not is_first:
        for _ in range(2):
            export(source, out.url)
            grow(source, 30)
    with pytest.MonkeyPatch.context() as patch:
        killed(patch, method, lambda path: path.endswith(end) or not end, is_after=is_after)
        with pytest.raises(KilledError):
            export(source, out.url)
    before = read_manifest(out.url)
    grow(source, 20)
    summary = export(source, out.url)
    has_written = ((method, is_after) == ("write_if", True) and end == MANIFEST_FILE) or method == "remove"
    assert summary.was_resumed == has_written
    assert summary.record_count == (before.record_count if before else 0) + summary.new_records
    out.check_holds(source)


def test_data_that_cannot_be_written_leaves_nothing(out: Out, source: Path) -> None:
    with (
        out.server.failing(times(1, answering("PUT", ".parquet", DENIED))),
        pytest.raises(StorageError, match=f"cannot write {out.url}/_kstore_export/.*AccessDenied") as caught,
    ):
        export(source, out.url, threads=1, storage_options={"aws_secret_access_key": SECRET})
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert out.names() == []
    export(source, out.url)
    out.check_holds(source)


def test_copy_that_fails_leaves_nothing(out: Out, source: Path) -> None:
    with (
        out.server.failing(times(1, answering("COPY", "date=", DENIED))),
        pytest.raises(StorageError, match="cannot copy"),
    ):
        export(source, out.url)
    assert out.names() == []


def test_busy_server_is_asked_again(out: Out, source: Path) -> None:
    with out.server.failing(times(2, answering("PUT", "", BUSY))):
        export(source, out.url, threads=1)
    out.check_holds(source)


def test_manifest_whose_answer_is_lost_is_written(out: Out, source: Path) -> None:
    lost: list[Request] = []

    def loses(request: Request) -> bool:
        if request.kind == "PUT" and request.key.endswith(MANIFEST_FILE) and not lost:
            lost.append(request)
            return True
        return False

    out.server.loses_answer = loses
    assert export(source, out.url).new_records == 60
    assert len(lost) == 1
    out.check_holds(source)


def test_manifest_that_may_have_been_written_keeps_the_files_until_the_next_commit(out: Out, source: Path) -> None:
    with (
        out.server.failing(answering("PUT", MANIFEST_FILE, BUSY)),
        pytest.raises(StorageError, match="not known whether"),
    ):
        export(source, out.url)
    assert out.data()
    assert read_manifest(out.url) is None
    export(source, out.url)
    out.check_holds(source)


def test_store_that_ignores_conditions_is_refused(out: Out, source: Path) -> None:
    out.server.ignores_conditions = True
    with pytest.raises(UnsupportedError, match="If-None-Match, If-Match"):
        export(source, out.url)
    assert out.names() == []


def test_large_object_is_written_in_parts(out: Out) -> None:
    env = ObjectEnv(out.url, {})
    content = b"0123456789abcdef" * (20 << 16)
    with env.create_file(f"{out.url}/big") as file:
        for start in range(0, len(content), 1 << 20):
            file.append(memoryview(content)[start : start + (1 << 20)])
        assert out.names() == []
        file.sync()
    assert env.read_file(f"{out.url}/big", max_bytes=1 << 30) == content
    with pickle.loads(pickle.dumps(env)).create_file(f"{out.url}/dropped") as file:
        file.append(memoryview(content))
    assert out.names() == ["big"]


def test_keys_in_azure_are_those_below_the_container() -> None:
    url = "abfss://backups@account.dfs.core.windows.net/exports/an%20out"
    options = {"account_name": "account", "account_key": "c2VjcmV0"}
    for env in (ObjectEnv(url, options), pickle.loads(pickle.dumps(ObjectEnv(f"{url}/", options)))):
        for path in (url, shown_path(url), env.absolute_path(url)):
            assert env._key(path) == "exports/an out"
            assert env._key(f"{path}/{MANIFEST_FILE}") == f"exports/an out/{MANIFEST_FILE}"
        with pytest.raises(ValueError, match="expected a path below"):
            env._key("abfss://account.dfs.core.windows.net/exports/an%20outer/x")


def test_options_are_passed_in_place_of_the_environment(
    out: Out, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://{out.server.address}"
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    options = {"endpoint_url": address, "access_key_id": "x", "secret_access_key": SECRET}
    export(source, out.url, storage_options=options)
    manifest = read_manifest(out.url, storage_options=options)
    assert manifest is not None
    assert manifest.record_count == 60


def test_what_is_no_export_is_left_alone(out: Out, source: Path) -> None:
    out.server.put(f"{out.key}/a file", b"x")
    with pytest.raises(ExportError, match=r"is no export: .* found a file"):
        export(source, out.url)
    assert out.names() == ["a file"]


def test_manifest_that_was_removed_while_a_later_run_left_files_is_an_error(out: Out, source: Path) -> None:
    export(source, out.url)
    grow(source, 20)
    with pytest.MonkeyPatch.context() as patch:
        killed(patch, "copy", lambda _: True, is_after=True)
        with pytest.raises(KilledError):
            export(source, out.url)
    out.server.delete(f"{out.key}/{MANIFEST_FILE}")
    before = out.names()
    with pytest.raises(CorruptManifestError, match="earlier_run_id"):
        export(source, out.url)
    assert out.names() == before


@pytest.mark.parametrize(
    ("url", "options", "kind", "text"),
    [
        ("memory://a/b", {}, UnsupportedError, "cannot write memory://a/b: .*memory has no such request"),
        ("s3://key:never%2Fshown+secret@bucket/out", {}, ValueError, "without options and keys"),
        ("s3://bucket/out?secret_key=never/shown+secret", {}, ValueError, "without options and keys"),
        ("s3://bucket/out", {"format": "kstore"}, UnsupportedError, 'format "kstore"'),
        ("s3://bucket/out", {"file_bytes": 5 << 30}, ValueError, "at most 4 GiB"),
        ("s3://bucket/out", {"storage_options": {"no_such": SECRET, "region": "x"}}, ValueError, "no_such"),
    ],
)
def test_urls_and_options_that_cannot_be_are_refused(
    source: Path, url: str, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        export(source, url, **options)
    assert SECRET not in str(caught.value)


def test_options_of_a_url_are_refused_for_a_directory_and_a_table(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="storage_options are for"):
        export(source, tmp_path / "out", storage_options={"region": "x"})
    with pytest.raises(ValueError, match="storage_options are for"):
        export(source, table="delta:t", storage_options={"region": "x"})  # type: ignore[call-overload]
