"""The file systems of pyarrow, and through it of fsspec: the only module that imports pyarrow.fs.

What they raise becomes a StorageError that names the path and shows what the server said, without secrets.
"""

from __future__ import annotations

import errno
import re
import threading
from array import array
from calendar import timegm
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from kstore.environment import variable
from kstore.errors import StorageError
from kstore.log.env.base import ObjectIdentity

# A request is tried this often, by the retry strategy of pyarrow; between the tries are pauses.
MOST_ATTEMPTS = 4
# Seconds without an answer after which a request is tried again.
_CONNECT_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 30.0
# What pyarrow says when an error of a server is longer than the read: then it does not try again.
_LOST_ANSWER = "Failed to flush response stream"
_PAUSE_S = 0.2
_GCS_RETRIES_S = "30"
_NS = 10**9

_S3_TEXTS = ("region", "scheme", "endpoint_override", "session_token", "role_arn", "tls_ca_file_path")
_S3_NUMBERS = ("request_timeout", "connect_timeout")
_S3_FLAGS = ("anonymous", "force_virtual_addressing")
_SECRET_KEY = re.compile(r"key|secret|token|password|credential|sig", re.IGNORECASE)
_MASK = "***"
_NO_SUCH_PLACE = re.compile(r"NO_SUCH_BUCKET|NO_SUCH_KEY|NoSuchBucket|RESOURCE_NOT_FOUND|ContainerNotFound")


