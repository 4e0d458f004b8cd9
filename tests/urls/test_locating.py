"""Goal: one function chooses what reads a path, by its scheme, and no message shows a secret.
Method: tables of paths and URLs; no server is asked."""

from __future__ import annotations

import builtins
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest

from kstore import open_log
from kstore.errors import StorageError
from kstore.log.env import (
    DEFAULT_ENV,
    UNKNOWN_FILE,
    Env,
    FileIdentity,
    LocalEnv,
    ObjectIdentity,
    is_same_file,
    join_path,
    locate,
    portable,
    split_path,
)
from kstore.log.env.filesystems import filesystem_of, masked
from kstore.log.env.remote import RemoteEnv

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
    filesystem_of.cache_clear()
    with pytest.raises(StorageError, match=r"kstore\[arrow\]"):
        locate("s3://bucket/t-0")


def test_missing_fsspec_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("fsspec"):
            raise ImportError(name)
        return real(name, *args)

    filesystem_of.cache_clear()
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
        "remove_directory", "sync_directory", "is_locked", "copy_modification_time", "watch",
    }  # fmt: skip
    for name in writing - {"is_locked", "watch"}:
        arguments = (path, path) if name in ("rename", "copy_modification_time") else (path,)
        with pytest.raises(StorageError, match="kstore only reads there") as caught:
            getattr(env, name)(*arguments)
        assert caught.value.errno == 30
        assert caught.value.path == path
    assert not env.is_locked(path)
    with pytest.raises(StorageError, match="kstore only reads there"):
        open_log(f"s3://bucket/t-0?{LOCAL}", "a")


def test_errors_of_urls_are_pickled() -> None:
    with pytest.raises(StorageError) as caught:
        locate("nothing://place")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_env_that_only_reads_need_not_say_how_to_write() -> None:
    assert {"open_read", "listdir", "stat", "absolute_path", "process_id"} == Env.__abstractmethods__
