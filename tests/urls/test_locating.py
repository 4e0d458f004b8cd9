"""Goal: one function chooses what reads a path, by its scheme, and no message shows a secret.
Method: tables of paths and URLs; no server is asked."""

from __future__ import annotations

import builtins
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kstore
from kstore import open_log
from kstore.cli.commands import whole_app
from kstore.env import (
    DEFAULT_ENV,
    UNKNOWN_FILE,
    Env,
    FileIdentity,
    LocalEnv,
    ObjectIdentity,
    filesystems,
    is_same_file,
    join_path,
    locate,
    portable,
    split_path,
)
from kstore.env.filesystems import filesystem_of, masked
from kstore.env.remote import RemoteEnv
from kstore.errors import StorageError, UnsupportedError

LOCAL = "scheme=http&endpoint_override=127.0.0.1:1&region=us-east-1"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/t-0", "/data/t-0"),
        ("/data/t-0/", "/data/t-0"),
        ("file:///data/a%20b/t-0", "/data/a b/t-0"),
        ("file://localhost/data/t-0", "/data/t-0"),
        ("file:/data/t-0", "/data/t-0"),
        ("FILE:///data/t-0", "/data/t-0"),
    ],
)
def test_plain_paths_and_file_urls_are_local(given: str, path: str) -> None:
    assert locate(given) == (DEFAULT_ENV, path)


def test_relative_path_is_made_absolute_and_a_pathlike_is_never_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("t-0").path == portable("t-0") == str(tmp_path / "t-0")
    assert locate(Path("s3://bucket/t-0")).path == str(tmp_path / "s3:" / "bucket" / "t-0")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (f"s3://bucket/t-0?{LOCAL}", "s3://bucket/t-0"),
        (f"s3://bucket/t-0/?{LOCAL}", "s3://bucket/t-0"),
        (f"s3a://bucket/t-0?{LOCAL}", "s3://bucket/t-0"),
        (f"s3://key:secret@bucket/a%20b/t-0?{LOCAL}", "s3://bucket/a%20b/t-0"),
        (f"s3://bucket?{LOCAL}&anonymous", "s3://bucket"),
        ("gs://anonymous@bucket/t-0", "gs://bucket/t-0"),
        ("abfs://container@account.dfs.core.windows.net/t-0", "abfs://container@account.dfs.core.windows.net/t-0"),
        ("memory://place/t-0", "memory://place/t-0"),
    ],
)
def test_other_urls_are_remote_and_their_paths_have_no_options(given: str, path: str) -> None:
    env, found = locate(given)
    assert isinstance(env, RemoteEnv)
    assert found == path
    assert (
        env.absolute_path(
            given.partition("?")[0].replace("s3a:", "s3:").replace("key:secret@", "").replace("anonymous@", "")
        )
        == path
    )
    assert portable(given) == given


def test_urls_of_one_store_share_its_connections_but_no_listing() -> None:
    url = f"s3://bucket/t-0?{LOCAL}"
    assert filesystem_of(url) is filesystem_of(url)
    assert locate(url).env is not locate(url).env


def test_env_of_the_caller_wins() -> None:
    mine = LocalEnv()
    assert locate("file:///data", mine) == (mine, str(Path.cwd() / "file:" / "data"))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("file://elsewhere/data", "must name a local path"),
        ("nothing://place/t-0", "Protocol not known: nothing"),
        (f"s3://bucket/t-0?{LOCAL}&regoin=x", "unknown option regoin"),
        ("", "the path is empty"),
    ],
)
def test_what_no_file_system_reads_is_refused(url: str, text: str) -> None:
    with pytest.raises(StorageError, match=text):
        locate(url)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://bucket/t-0?{LOCAL}&secret_key=my-secret&access_key=my-key&regoin=x",
        f"s3://my-key:my-secret@bucket/t-0?{LOCAL}&regoin=x",
        "nothing://my-key:my-secret@place/t-0?token=my-token",
        "memory://place/t-0?token=my-secret",
        # Under NFKC the last character contains a slash, which urllib refuses with the whole user in its message.
        "s3://my-key:my-secret\u2100@bucket/t-0",
        "s3://my-key:my-secret[@bucket/t-0",
        "simplecache::s3://my-key:my-secret@bucket/t-0",
        "blockcache::filecache::s3://my-key:my-secret@bucket/t-0?key=my-key",
        "file://my-user:my-secret@/data/t-0",
        "file://my-user:my-secret@elsewhere/data/t-0",
    ],
)
def test_secrets_are_in_no_message_and_no_representation(url: str) -> None:
    try:
        location = locate(url)
    except StorageError as error:
        shown = f"{error} {error!r} {error.__cause__} {error.path}"
    else:
        shown = f"{location} {location.env!r}"
    assert "my-" not in shown