class ListedObject(NamedTuple):
    """An object as a listing found it; modified_ns is 0 if the file system does not tell it."""

    size_in_bytes: int
    modified_ns: int

    @property
    def identity(self) -> ObjectIdentity:
        return ObjectIdentity(self.size_in_bytes, self.modified_ns // _NS)


class Listing:
    """What is at or below a directory, by one recursive listing; directories are named relative to it, "" is itself.

    Memory: the names and 16 bytes for each object, and a few hundred bytes for each directory.  Threads: thread-safe.
    """

    def __init__(self) -> None:
        self._directories: dict[str, tuple[str, array[int]]] = {}
        self._inner: dict[str, set[str]] = {}

    @classmethod
    def of(cls, found: Iterable[tuple[str, ListedObject]]) -> Listing:
        """Make a listing of objects and their paths relative to the directory."""
        listing = cls()
        names: dict[str, list[tuple[str, ListedObject]]] = {}
        for path, listed in found:
            directory, _, name = path.rpartition("/")
            names.setdefault(directory, []).append((name, listed))
        for directory, objects in names.items():
            objects.sort()
            numbers = array("q", [number for _, listed in objects for number in listed])
            listing._directories[directory] = "/".join(name for name, _ in objects), numbers
            listing._add_parents(directory)
        return listing

    def _add_parents(self, directory: str) -> None:
        while directory:
            parent, _, name = directory.rpartition("/")
            if name in self._inner.setdefault(parent, set()):
                return
            self._inner[parent].add(name)
            directory = parent

    def is_directory(self, directory: str) -> bool:
        """Whether anything is below a directory."""
        return directory in self._directories or directory in self._inner

    def objects(self, directory: str) -> dict[str, ListedObject]:
        """Return the objects in a directory, by name."""
        joined, numbers = self._directories.get(directory, ("", array("q")))
        names = joined.split("/") if numbers else []
        return {name: ListedObject(*numbers[2 * at : 2 * at + 2]) for at, name in enumerate(names)}

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted({*self.objects(directory), *self._inner.get(directory, ())})

    def digest(self, directory: str) -> int:
        """Return a number that changes, in this process, with the names, sizes and times in a directory."""
        joined, numbers = self._directories.get(directory, ("", array("q")))
        return hash((joined, numbers.tobytes(), frozenset(self._inner.get(directory, ()))))


class OpenObject(NamedTuple):
    """An object that was opened, and what it was then."""

    handle: Any
    identity: ObjectIdentity


class RemoteFileSystem:
    """A file system of pyarrow, whose errors become StorageErrors.

    Args: filesystem: a pyarrow.fs.FileSystem; secrets: texts that no message shows.
    Cost: each method says how many requests it sends to an S3 server.
    Threads: thread-safe.
    """

    def __init__(self, filesystem: Any, *, secrets: Iterable[str] = ()) -> None:
        self._filesystem = filesystem
        self._secrets = tuple(secret for secret in secrets if secret)

    def list(self, key: str, *, path: str) -> Listing:
        """Return what is below a directory; nothing if it does not exist.  Cost: 1 request per 1000 objects."""
        from pyarrow.fs import FileSelector, FileType

        with self._errors("list", path):
            found = self._filesystem.get_file_info(FileSelector(key, allow_not_found=True, recursive=True))
        start = len(key.rstrip("/")) + 1 if key.strip("/") else len(key)
        files = (info for info in found if info.type is FileType.File)
        return Listing.of((info.path[start:], ListedObject(info.size or 0, info.mtime_ns or 0)) for info in files)

    def status(self, key: str, *, path: str) -> ListedObject | bool:
        """Return what an object is, True for a directory, False for nothing.  Cost: 1 request, 2 if it is no object."""
        from pyarrow.fs import FileType

        with self._errors("stat", path):
            info = self._filesystem.get_file_info(key)
        if info.type is FileType.File:
            return ListedObject(info.size or 0, info.mtime_ns or 0)
        return bool(info.type is FileType.Directory)

    def open(self, key: str, *, path: str) -> OpenObject:
        """Open an object.  Cost: 1 request."""
        with self._errors("open", path):
            handle = self._filesystem.open_input_file(key)
            size = handle.size()
            try:
                told = handle.metadata() or {}
            except NotImplementedError:
                told = {}
            texts = {_text(name).lower(): _text(value) for name, value in told.items()}
            modified_s = _seconds(texts.get("last-modified", ""))
            if not modified_s:
                modified_s = (self._filesystem.get_file_info(key).mtime_ns or 0) // _NS
        return OpenObject(handle, ObjectIdentity(size, modified_s, texts.get("etag", "")))

    def read(self, opened: OpenObject, size: int, *, position: int, path: str) -> bytes:
        """Return up to `size` bytes of an open object.  Cost: 1 request."""
        for attempt in range(1, MOST_ATTEMPTS):
            try:
                return self._read_once(opened, size, position=position, path=path)
            except StorageError as error:
                if _LOST_ANSWER not in str(error):
                    raise
                threading.Event().wait(_PAUSE_S * attempt)
        return self._read_once(opened, size, position=position, path=path)

    def _read_once(self, opened: OpenObject, size: int, *, position: int, path: str) -> bytes:
        with self._errors(f"read {size} bytes at position {position} of", path):
            data: bytes = opened.handle.read_at(size, position)
            return data

    @contextmanager
    def _errors(self, action: str, path: str) -> Iterator[None]:
        from pyarrow.lib import ArrowException

        try:
            yield
        except (OSError, ArrowException, ValueError, PermissionError) as error:
            if isinstance(error, StorageError):
                raise
            text = masked(str(error), self._secrets)
            number = getattr(error, "errno", None) or errno.EIO
            if _NO_SUCH_PLACE.search(text):
                number = errno.ENOENT
            # The error of pyarrow may show a secret, so that it is not kept as the cause.
            raise StorageError(f"cannot {action} {path}: {text}", path=path, errno=number) from None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _seconds(text: str) -> int:
    """Return the seconds since 1970 of a time such as 2024-05-01T12:00:00Z, 0 for any other text."""
    match = re.match(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)", text)
    return timegm(tuple(map(int, match.groups()))) if match else 0


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets."""
    for secret in secrets:
        text = text.replace(secret, _MASK)
    return text


def secrets_of(parts: SplitResult) -> list[str]:
    """Return the texts of a URL that nobody may see: passwords, and the values of options that are named like one."""
    found = [value for name, value in parse_qsl(parts.query) if _SECRET_KEY.search(name)]
    user, separator, password = parts.netloc.rpartition("@")[0].partition(":")
    shown_user = [] if parts.scheme in ("abfs", "abfss") else [user]
    found += [password if separator else "", *shown_user]
    return [text for text in {*found, *map(unquote, found)} if text]


class MadeFileSystem(NamedTuple):
    """The file system of a URL, and the URL's path in it."""

    filesystem: RemoteFileSystem
    key: str


@lru_cache(maxsize=64)
def filesystem_of(url: str) -> MadeFileSystem:
    """Return the file system of a URL; equal URLs share one, with its connections.

    Raises: StorageError if there is none for the scheme, pyarrow is missing, or the options are wrong.
    """
    parts = urlsplit(url)
    secrets = secrets_of(parts)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        from pyarrow.fs import FileSystem
        from pyarrow.lib import ArrowException
    except ImportError as error:
        raise StorageError(
            f"cannot read {where}: URLs need pyarrow, which the extra kstore[arrow] installs", path=where
        ) from error
    try:
        if parts.scheme == "s3":
            return MadeFileSystem(RemoteFileSystem(_s3(parts), secrets=secrets), _key(parts))
        if parts.scheme in _OF_PYARROW:
            made, key = FileSystem.from_uri(_with_limits(parts))
        else:
            made, key = _of_fsspec(parts)
    except (OSError, ArrowException, ValueError, ImportError, TypeError) as error:
        if isinstance(error, StorageError):
            raise
        text = masked(str(error), secrets)
        raise StorageError(f"cannot read {where}: {text}", path=where, errno=getattr(error, "errno", None)) from None
    return MadeFileSystem(RemoteFileSystem(made, secrets=secrets), key)


_OF_PYARROW = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


def _key(parts: SplitResult) -> str:
    bucket, path = parts.netloc.rpartition("@")[2], unquote(parts.path).strip("/")
    return f"{bucket}/{path}" if path else bucket


def _s3(parts: SplitResult) -> Any:
    """Make the file system of an s3 URL, with bounded retries and timeouts, which pyarrow's URLs cannot name."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    given = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=MOST_ATTEMPTS),
        "request_timeout": _REQUEST_TIMEOUT_S,
        "connect_timeout": _CONNECT_TIMEOUT_S,
    }
    options |= {name: given.pop(name) for name in _S3_TEXTS if name in given}
    options |= {name: float(given.pop(name)) for name in _S3_NUMBERS if name in given}
    options |= {name: given.pop(name).lower() in ("", "1", "true") for name in _S3_FLAGS if name in given}
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    access_key, secret_key = (
        given.pop(name, unquote(found)) for name, found in (("access_key", user), ("secret_key", password))
    )
    if access_key:
        options |= {"access_key": access_key, "secret_key": secret_key}
    if given:
        known = ", ".join((*_S3_TEXTS, *_S3_NUMBERS, *_S3_FLAGS, "access_key", "secret_key"))
        raise ValueError(f"unknown option {', '.join(sorted(given))}; an s3 URL takes {known}")
    if "region" not in options and "endpoint_override" not in options and not _has_own_region():
        options["region"] = resolve_s3_region(parts.netloc.rpartition("@")[2])
    return S3FileSystem(**options)


def _has_own_region() -> bool:
    """Whether the environment names a region or an endpoint, which pyarrow then uses."""
    return any(
        variable(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
    )


def _with_limits(parts: SplitResult) -> str:
    """Return the URL for pyarrow; Google's client would otherwise retry for 15 minutes."""
    given = dict(parse_qsl(parts.query))
    if parts.scheme in ("gs", "gcs"):
        given.setdefault("retry_limit_seconds", _GCS_RETRIES_S)
    return parts._replace(query=urlencode(given)).geturl()


def _of_fsspec(parts: SplitResult) -> tuple[Any, str]:
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        known = ", ".join(("file", "s3", *_OF_PYARROW))
        raise ValueError(
            f"pyarrow reads {known}; other schemes need fsspec, which the extra kstore[fsspec] installs"
        ) from error
    found, key = url_to_fs(parts._replace(query="").geturl(), **dict(parse_qsl(parts.query)))
    return PyFileSystem(FSSpecHandler(found)), key