@pytest.mark.parametrize(
    "path", ["simplecache::s3://my-key:my-secret@bucket/t-0", "s3://my-key:my-secret\u2100@bucket/t-0?sig=my-sig"]
)
def test_secrets_are_in_no_message_of_a_command_or_a_call(path: str, tmp_path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: kstore.open_store(path),
        lambda: kstore.open_store(path, "a"),
        lambda: kstore.open_log(path, "a"),
        lambda: kstore.scan(path),
        lambda: kstore.verify(path),
        lambda: kstore.recover(path),
        lambda: kstore.read_groups(path),
        lambda: kstore.export(path, tmp_path / "out"),
        lambda: kstore.export(tmp_path, path),
    ]
    for call in calls:
        with pytest.raises((StorageError, UnsupportedError, ValueError)) as caught:
            call()
        assert "my-" not in f"{caught.value} {caught.value!r} {getattr(caught.value, 'path', '')}"
    for command in ("ls", "cat", "stat", "verify", "recover", "groups", "compact"):
        result = CliRunner().invoke(whole_app(), [command, path])
        assert result.exit_code != 0, command
        assert "my-" not in result.output + str(result.exception), command


def test_a_local_path_with_colons_stays_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("a::b/t-0").path == str(tmp_path / "a::b" / "t-0")


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}, ("http", "127.0.0.1:9000")),
        ({"AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": "https://mine:90/"}, ("https", "mine:90")),
        ({"AWS_ENDPOINT_URL": "http://other", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, ("https", "")),
    ],
)
def test_s3_is_asked_at_the_endpoint_that_the_environment_names(
    variables: dict[str, str], options: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    url = "s3://bucket/t-0"
    before = filesystem_of(url)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = filesystem_of(url).filesystem._filesystem.__reduce__()[1][0]
    assert (made["scheme"], made["endpoint_override"]) == options
    assert (filesystem_of(url) is before) == (options[1] == "")
    given = filesystem_of("s3://bucket/t-0?endpoint_override=given:1").filesystem._filesystem.__reduce__()[1][0]
    assert given["endpoint_override"] == "given:1"


def test_an_endpoint_of_the_environment_that_is_no_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "127.0.0.1:9000")
    with pytest.raises(StorageError, match=r"expected a URL of http or https, found .127\.0\.0\.1:9000"):
        locate("s3://bucket/no-endpoint")


def test_secrets_are_masked_wherever_a_server_repeats_them() -> None:
    assert masked("the key abc/d of abc", ["abc/d"]) == "the key *** of abc"


def test_paths_of_urls_are_joined_and_split_as_others() -> None:
    assert join_path("s3://bucket/root", "t-0") == "s3://bucket/root/t-0"
    assert split_path("s3://bucket/root/t-0") == ("s3://bucket/root", "t-0")
    assert join_path(*split_path("s3://bucket/t-0")) == "s3://bucket/t-0"


def test_missing_pyarrow_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    filesystems._made.cache_clear()
    with pytest.raises(StorageError, match=r"kstore\[arrow\]"):
        locate("s3://bucket/t-0")


def test_missing_fsspec_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("fsspec"):
            raise ImportError(name)
        return real(name, *args)

    filesystems._made.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StorageError, match=r"kstore\[fsspec\]"):
        locate("memory://place/t-0")


def test_identities_of_objects_compare_what_both_sides_know() -> None:
    one = ObjectIdentity(10, 100, "a")
    assert is_same_file(one, ObjectIdentity(10, 100))
    assert is_same_file(ObjectIdentity(10, 0), one)
    assert not is_same_file(one, ObjectIdentity(10, 100, "b"))
    assert not is_same_file(one, ObjectIdentity(11, 100))
    assert not is_same_file(one, ObjectIdentity(10, 101))
    assert is_same_file(FileIdentity(1, 2, 3), UNKNOWN_FILE)


def test_each_method_that_writes_is_refused_with_a_reason_and_no_request() -> None:
    env, path = locate(f"s3://bucket/t-0?{LOCAL}")
    writing = {
        name for name, method in vars(LocalEnv).items() if inspect.isfunction(method) and name not in vars(RemoteEnv)
    }
    assert writing == {
        "check_writable", "open_write", "lock_file", "lock_directory", "rename", "unlink", "make_directory",
        "remove_directory", "sync_directory", "is_locked", "lock_holder", "copy_modification_time", "watch",
        "disk_space", "read_file", "sizes_of",
    }  # fmt: skip
    for name in writing - {"is_locked", "lock_holder", "watch", "disk_space", "read_file", "sizes_of"}:
        arguments = (path, path) if name in ("rename", "copy_modification_time") else (path,)
        with pytest.raises(StorageError, match="kstore only reads there") as caught:
            getattr(env, name)(*arguments)
        assert caught.value.errno == 30
        assert caught.value.path == path
    assert not env.is_locked(path)
    assert env.lock_holder(path) is None
    assert env.disk_space(path) is None
    with pytest.raises(StorageError, match="kstore only reads there"):
        open_log(f"s3://bucket/t-0?{LOCAL}", "a")


def test_errors_of_urls_are_pickled() -> None:
    with pytest.raises(StorageError) as caught:
        locate("nothing://place")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_env_that_only_reads_need_not_say_how_to_write() -> None:
    assert {"open_read", "listdir", "stat", "absolute_path", "process_id"} == Env.__abstractmethods__
